"""``hyper-parallel layout``: which rank holds which part of a tensor."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Annotated, Optional

import typer

from hyper_layout import Layout, format_layout
from hyper_parallel.commands.arguments import DTYPE, ITEMSIZES, MESH, SHAPE, laid_out, mesh_text
from hyper_parallel.commands.blocks import coordinates_text, slice_text
from hyper_parallel.commands.picture import check_path, draw
from hyper_parallel.commands.refusal import refusals
from hyper_parallel.commands.tables import show_table

__all__ = ["layout"]


def layout(
    mesh: MESH,
    shape: SHAPE,
    placements: Annotated[
        str,
        typer.Option(
            metavar="PLACEMENT,...",
            help="One per mesh axis: R, S(dim), SS(dim, split_factor), P, P(avg) ...; or dp:S(0) tp:R.",
        ),
    ],
    dtype: DTYPE = None,
    picture: Annotated[
        Optional[Path],  # noqa: UP045  # typer reads annotations at run time
        typer.Option(metavar="FILE", parser=check_path, help="Draw it: a file ending in .png or .svg."),
    ] = None,
) -> None:
    """Show which rank holds what.

    Per rank: its coordinates on the mesh, its slice of the tensor, and the shape of that.

    For example: hyper-parallel layout --mesh dp=2,tp=4 --shape 8,16 --placements "S(0),S(1)" --dtype bf16
    """
    with refusals():
        found = laid_out(placements, mesh, shape, "'--placements'")
        local_shape = found.local_shape(shape)
    what = format_layout(dtype, shape, found) if dtype else f"{_sizes(shape)} {found.notation}"
    copies = f"; {found.repeat_num} ranks hold each block" if found.repeat_num > 1 else ""
    typer.echo(f"{what} on {mesh_text(mesh)}{copies}")
    columns = ["rank", "coordinates", "slice", "local shape"]
    columns += ["bytes"] if dtype else []
    columns += ["addend of"] if any(found.partial) else []
    size = prod(local_shape) * ITEMSIZES[dtype] if dtype else 0
    show_table(
        columns,
        [
            [
                str(rank),
                coordinates_text(found, rank),
                slice_text(found, shape, rank),
                _sizes(local_shape),
                *([str(size)] if dtype else []),
                *([_addend(found)] if any(found.partial) else []),
            ]
            for rank in mesh.rank_list
        ],
    )
    if picture is not None:
        with refusals():
            draw(found, shape, what, picture)
        typer.echo(f"drawn in {picture}")


def _sizes(shape: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, shape))}]"


def _addend(layout: Layout) -> str:
    """What a Partial's local values are not yet: ``sum over tp``."""
    names = layout.mesh.mesh_dim_names
    return ", ".join(f"{op} over {name}" for name, op in zip(names, layout.partial, strict=True) if op)
