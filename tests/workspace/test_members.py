"""Every member is a distribution that could be published alone and declares what it may import."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.support.documents import programs
from tests.support.package_readmes import LAUNCHERS

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
# What starts the program that a README has at least: without a framework where the package needs none.
LAUNCHER_OF = {"platform_torch": "torchrun", "platform_ms": "msrun"}
# Import names that are not the names of their distributions.
DISTRIBUTIONS = {
    "yaml": "pyyaml",
    "torch_npu": "torch",
}  # torch_npu: an extra, imported where a mesh needs it
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def project(member: Path) -> dict[str, Any]:
    settings: dict[str, Any] = tomllib.loads((member / "pyproject.toml").read_text())["project"]
    return settings


def required(member: Path) -> set[str]:
    """Names of the required distributions, without their version ranges."""
    return {name_of(requirement) for requirement in project(member)["dependencies"]}


def optional(member: Path) -> set[str]:
    """Names of the distributions that the extras bring."""
    extras = project(member).get("optional-dependencies", {}).values()
    return {name_of(requirement) for extra in extras for requirement in extra}


def name_of(requirement: str) -> str:
    return re.split(r"[\[<>=]", requirement)[0].strip().lower().replace("_", "-")


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
    # A copy: a distribution is built from its folder alone.
    assert (member / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_all_members_are_of_one_version_and_want_each_other_in_it(member: Path) -> None:
    settings = project(member)
    assert settings["version"] == VERSION
    extras = [each for extra in settings.get("optional-dependencies", {}).values() for each in extra]
    siblings = [each for each in settings["dependencies"] + extras if each.startswith("hyper-")]
    assert [each for each in siblings if not each.endswith(f"=={VERSION}")] == []


def test_the_classifiers_are_the_same_but_for_frameworks() -> None:
    (_,) = {
        tuple(each for each in project(member)["classifiers"] if not each.startswith("Framework ::"))
        for member in MEMBERS
    }


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_the_readme_says_how_to_install_and_shows_an_example(member: Path) -> None:
    readme = (member / "README.md").read_text()
    assert readme.startswith(f"# {project(member)['name'].replace('-', '_')}\n")
    assert f"pip install --find-links dist {project(member)['name']}" in readme.replace('"', "")
    assert "ay import" in readme
    launchers = {program.command.split()[0] for program in programs(member / "README.md")}
    assert launchers <= set(LAUNCHERS)
    assert LAUNCHER_OF.get(member.name, "python") in launchers


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_member_declares_exactly_the_siblings_and_frameworks_it_may_import(member: Path) -> None:
    declared = required(member)
    assert {name for name in declared if name.startswith("hyper-")} == MAY_IMPORT[member.name]
    assert declared & {"torch", "torch-npu", "mindspore"} == FRAMEWORKS.get(member.name, set())


def imported(member: Path) -> set[str]:
    """First parts of all imported modules."""
    names: set[str] = set()
    for source in (member / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_member_declares_all_that_it_imports(member: Path) -> None:
    own = project(member)["name"]
    foreign = imported(member) - sys.stdlib_module_names
    distributions = {DISTRIBUTIONS.get(name, name.replace("_", "-")) for name in foreign} - {own}
    assert distributions <= required(member) | optional(member)
