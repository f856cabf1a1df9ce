"""Times ours beside plain tensors and torch.distributed.tensor: ``python -m benchmarks.dispatch``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import torch
import typer

from benchmarks import blocks, command, conversions, imports, operator_cases, optimizer, report
from benchmarks.case import OURS, PLAIN, TORCH, Bound, Case, Quantity
from benchmarks.libraries import Ours, Plain, TorchDTensor, start
from benchmarks.operators import ON_NEW_OPERANDS, OPERATORS
from benchmarks.targets import no_framework, targets
from benchmarks.timing import Pace

LIBRARIES = (PLAIN, TORCH, OURS)
IMPORT_REPEATS, QUICK_IMPORT_REPEATS = 5, 1


def cases(plain: Plain, theirs: TorchDTensor, ours: Ours) -> Iterator[Case]:
    """Everything but imports. First uses come first, because all that follows uses the operators."""
    libraries = (plain, theirs, ours)
    yield from operator_cases.first_uses(libraries, OPERATORS)
    yield from operator_cases.repeated(libraries, OPERATORS, Bound(Quantity.OVERHEAD, 0.8))
    yield from operator_cases.new_operands(libraries, ON_NEW_OPERANDS)
    yield from operator_cases.first_calls(libraries, OPERATORS, Bound(Quantity.OVER_TORCH, 0.1))
    yield from conversions.conversions(theirs, ours)
    yield from blocks.blocks(theirs, ours)
    yield optimizer.adamw(libraries)


def main(
    only: command.Only = "",
    rounds: command.Rounds = Pace.rounds,
    quick: command.Quick = False,
    json: command.Json = None,
    compare: command.Compare = None,
    check: Annotated[bool, typer.Option(help="Fail if a target is missed.")] = False,
) -> None:
    """Times ours beside plain tensors and torch.distributed.tensor, on one thread, with free collectives."""
    pace, console = command.pace_of(rounds, quick), command.make_console()
    results = command.measure_cases(cases(*start()), only, pace, console, torch.set_grad_enabled, LIBRARIES)
    kept = []
    if command.wanted(only, imports.IMPORT, imports.FACADE):
        imported, frameworks = imports.imports(QUICK_IMPORT_REPEATS if quick else IMPORT_REPEATS)
        report.print_results(console, imported, LIBRARIES)
        results += imported
        kept.append(no_framework(frameworks))
    if not results:
        raise command.nothing_named(only)
    kept = [*targets(results), *kept]
    report.print_targets(console, kept)
    if compare is not None:
        report.print_comparison(console, results, compare, LIBRARIES)
    if json is not None:
        report.write_json(json, results, kept, pace, "torch")
    if check and not all(target.met for target in kept):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
