"""The command line: what is installed here, which operators there are, and how tensors lie on a mesh."""

from __future__ import annotations

from importlib.metadata import version as version_of
from typing import Annotated

import typer

from hyper_parallel.commands import info, layout, ops, plan

app = typer.Typer(
    help="Distributed tensors and tensor parallelism with single-device results.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hyper-parallel {version_of('hyper-parallel')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Take the options that stand before a command."""


app.command()(info.info)
app.command()(ops.ops)
app.command()(layout.layout)
app.command()(plan.plan)
