"""docs/architecture.md shows the system in 4+1 views, and its diagrams are what the contracts and the code say."""

from __future__ import annotations

import itertools
import re
import tomllib
from importlib import import_module
from typing import Any

from tests.support.documents import ROOT

TEXT = (ROOT / "docs" / "architecture.md").read_text()
CONTRACTS: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "importlinter"
]["contracts"]
VIEWS = {
    view.partition(":")[0]: body
    for view, _, body in (part.partition("\n") for part in TEXT.split("\n## ")[1:])
}


def diagram(view: str) -> str:
    return VIEWS[view].partition("```mermaid\n")[2].partition("```")[0]


def allowed_by_the_contracts() -> dict[str, set[str]]:
    """Package to the packages of this repository that it may import."""
    layers = next(contract["layers"] for contract in CONTRACTS if contract["type"] == "layers")
    rows = [layer.split(" | ") for layer in layers]
    allowed = {
        package: {other for row in rows[number + 1 :] for other in row}
        for number, row in enumerate(rows)
        for package in row
    }
    for contract in CONTRACTS:
        if contract["type"] == "forbidden":
            for package in contract["source_modules"]:
                allowed[package] -= set(contract["forbidden_modules"])
        elif contract["type"] == "independence":
            for package in contract["modules"]:
                allowed[package] -= set(contract["modules"])
    return allowed


def allowed_by_the_diagram() -> dict[str, set[str]]:
    """The same by following the arrows."""
    arrows: dict[str, set[str]] = {}
    for line in diagram("Development view").splitlines():
        stations = [station.strip().split(" & ") for station in line.split("-->")]
        for sources, targets in itertools.pairwise(stations):
            for source in sources:
                arrows.setdefault(source, set()).update(targets)

    def reached(package: str) -> set[str]:
        direct = arrows.get(package, set())
        return direct.union(*map(reached, direct))

    return {
        package: reached(package) for package in re.findall(r"^ +(\w+)\[", diagram("Development view"), re.M)
    }


def test_the_views_are_there() -> None:
    views = ["Logical view", "Development view", "Process view", "Physical view", "Scenarios"]
    assert list(VIEWS) == views
    assert all("```mermaid" in VIEWS[view] for view in views[:3])


def test_the_arrows_are_the_contracts() -> None:
    assert allowed_by_the_diagram() == allowed_by_the_contracts()


def test_the_classes_have_the_members_that_are_drawn() -> None:
    drawn = re.findall(r"class (\w+) \{ (.*) \}", diagram("Logical view"))
    assert len(drawn) >= 8
    for name, members in drawn:
        owner = next(
            module
            for module in ("hyper_layout", "hyper_dtensor", "hyper_dispatch", "hyper_tensor_parallel")
            if hasattr(import_module(module), name)
        )
        drawn_class = getattr(import_module(owner), name)
        known = {*dir(drawn_class), *getattr(drawn_class, "__annotations__", ())}
        for member in members.split("; "):
            assert member.removesuffix("()") in known, f"{name} has no {member}"


def test_the_places_are_there() -> None:
    """A path in the tables exists; FAMILY stands for any family."""
    for path in re.findall(r"`(packages/[^`]+)`", TEXT):
        assert list(ROOT.glob(re.sub(r"<\w+>", "*", path))), path
