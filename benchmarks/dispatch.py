"""Times ours beside plain tensors and torch.distributed.tensor: ``python -m benchmarks.dispatch``."""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from benchmarks import blocks, conversions, imports, operator_cases, optimizer, report
from benchmarks.case import Case, Result
from benchmarks.libraries import Ours, Plain, TorchDTensor, start
from benchmarks.targets import no_framework, targets
from benchmarks.timing import Pace, measure, measure_once

QUICK = Pace(rounds=10, slice_seconds=100e-6, case_seconds=0.2)
WIDTH = 160
IMPORT_REPEATS, QUICK_IMPORT_REPEATS = 5, 1


def cases(plain: Plain, theirs: TorchDTensor, ours: Ours) -> Iterator[Case]:
    """Everything but imports. First uses come first, because all that follows uses the operators."""
    libraries = (plain, theirs, ours)
    yield from operator_cases.first_uses(libraries)
    yield from operator_cases.repeated(libraries)
    yield from operator_cases.new_operands(libraries)
    yield from operator_cases.first_calls(libraries)
    yield from conversions.conversions(theirs, ours)
    yield from blocks.blocks(theirs, ours)
    yield optimizer.adamw(libraries)


def run(case: Case, pace: Pace) -> Result:
    """Times one case."""
    with torch.set_grad_enabled(case.grad):
        if case.once:
            samples = measure_once(case.sides)
        else:
            samples = measure(case.sides, pace, one_call=case.one_call, warm=case.warm)
    return Result(case.group, case.name, samples, case.bound, case.note)


def main(
    only: Annotated[str, typer.Option(help="Part of 'group/case', with * and ?: what to measure.")] = "",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each case.")] = Pace.rounds,
    quick: Annotated[bool, typer.Option(help="Few short rounds, to see that it runs.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write everything into this file.")] = None,
    compare: Annotated[Path | None, typer.Option(exists=True, help="An earlier JSON file.")] = None,
    check: Annotated[bool, typer.Option(help="Fail if a target is missed.")] = False,
) -> None:
    """Times ours beside plain tensors and torch.distributed.tensor, on one thread, with free collectives."""
    pace = QUICK if quick else Pace(rounds=rounds)
    console = Console(width=WIDTH)

    def wanted(group: str, name: str) -> bool:
        return fnmatch.fnmatchcase(f"{group}/{name}", f"*{only}*")

    results: list[Result] = []
    chosen = (case for case in cases(*start()) if wanted(case.group, case.name))
    for _, group in itertools.groupby(chosen, lambda case: case.group):
        of_group = [run(case, pace) for case in group]
        report.print_results(console, of_group)
        results += of_group
    kept = []
    if wanted(imports.IMPORT, imports.FACADE):
        imported, frameworks = imports.imports(QUICK_IMPORT_REPEATS if quick else IMPORT_REPEATS)
        report.print_results(console, imported)
        results += imported
        kept.append(no_framework(frameworks))
    if not results:
        raise typer.BadParameter(f"nothing is named like {only!r}", param_hint="--only")
    kept = [*targets(results), *kept]
    report.print_targets(console, kept)
    if compare is not None:
        report.print_comparison(console, results, compare)
    if json is not None:
        report.write_json(json, results, kept, pace)
    if check and not all(target.met for target in kept):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
