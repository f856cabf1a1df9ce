"""Tables on the terminal; piped, they are as wide as they need, so that other programs can read them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["show_table"]

UNLIMITED = 100_000


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table of plain text."""
    table = Table(*columns, box=None, padding=(0, 3, 0, 0))
    for cells in rows:
        table.add_row(*map(Text, cells))
    console = Console(width=None if sys.stdout.isatty() else UNLIMITED, highlight=False)
    with console.capture() as capture:
        console.print(table)
    typer.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))
