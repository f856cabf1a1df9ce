"""``hyper-parallel plan``: what a redistribution sends."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from hyper_layout import LOCAL_KINDS, Step, format_layout
from hyper_layout import plan as plan_steps
from hyper_parallel.commands.arguments import DTYPE, ITEMSIZES, MESH, SHAPE, laid_out, mesh_text
from hyper_parallel.commands.refusal import refusals, refuse
from hyper_parallel.commands.tables import show_table

__all__ = ["plan"]

DEFAULT = "f32"
MOST_AXES = 6
PLACEMENTS = "One placement per mesh axis: S(0),R or dp:S(0) tp:R."


def plan(
    src: Annotated[str, typer.Argument(metavar="SRC", help=PLACEMENTS)],
    dst: Annotated[str, typer.Argument(metavar="DST", help=PLACEMENTS)],
    mesh: MESH,
    shape: SHAPE,
    dtype: DTYPE = None,
    itemsize: Annotated[
        Optional[int],  # noqa: UP045  # typer reads annotations at run time
        typer.Option(
            min=1,
            metavar="BYTES",
            help=f"Bytes of an element, instead of a dtype. Without either: {DEFAULT}.",
        ),
    ] = None,
) -> None:
    """Show what a redistribution sends.

    These are the cheapest steps from one layout to another, with the bytes that each rank receives.

    For example: hyper-parallel plan "S(0),P" "S(0),S(1)" --mesh dp=2,tp=4 --shape 8,16
    """
    if dtype is not None and itemsize is not None:
        raise typer.BadParameter("a dtype says the bytes of an element: give --dtype or --itemsize, not both")
    element, size = (
        (f"{itemsize}B", itemsize)
        if itemsize is not None
        else (dtype or DEFAULT, ITEMSIZES[dtype or DEFAULT])
    )
    with refusals():
        source = laid_out(src, mesh, shape, "'SRC'")
        goal = laid_out(dst, mesh, shape, "'DST'")
        moved = mesh.ndim - (source.replicate_axes & goal.replicate_axes).bit_count()
        if moved > MOST_AXES:
            raise refuse(
                f"{moved} mesh axes take part; the ways over more than {MOST_AXES} are too many to search"
            )
        steps = plan_steps(source, goal, shape, size)
    typer.echo(f"{format_layout(element, shape, source)} -> {goal.notation} on {mesh_text(mesh)}")
    if not steps:
        typer.echo("nothing to do: both are one layout")
        return
    sizes = mesh.mesh_shape
    rows = [
        [
            str(number),
            step.kind,
            f"{mesh.mesh_dim_names[step.axis]} (size {sizes[step.axis]})",
            _change(step),
            str(step.bytes),
            step.layout.notation,
        ]
        for number, step in enumerate(steps, 1)
    ]
    show_table(["step", "kind", "mesh axis", "there", "bytes received", "layout after it"], rows)
    # On an axis of size 1 a collective is the identity.
    sending = sum(step.kind not in LOCAL_KINDS and sizes[step.axis] > 1 for step in steps)
    total = sum(step.bytes for step in steps)
    collectives = f"{sending} collective{'' if sending == 1 else 's'}"
    typer.echo(f"total: each rank receives {total} bytes in {collectives}")


def _change(step: Step) -> str:
    """What becomes of the placement on the axis: ``P(sum) -> S(1)``."""
    dim, to_dim, partial = f"S({step.dim})", f"S({step.to_dim})", f"P({step.reduce_op})"
    return {
        "all_gather": f"{dim} -> R",
        "all_reduce": f"{partial} -> R",
        "reduce_scatter": f"{partial} -> {dim}",
        "all_to_all": f"{dim} -> {to_dim}",
        "slice": f"R -> {dim}",
        "to_partial": f"R -> {partial}",
    }[step.kind]
