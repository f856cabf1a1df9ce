"""What the benchmarks of all frameworks share: options, the loop over cases, the end."""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.console import Console

from benchmarks.case import Case, Result
from benchmarks.report import print_results
from benchmarks.timing import Pace, measure, measure_once

__all__ = [
    "Compare", "Json", "Only", "Quick", "Rounds",
    "make_console", "measure_cases", "nothing_named", "pace_of", "wanted",
]  # fmt: skip

Only: TypeAlias = Annotated[str, typer.Option(help="Part of 'group/case', with * and ?: what to measure.")]
Rounds: TypeAlias = Annotated[int, typer.Option(min=1, help="Rounds of each case.")]
Quick: TypeAlias = Annotated[bool, typer.Option(help="Few short rounds, to see that it runs.")]
Json: TypeAlias = Annotated[Path | None, typer.Option(help="Write everything into this file.")]
Compare: TypeAlias = Annotated[Path | None, typer.Option(exists=True, help="An earlier JSON file.")]

QUICK = Pace(rounds=10, slice_seconds=100e-6, case_seconds=0.2)
WIDTH = 160


def pace_of(rounds: int, quick: bool) -> Pace:
    """How long to measure."""
    return QUICK if quick else Pace(rounds=rounds)


def make_console() -> Console:
    """As wide as the tables."""
    return Console(width=WIDTH)


def wanted(only: str, group: str, name: str) -> bool:
    """Whether ``--only`` names this case."""
    return fnmatch.fnmatchcase(f"{group}/{name}", f"*{only}*")


def nothing_named(only: str) -> typer.BadParameter:
    """The error where ``--only`` names nothing."""
    return typer.BadParameter(f"nothing is named like {only!r}", param_hint="--only")


def measure_cases(
    cases: Iterable[Case],
    only: str,
    pace: Pace,
    console: Console,
    gradients: Callable[[bool], AbstractContextManager[object]],
    libraries: Sequence[str],
) -> list[Result]:
    """Times the cases that are wanted, and prints each group when it is done.

    Args:
        cases: All cases, a group after the other.
        only: Which of them.
        pace: How long.
        console: Where to print.
        gradients: Turns gradients on or off.
        libraries: The columns of the report.
    """
    results: list[Result] = []
    chosen = (case for case in cases if wanted(only, case.group, case.name))
    for _, group in itertools.groupby(chosen, lambda case: case.group):
        of_group = [_run(case, pace, gradients) for case in group]
        print_results(console, of_group, libraries)
        results += of_group
    return results


def _run(case: Case, pace: Pace, gradients: Callable[[bool], AbstractContextManager[object]]) -> Result:
    with gradients(case.grad):
        if case.once:
            samples = measure_once(case.sides)
        else:
            samples = measure(case.sides, pace, one_call=case.one_call, warm=case.warm)
    return Result(case.group, case.name, samples, case.bound, case.note)
