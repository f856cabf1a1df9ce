"""Which part of a tensor a pickled DTensor is: it must not be taken for the part of another rank.

A file that one rank saved and every rank loads is common in programs whose ranks hold equal models. Of a
tensor that is split, each rank would get the same piece, without an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from hyper_dtensor.platform import get_platform
from hyper_layout import Layout, LayoutError

__all__ = ["check_part", "part_of"]

T = TypeVar("T")


def part_of(layout: Layout) -> tuple[int, ...] | None:
    """Where this rank is on the mesh axes that are not Replicate, in their order.

    Returns:
        None in a world of one process, which may hold the part of any rank: nothing is known of it.
    """
    if get_platform().world_size() == 1:
        return None
    coordinate = layout.mesh.get_coordinate()
    return None if coordinate is None else tuple(_of_divided_axes(layout, coordinate))


def check_part(layout: Layout, part: tuple[int, ...] | None) -> None:
    """Refuse a part that is not this rank's.

    Args:
        layout: The layout of the tensor.
        part: What `part_of` said where it was pickled.

    Raises:
        LayoutError: If this process is one of several and holds another part; says what to do.
    """
    if part is None or get_platform().world_size() == 1:
        return
    mine = part_of(layout)
    if mine != part:
        where = "is not on this mesh" if mine is None else f"holds part {_shown(layout, mine)}"
        raise LayoutError(
            f"this is part {_shown(layout, part)} of a tensor laid out as {layout.notation}, and this rank "
            f"{where}: a DTensor is pickled as the part of one rank. Let every rank save and load a file of "
            "its own, or save what full_tensor() returns (every rank calls it) and distribute_tensor that "
            "when it is loaded"
        )


def _of_divided_axes(layout: Layout, of_each_axis: Iterable[T]) -> Iterator[T]:
    return (each for axis, each in enumerate(of_each_axis) if not layout.replicate_axes >> axis & 1)


def _shown(layout: Layout, part: tuple[int, ...]) -> str:
    axes = _of_divided_axes(layout, layout.mesh.mesh_dim_names)
    return ", ".join(f"{axis}={place}" for axis, place in zip(axes, part, strict=True))
