"""The command line: what is installed here, which operators there are, and how tensors lie on a mesh."""

from __future__ import annotations

import typer

from hyper_parallel.commands import info, layout, ops, plan

app = typer.Typer(
    help="Distributed tensors and tensor parallelism with single-device results.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(info.info)
app.command()(ops.ops)
app.command()(layout.layout)
app.command()(plan.plan)
