"""Tables and JSON."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.case import TORCH, Quantity, Result
from benchmarks.targets import Target
from benchmarks.timing import Pace, Sample

__all__ = ["print_comparison", "print_results", "print_targets", "write_json"]


def print_results(console: Console, results: Sequence[Result], libraries: Sequence[str]) -> None:
    """One table per group: medians and spreads in microseconds, how they compare, and what is bounded."""
    for group in dict.fromkeys(result.group for result in results):
        table = Table(title=group, title_justify="left", box=box.SIMPLE_HEAD)
        table.add_column("case", no_wrap=True)
        compared = Quantity.OVERHEAD if TORCH in libraries else Quantity.OVER_PLAIN
        for column in (*(f"{name} us" for name in libraries), compared, "measured", "bound"):
            table.add_column(column, justify="right", no_wrap=True)
        table.add_column("met")
        of_group = [result for result in results if result.group == group]
        for result in of_group:
            table.add_row(
                result.name,
                *(_cell(result.samples.get(name)) for name in libraries),
                _ratio(result.value(compared)),
                *_bound(result),
            )
        console.print(table)
        for note in dict.fromkeys(result.note for result in of_group if result.note):
            about = [result.name for result in of_group if result.note == note]
            console.print(f"  {'all' if len(about) == len(of_group) else ', '.join(about)}: {note}")


def print_targets(console: Console, targets: Sequence[Target]) -> None:
    """One row per promise."""
    table = Table("target", title="targets", title_justify="left", box=box.SIMPLE_HEAD)
    for column in ("measured", "at most"):
        table.add_column(column, justify="right")
    table.add_column("met")
    table.add_column("worst case")
    for target in targets:
        table.add_row(
            target.name, f"{target.value:.2f}", f"{target.most:g}", _verdict(target.met), target.worst
        )
    console.print(table)


def print_comparison(
    console: Console, results: Sequence[Result], path: Path, libraries: Sequence[str]
) -> None:
    """The medians as multiples of those that ``path`` holds."""
    earlier = json.loads(path.read_text())
    medians = {
        (result["group"], result["name"], library): sample["median"]
        for result in earlier["results"]
        for library, sample in result["samples"].items()
    }
    title = f"now / then ({earlier['date']})"
    table = Table("group", "case", title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for library in libraries:
        table.add_column(library, justify="right")
    for result in results:
        cells = []
        for library in libraries:
            then = medians.get((result.group, result.name, library))
            now = result.samples.get(library)
            cells.append(f"{now.median / then:.2f}" if now is not None and then else "-")
        table.add_row(result.group, result.name, *cells)
    console.print(table)


def write_json(
    path: Path, results: Sequence[Result], targets: Sequence[Target], pace: Pace, framework: str
) -> None:
    """Everything that was measured, and where."""
    content = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {
            "system": platform.platform(),
            "processor": platform.processor() or platform.machine(),
            "cpus": os.cpu_count(),
            "load": os.getloadavg(),
        },
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in (framework, "hyper-parallel")},
        },
        "pace": asdict(pace),
        "results": [_result(result) for result in results],
        "targets": [{**asdict(target), "met": target.met} for target in targets],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def _result(result: Result) -> dict[str, Any]:
    return {**asdict(result), "overhead": result.overhead, "met": result.met}


def _cell(sample: Sample | None) -> str:
    if sample is None:
        return "-"
    median, p10, p90 = (_digits(value) for value in (sample.median, sample.p10, sample.p90))
    return median if sample.rounds == 1 else f"{median} ({p10}-{p90})"


def _digits(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _bound(result: Result) -> tuple[str, str, str]:
    """The bounded quantity, its bound, verdict."""
    if result.bound is None:
        return "", "", ""
    bound = f"{result.bound.quantity} <= {result.bound.most:g}"
    return _ratio(result.value(result.bound.quantity)), bound, _verdict(bool(result.met))


def _verdict(met: bool) -> str:
    return "yes" if met else "NO"
