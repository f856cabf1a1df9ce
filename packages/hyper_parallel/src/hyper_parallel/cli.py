"""The command line: what is installed here, and which operators there are."""

from __future__ import annotations

import platform as machine
from importlib.metadata import PackageNotFoundError, entry_points, version
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hyper_dispatch import RegistryError, find_op, op_names
from hyper_dtensor import get_platform
from hyper_dtensor.platform import ENTRY_POINT_GROUP
from hyper_ops import load_ops
from hyper_ops.support_table import support_table

# An entry point's name is the framework's import name; these distributions are what a report needs.
DISTRIBUTIONS = ("hyper-parallel", "torch", "torch_npu", "mindspore", "numpy")

app = typer.Typer(
    help="Distributed tensors and tensor parallelism with single-device results.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command()
def info() -> None:
    """Show versions, the installed platform adapters and which of them is used here."""
    table = Table("what", "value", title="hyper_parallel")
    table.add_row("python", machine.python_version())
    for distribution in DISTRIBUTIONS:
        table.add_row(distribution, _version(distribution))
    names = sorted(point.name for point in entry_points(group=ENTRY_POINT_GROUP))
    table.add_row("platforms installed", ", ".join(names) or "none")
    table.add_row("platform used", _chosen_platform())
    Console().print(table)


@app.command()
def ops(
    markdown: Annotated[
        bool, typer.Option(help="Print docs/operators.md: the rules of all families.")
    ] = False,
) -> None:
    """List the registered operators and the strategy that lays out each."""
    if markdown:
        typer.echo(support_table(), nl=False)
        return
    load_ops()
    try:
        rows = [(name, _strategy(name)) for name in op_names()]
    except RegistryError as error:  # in the user's own registrations
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    table = Table("operator", "strategy", title=f"{len(rows)} operators")
    for name, strategy in rows:
        table.add_row(name, strategy)
    Console().print(table)


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"


def _chosen_platform() -> str:
    """The platform's name, or why there is none: a report must not fail where it is needed most."""
    try:
        return get_platform().name
    except (RuntimeError, ValueError, ImportError) as error:  # NotImplementedError is a RuntimeError
        return str(error)


def _strategy(name: str) -> str:
    """The class that lays out ``name``; an operator on the white list runs on locals as it is."""
    strategy = find_op(name)
    return "runs on locals" if strategy is None else type(strategy).__name__
