"""Which part of a tensor a pickled DTensor is: it must not be taken for the part of another rank.

A file that one rank saved and every rank loads is common in programs whose ranks hold equal models. Of a
tensor that is split, each rank would get the same piece, without an error.

A process that is alone may hold the parts of all ranks, to put them together. What it loaded is checked when
it becomes one of several; what it pickles itself is the part of nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from hyper_dtensor.platform import get_platform
from hyper_layout import Layout, LayoutError

__all__ = ["check_loaded", "check_part", "loaded_alone", "part_of"]

T = TypeVar("T")
Part = tuple[int, ...] | None

loaded_alone: set[tuple[Layout, Part]] = set()
"""What this process loaded while it was alone. Not the tensors, of which others may have been made."""


def part_of(layout: Layout) -> Part:
    """Where this rank is on the mesh axes that divide the tensor, in their order.

    Returns:
        None in a world of one process, or of a rank that is not on the mesh: the part of nobody.
    """
    if get_platform().world_size() == 1:
        return None
    coordinate = layout.mesh.get_coordinate()
    return None if coordinate is None else tuple(_of_divided_axes(layout, coordinate))


def check_part(layout: Layout, part: Part) -> None:
    """Refuse a part that is not this rank's.

    Args:
        layout: The layout of the tensor that was unpickled.
        part: What `part_of` said where it was pickled.

    Raises:
        LayoutError: If this process is one of several and holds another part; says what to do.
    """
    if not any(_of_divided_axes(layout, layout.mesh_shape)):
        return
    if get_platform().world_size() == 1:
        loaded_alone.add((layout, part))
        return
    mine = part_of(layout)
    if part is None or mine != part:
        own = "is not on its mesh" if mine is None else f"holds {_shown(layout, mine)}"
        raise LayoutError(
            f"this is {_shown(layout, part)} of a tensor laid out as {layout.notation}, and this rank {own}: "
            "a DTensor is pickled as the part of one rank. Let every rank save and load a file of its own, "
            "or save what full_tensor() returns (every rank calls it) and distribute_tensor that when loaded"
        )


def check_loaded() -> None:
    """Check what this process loaded while it was alone, if it is one of several now.

    Raises:
        LayoutError: As `check_part`; again at each call, because nobody knows what became of the tensors.
    """
    if get_platform().world_size() == 1:
        return
    for loaded in tuple(loaded_alone):
        try:
            check_part(*loaded)
        except LayoutError as error:
            raise LayoutError(
                f"{error}. It was loaded while this process was alone: load it when the processes have joined"
            ) from None
        loaded_alone.discard(loaded)


def _of_divided_axes(layout: Layout, of_each_axis: Iterable[T]) -> Iterator[T]:
    sizes = layout.mesh_shape
    return (
        each
        for axis, each in enumerate(of_each_axis)
        if sizes[axis] > 1 and not layout.replicate_axes >> axis & 1
    )


def _shown(layout: Layout, part: Part) -> str:
    if part is None:
        return "the part of nobody (pickled by a process that was alone, or not on the mesh)"
    axes = _of_divided_axes(layout, layout.mesh.mesh_dim_names)
    return "part " + ", ".join(f"{axis}={place}" for axis, place in zip(axes, part, strict=True))
