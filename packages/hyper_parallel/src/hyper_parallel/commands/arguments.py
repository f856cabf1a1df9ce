"""The arguments of `layout` and `plan`: a mesh, a shape, a dtype and placements, as text.

A callback's ``typer.BadParameter`` is a usage error: exit code 2, with the usage and what was wrong.
"""

from __future__ import annotations

import re
from math import prod
from typing import Annotated, Any, Final, Optional

import typer

from hyper_layout import DeviceMesh, Layout, LayoutError, parse_placements

__all__ = ["DTYPE", "ITEMSIZES", "MESH", "SHAPE", "laid_out", "mesh_text"]

ITEMSIZES: Final = {
    "f64": 8,
    "f32": 4,
    "f16": 2,
    "bf16": 2,
    "i64": 8,
    "i32": 4,
    "i16": 2,
    "i8": 1,
    "u8": 1,
    "b": 1,
    "c64": 8,
    "c128": 16,
}
"""Bytes per element of the short dtype names."""
LONG_NAMES: Final = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "bool": "b",
    "complex64": "c64",
    "complex128": "c128",
}
MOST_RANKS: Final = 4096
"""Beyond this the answers are longer than anybody reads."""
_AXIS: Final = re.compile(r"\s*(\w+)\s*=\s*(\d+)\s*")
_SHORT: Final = {"Shard": "S", "StridedShard": "SS", "Replicate": "R", "Partial": "P"}
_LONG_PLACEMENT: Final = re.compile(rf"\b({'|'.join(_SHORT)})\b(?!:)(\([^()]*\))?")
_NO_VALUE: Final = re.compile(r"\w+=|[\"']")
"""The name of an argument, and quotes."""


def _mesh(text: str) -> DeviceMesh:
    axes = [_AXIS.fullmatch(part) for part in text.split(",")]
    found = [axis.groups() for axis in axes if axis is not None]
    if len(found) < len(axes):
        raise typer.BadParameter(f"{text!r} is no mesh: write each axis with its size, such as dp=2,tp=4")
    names, sizes = [name for name, _ in found], [int(size) for _, size in found]
    if prod(sizes) > MOST_RANKS:
        raise typer.BadParameter(f"{text!r} has {prod(sizes)} ranks; at most {MOST_RANKS} are shown")
    try:
        return DeviceMesh("cpu", sizes, names)
    except LayoutError as error:
        raise typer.BadParameter(str(error)) from None


def _shape(text: str) -> tuple[int, ...]:
    inner = text.strip()
    if not inner:
        raise typer.BadParameter(
            f"{text!r} is no shape: write the sizes of all dims, such as 8,16; that of a scalar is ()"
        )
    if inner[:1] + inner[-1:] in ("()", "[]"):  # as Python and this program print it
        inner = inner[1:-1].strip()
    parts = inner.removesuffix(",").split(",") if inner else []
    if not all(part.strip().isdecimal() for part in parts):
        raise typer.BadParameter(f"{text!r} is no shape: write the sizes of all dims, such as 8,16")
    return tuple(map(int, parts))


def _dtype(text: str) -> str:
    name = LONG_NAMES.get(text, text)
    if name not in ITEMSIZES:
        known = ", ".join(ITEMSIZES)
        raise typer.BadParameter(f"{text!r} is no dtype: write one of {known}, or its long name (float32)")
    return name


# The types that typer sees; `parser` makes the value.
MESH = Annotated[
    DeviceMesh,
    typer.Option("--mesh", parser=_mesh, metavar="AXIS=SIZE,...", help="The mesh, such as dp=2,tp=4."),
]
SHAPE = Annotated[
    Any,  # a tuple of sizes; typer would take a tuple for several values
    typer.Option("--shape", parser=_shape, metavar="SIZE,...", help="The global shape, such as 8,16."),
]
DTYPE = Annotated[
    Optional[str],  # noqa: UP045  # typer reads annotations at run time
    typer.Option(
        "--dtype", parser=_dtype, metavar="DTYPE", help="Such as bf16 or float32; it gives the bytes."
    ),
]


def laid_out(text: str, mesh: DeviceMesh, shape: tuple[int, ...], hint: str) -> Layout:
    """The layout of placements given as text.

    Args:
        text: ``S(0),R`` or ``dp:S(0) tp:R``; ``Shard(0)`` for ``S(0)``, and so on.
        mesh: The mesh.
        shape: The global shape.
        hint: The name of the argument, for messages.

    Raises:
        typer.BadParameter: If the text cannot be read.
        LayoutError: If the layout does not fit the mesh or the shape.
    """
    try:
        placements = parse_placements(_shortened(text), mesh)
    except LayoutError as error:
        raise typer.BadParameter(str(error), param_hint=hint) from None
    layout = Layout.from_placements(mesh, placements, len(shape))
    layout.check_even(shape)
    return layout


def _shortened(text: str) -> str:
    """Placements as Python writes them, in the notation: ``Partial('avg')`` is ``P(avg)``."""
    return _LONG_PLACEMENT.sub(
        lambda found: _SHORT[found[1]] + _NO_VALUE.sub("", found[2] or "").replace("()", ""), text
    )


def mesh_text(mesh: DeviceMesh) -> str:
    """The mesh as it is written: ``dp=2,tp=4``."""
    return ",".join(f"{name}={size}" for name, size in zip(mesh.mesh_dim_names, mesh.mesh_shape, strict=True))
