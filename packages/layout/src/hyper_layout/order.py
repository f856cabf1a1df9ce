"""The order of the mesh axes that split one tensor dim, in placements and as axes per dim.

Placements are one per mesh axis and say the order only implicitly. Read the axes from right to left:
``Shard(d)`` puts its axis in front of (outside) the axes right of it that split ``d``, so that
``Shard(0), Shard(0)`` cuts from left to right. ``StridedShard(d, f)`` puts its axis behind those of them
that come first and whose sizes multiply to ``f``. Each order has exactly one such text, except that an
axis of size 1 cuts nothing: it is always written ``Shard(d)``, which gives it its place.
"""

from __future__ import annotations

from math import prod

from hyper_layout.errors import LayoutError
from hyper_layout.mesh import DeviceMesh
from hyper_layout.placement import Partial, Placement, Replicate, Shard, StridedShard

DimAxes = tuple[tuple[int, ...], ...]
"""Per tensor dim the mesh axes that split it, major (outermost) first."""


def dim_axes_of(placements: tuple[Placement, ...], mesh: DeviceMesh, ndim: int) -> DimAxes:
    """Reads the order of the axes from placements.

    Args:
        placements: One per mesh axis, with dims from 0 to ``ndim - 1``.
        mesh: The mesh.
        ndim: The rank of the tensor.

    Raises:
        LayoutError: If a ``split_factor`` is not the product of the sizes of the first axes right of it.
    """
    axes: list[list[int]] = [[] for _ in range(ndim)]
    for axis in reversed(range(len(placements))):
        placement = placements[axis]
        if isinstance(placement, Shard):
            inner = axes[placement.dim]
            inner.insert(_place(placement, axis, inner, mesh), axis)
    return tuple(map(tuple, axes))


def placements_of(
    dim_axes: DimAxes, partial: tuple[str | None, ...], mesh: DeviceMesh
) -> tuple[Placement, ...]:
    """Writes the order of the axes as placements; the inverse of ``dim_axes_of``.

    Args:
        dim_axes: Per tensor dim the mesh axes that split it, major first; no axis twice.
        partial: Per mesh axis the reduce op it waits for, or None.
        mesh: The mesh.
    """
    sizes = mesh.mesh_shape
    placements: list[Placement] = [Replicate() if op is None else Partial(op) for op in partial]
    for dim, axes in enumerate(dim_axes):
        for position, axis in enumerate(axes):
            factor = prod(sizes[other] for other in axes[:position] if other > axis)
            strided = factor > 1 and sizes[axis] > 1
            placements[axis] = StridedShard(dim, factor) if strided else Shard(dim)
    return tuple(placements)


def canonical(dim_axes: DimAxes, mesh: DeviceMesh) -> DimAxes:
    """The same order with every axis of size 1 in the place that its placement gives it."""
    placements = placements_of(dim_axes, (None,) * mesh.ndim, mesh)
    return dim_axes_of(placements, mesh, len(dim_axes))


def _place(placement: Shard, axis: int, inner: list[int], mesh: DeviceMesh) -> int:
    """The position among the axes right of ``axis`` at which ``axis`` enters."""
    sizes, names = mesh.mesh_shape, mesh.mesh_dim_names
    factor = placement.split_factor if isinstance(placement, StridedShard) else 1
    reached, position = 1, 0
    while reached < factor and position < len(inner):
        reached *= sizes[inner[position]]
        position += 1
    if reached != factor:
        found = ", ".join(f"{names[other]!r} (size {sizes[other]})" for other in inner) or "no axis"
        raise LayoutError(
            f"{placement!r} on mesh axis {names[axis]!r}: right of it {found} splits dim {placement.dim}, "
            f"and the sizes of the first of these never multiply to {factor}"
        )
    # An axis of size 1 cuts nothing wherever it stands; one fixed place keeps equal layouts equal.
    return position if sizes[axis] > 1 else 0
