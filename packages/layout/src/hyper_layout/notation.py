"""The one notation of layouts, printed and parsed: ``f32[8,16] dp:S(0) tp:P(sum)``.

A tensor is a short dtype name and its global shape; then comes each mesh axis with its placement: ``R``,
``S(dim)``, ``SS(dim, split_factor)`` or ``P(reduce_op)``. Placements alone may also be listed in the order of
the axes: ``S(0),P(sum)``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from hyper_layout.errors import LayoutError
from hyper_layout.layout import Layout
from hyper_layout.mesh import DeviceMesh
from hyper_layout.placement import Placement, parse_placement

_TENSOR: Final = re.compile(r"(\w+)\[((?:\d+(?:, ?\d+)*)?)\](?:\s+|$)")
_COMMA: Final = re.compile(r",(?![^()]*\))")  # not those inside of parentheses
_AXIS: Final = re.compile(r"(\w+):([A-Z]+(?:\([^()]*\))?)(?:\s+|$)")


def format_layout(dtype: str, shape: Sequence[int], layout: Layout) -> str:
    """Prints a tensor's type, shape and layout.

    Args:
        dtype: A short dtype name, such as ``f32``.
        shape: The global shape, of the rank of the layout.
        layout: The layout.

    Returns:
        Text such as ``f32[8,16] dp:S(0) tp:P(sum)``, which ``parse_layout`` reads.
    """
    return f"{dtype}[{','.join(map(str, shape))}] {layout.notation}"


def parse_layout(text: str, mesh: DeviceMesh) -> tuple[str, tuple[int, ...], Layout]:
    """Reads what ``format_layout`` prints.

    Args:
        text: Text such as ``f32[8,16] dp:S(0) tp:P(sum)``; the axes may stand in any order.
        mesh: The mesh that has these axes.

    Returns:
        The short dtype name, the global shape and the layout.

    Raises:
        LayoutError: If the text is not of that form, or does not name each axis of the mesh exactly once.
    """
    text = text.strip()
    head = _TENSOR.match(text)
    if head is None:
        raise LayoutError(f"{text!r} does not begin with a dtype and a shape, such as 'f32[8,16]'")
    shape = tuple(map(int, head[2].split(","))) if head[2] else ()
    return head[1], shape, Layout.from_placements(mesh, _by_axis(text, head.end(), mesh), len(shape))


def parse_placements(text: str, mesh: DeviceMesh) -> tuple[Placement, ...]:
    """Reads placements, by axis (``dp:S(0) tp:P(sum)``) or listed in the order of the axes (``S(0),P(sum)``).

    Args:
        text: The placements; ``P`` stands for ``P(sum)``.
        mesh: The mesh that has these axes.

    Returns:
        The placements. Whether a list has one per mesh axis is for `Layout` to see.

    Raises:
        LayoutError: If the text is of neither form, or names the axes of the mesh, but not each exactly once.
    """
    text = text.strip()
    if ":" in text:
        return _by_axis(text, 0, mesh)
    return tuple(parse_placement(part.strip()) for part in _COMMA.split(text))


def _by_axis(text: str, place: int, mesh: DeviceMesh) -> tuple[Placement, ...]:
    """The placements that ``text`` names from ``place`` on."""
    placements: dict[int, Placement] = {}
    while place < len(text):
        entry = _AXIS.match(text, place)
        if entry is None:
            raise LayoutError(f"{text!r}: {text[place:]!r} does not begin with an axis, such as 'dp:S(0)'")
        axis = mesh.axis_index(entry[1])
        if axis in placements:
            raise LayoutError(f"{text!r} names mesh axis {entry[1]!r} twice")
        placements[axis] = parse_placement(entry[2])
        place = entry.end()
    missing = [name for axis, name in enumerate(mesh.mesh_dim_names) if axis not in placements]
    if missing:
        raise LayoutError(f"{text!r} says nothing of mesh axis {', '.join(map(repr, missing))}")
    return tuple(placements[axis] for axis in range(mesh.ndim))
