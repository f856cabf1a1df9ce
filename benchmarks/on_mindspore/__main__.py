"""Times ours beside plain tensors under MindSpore: ``python -m benchmarks.on_mindspore``."""

from __future__ import annotations

import os

# One thread, and none of MindSpore's own warnings between the tables.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GLOG_v", "3")

import dataclasses
from collections.abc import Iterator

import typer

from benchmarks import command, operator_cases, report
from benchmarks.case import OURS, PLAIN, Case
from benchmarks.on_mindspore.blocks import blocks
from benchmarks.on_mindspore.conversions import conversions
from benchmarks.on_mindspore.libraries import (
    INTERCEPTED,
    Intercepted,
    Ours,
    Plain,
    gradients,
    side_by_side,
    start,
)
from benchmarks.on_mindspore.operators import ON_NEW_OPERANDS, OPERATORS
from benchmarks.timing import Pace

LIBRARIES = (PLAIN, INTERCEPTED, OURS)


def cases(plain: Plain, intercepted: Intercepted, ours: Ours) -> Iterator[Case]:
    """Everything. First uses come first, because all that follows uses the operators."""
    libraries = (plain, intercepted, ours)
    yield from operator_cases.first_uses(libraries, OPERATORS)
    yield from operator_cases.repeated(libraries, OPERATORS)
    yield from operator_cases.new_operands(libraries, ON_NEW_OPERANDS)
    yield from operator_cases.first_calls(libraries, OPERATORS)
    yield from conversions(ours)
    yield from blocks(ours)


def main(
    only: command.Only = "",
    rounds: command.Rounds = Pace.rounds,
    quick: command.Quick = False,
    json: command.Json = None,
    compare: command.Compare = None,
) -> None:
    """Times ours beside plain tensors and beside bare interception, with free collectives."""
    pace, console = command.pace_of(rounds, quick), command.make_console()
    beside = (dataclasses.replace(case, sides=side_by_side(case.sides)) for case in cases(*start()))
    results = command.measure_cases(beside, only, pace, console, gradients, LIBRARIES)
    if not results:
        raise command.nothing_named(only)
    if compare is not None:
        report.print_comparison(console, results, compare, LIBRARIES)
    if json is not None:
        report.write_json(json, results, [], pace, "mindspore")


if __name__ == "__main__":
    typer.run(main)
