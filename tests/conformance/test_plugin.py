"""The command that adapters run, where this repository is not: another folder, no configuration of pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hyper_conformance import find_harness, load_cases
from hyper_conformance.plugin import cases_of, skip_of
from hyper_conformance.report import Outcome, summary

ROOT = Path(__file__).parents[2]
SIMULATED = "tests.support.simulated.harness:SimulatedHarness"

# An adapter of somebody else, with a harness that is not installed.
THEIRS = """
from tests.support.simulated.harness import SimulatedHarness

class Harness(SimulatedHarness):
    skips = {"hooks.a_hook_can_be_removed": ("to do", "handles come next")}

class Idle(SimulatedHarness):
    skips = {"hooks.no_such_case": ("to do", "because")}

class Vague(SimulatedHarness):
    skips = {"hooks.*": ("later", "because")}

class Named(SimulatedHarness):
    name = "theirs"

class Early(SimulatedHarness):
    @property
    def gradients(self):
        raise AttributeError("as where it was not written", name="gradients", obj=self)
"""


def run(folder: Path, *options: str) -> tuple[int, str]:
    """Exit code and output of the suite's command."""
    (folder / "their_harness.py").write_text(THEIRS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--pyargs", "hyper_conformance"]
    result = subprocess.run(
        [*command, "-q", *options],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    return result.returncode, result.stdout + result.stderr


def test_it_says_what_passed_and_what_is_left_out(tmp_path: Path) -> None:
    code, output = run(tmp_path, "--platform", "their_harness:Harness", "--milestone", "3", "-k", "hooks")
    assert code == 0, output
    assert "simulated: milestone 3 (modules and styles) passed: 7 passed, 1 skipped" in output
    assert "milestone 1" not in output
    assert "simulated  hooks.a_hook_can_be_removed  to do  handles come next" in output


def test_a_platform_that_fails_is_named_with_the_error_of_its_rank(tmp_path: Path) -> None:
    """Here by a harness that describes another platform than the one that the ranks use."""
    code, output = run(tmp_path, "--platform", "their_harness:Named", "-k", "a_group_of_one and 2")
    assert code == 1
    assert "describes platform 'theirs', but this rank uses 'simulated'" in output
    assert "theirs: milestone 1 (processes, tensors, collectives) NOT PASSED: 1 failed" in output


def test_a_method_that_a_harness_lacks_is_named(tmp_path: Path) -> None:
    options = ["--platform", "their_harness:Early", "--milestone", "2", "-k", "whether_gradients_are_on"]
    code, output = run(tmp_path, *options)
    assert code == 1
    needs = (
        "has no 'gradients', which autograd.whether_gradients_are_on needs (milestone 2): hyper_conformance"
    )
    assert f"the harness their_harness:Early {needs}.Harness says what it does" in output


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "which platform? pytest --pyargs hyper_conformance --platform NAME"),
        (["--platform", "none_such"], "no harness for platform 'none_such': installed are"),
        (["--platform", "their_harness:NoneSuch"], "has no attribute 'NoneSuch'"),
        (
            ["--platform", "their_harness:Idle"],
            "skips of simulated that name no case of it: hooks.no_such_case",
        ),
        (["--platform", "their_harness:Vague"], "must say one of ('to do', 'impossible on this platform')"),
    ],
)
def test_what_it_cannot_run_it_says(tmp_path: Path, options: list[str], says: str) -> None:
    code, output = run(tmp_path, *options)
    assert code != 0
    assert says in output


def test_dtypes_that_a_platform_lacks_do_not_apply() -> None:
    harness = find_harness(SIMULATED)
    names = {case.name for case in cases_of(harness)}
    assert "collectives.all_gather[f32]" in names
    assert "collectives.all_gather[bf16]" in load_cases()
    assert "collectives.all_gather[bf16]" not in names


def test_patterns_of_skips_take_brackets_literally() -> None:
    harness, cases = find_harness(SIMULATED), load_cases()
    assert skip_of(harness, cases["local_ops.values[einsum]"]) is not None
    assert skip_of(harness, cases["local_ops.values[exp]"]) is None


def test_the_summary_counts_by_platform_and_milestone() -> None:
    lines = summary(
        [
            ("passed", Outcome("mine", 1, "a.b", 2, "", "")),
            ("passed", Outcome("mine", 1, "a.b", 4, "", "")),
            ("failed", Outcome("mine", 2, "c.d", 2, "", "")),
            ("skipped", Outcome("mine", 2, "e.f", 2, "to do", "not yet")),
            ("skipped", Outcome("mine", 2, "e.f", 4, "to do", "not yet")),
        ]
    )
    assert lines == [
        "mine: milestone 1 (processes, tensors, collectives) passed: 2 passed",
        "mine: milestone 2 (gradients and dispatch) NOT PASSED: 1 failed, 2 skipped",
        "",
        "platform  case  why    reason",
        "mine      e.f   to do  not yet",
    ]
