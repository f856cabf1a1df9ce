"""The stages of .ci/run cover every test exactly once, in the documented order, and say the same as the documents."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = (ROOT / ".ci" / "run").read_text()
MARKS = ("ranks", "wheels")
STAGES = [
    *("format", "lint", "types", "contracts"),
    "layout",
    "core",
    "torch",
    "mindspore",
    "conformance",
    "wheels",
    "examples",
]
CORE = {"layout", "dtensor", "dispatch", "ops", "tensor_parallel", "hyper_parallel", "conformance"}


def calls(function: str) -> Iterator[list[str]]:
    """The arguments of all calls in the bodies of the stages."""
    for line in RUN.splitlines():
        call = re.match(rf"(?:stage_\w+\(\) \{{)? +{function} (?!\")(.*?)(?:; \}})?$", line)
        if call:
            yield shlex.split(call[1])


def where_it_runs(folder: str, marks: dict[str, bool]) -> int:
    """In how many stages a test of this folder with these marks runs."""
    # Where no framework is installed no test is marked as one on ranks: tests/conftest.py refuses it.
    isolated = sum(folder in arguments and not marks["ranks"] for arguments in calls("core_tests"))
    in_full = 0
    for path, *options in calls("readme_tests"):
        selected = True
        if options:
            option, expression = options
            assert option == "-m"
            selected = eval(expression, {}, marks)
        in_full += path == f"tests/{folder}" and selected
    return isolated + in_full


def test_the_stages_are_the_documented_ones_in_their_order() -> None:
    (listed,) = re.findall(r"^stages=\((.*)\)$", RUN, re.MULTILINE)
    assert listed.split() == STAGES
    assert re.findall(r"^stage_(\w+)\(\)", RUN, re.MULTILINE) == STAGES


def test_every_test_runs_in_exactly_one_stage() -> None:
    holders = {path.relative_to(ROOT / "tests").parts[0] for path in ROOT.glob("tests/*/**/test_*.py")}
    for folder in holders - {"samples", "support"}:
        for present in itertools.product((False, True), repeat=len(MARKS)):
            marks = dict(zip(MARKS, present, strict=True))
            if all(present) or (marks["wheels"] and folder != "workspace"):
                continue  # the wheels are a matter of the workspace, and start no ranks
            if marks["ranks"] and folder in CORE - {"conformance"}:
                continue  # no such test: it would fail in the stage of the folder
            assert where_it_runs(folder, marks) == 1, (folder, marks)


def test_each_core_package_is_tested_where_only_it_is_installed() -> None:
    isolated = list(itertools.chain(*calls("core_tests")))
    assert sorted(isolated) == sorted(CORE)


def test_an_unknown_stage_is_refused_with_the_list_of_stages() -> None:
    done = subprocess.run(
        ["bash", ".ci/run", "lint", "nothing"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == f"no stage nothing; the stages are: {' '.join(STAGES)}\n"


@pytest.mark.parametrize("stage", STAGES)
def test_contributing_names_the_stage(stage: str) -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    assert f"`bash .ci/run {stage}`" in contributing
