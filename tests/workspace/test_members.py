"""Every member is a distribution that could be published alone and declares what it may import."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MEMBERS = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))

LAYOUT = {"hyper-layout"}
DISPATCH = LAYOUT | {"hyper-dtensor"}
CORE = DISPATCH | {"hyper-dispatch", "hyper-ops", "hyper-tensor-parallel"}
# The table of section 1 of the design, as declared dependencies.
MAY_IMPORT = {
    "layout": set(),
    "dtensor": LAYOUT,
    "dispatch": DISPATCH,
    "ops": DISPATCH | {"hyper-dispatch"},
    "tensor_parallel": DISPATCH,
    "platform_torch": CORE,
    "platform_ms": CORE,
    "hyper_parallel": CORE,
    "conformance": CORE,
}
FRAMEWORKS = {"platform_torch": {"torch"}, "platform_ms": {"mindspore"}}


def project(member: Path) -> dict[str, Any]:
    settings: dict[str, Any] = tomllib.loads((member / "pyproject.toml").read_text())["project"]
    return settings


def required(member: Path) -> set[str]:
    """Names of the required distributions, without their version ranges."""
    return {
        requirement.split(">")[0].split("=")[0].strip() for requirement in project(member)["dependencies"]
    }


def test_the_members_are_the_documented_ones() -> None:
    assert {member.name for member in MEMBERS} == set(MAY_IMPORT)


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_member_has_what_a_distribution_needs(member: Path) -> None:
    name = project(member)["name"].replace("-", "_")
    assert (member / "README.md").stat().st_size > 0
    assert [path.name for path in (member / "src").iterdir() if path.name != "__pycache__"] == [name]
    assert (member / "src" / name / "py.typed").exists()
    assert (member / "src" / name / "__init__.py").read_text().startswith('"""')
    assert project(member)["license"] == "Apache-2.0"


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_member_declares_exactly_the_siblings_and_frameworks_it_may_import(member: Path) -> None:
    declared = required(member)
    assert {name for name in declared if name.startswith("hyper-")} == MAY_IMPORT[member.name]
    assert declared & {"torch", "torch_npu", "mindspore"} == FRAMEWORKS.get(member.name, set())
