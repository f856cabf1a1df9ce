"""Which rank holds what another rank needs: a reshard between two layouts, which may be on different meshes.

`plan` moves a tensor within one mesh, by collectives. Between meshes (a checkpoint written with tp=2 that is
read with tp=4) there is no collective that all ranks share; what there is, is the overlap of every block that
is there with every block that is wanted. Pure arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from math import prod
from typing import TypeAlias

from hyper_layout.errors import LayoutError
from hyper_layout.layout import Layout

Region: TypeAlias = tuple[slice, ...]
"""A box of a tensor: one slice per dim."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """A piece that one rank holds and another one needs.

    Attributes:
        source: Rank of the old mesh that holds it.
        target: Rank of the new mesh that needs it.
        region: Where it lies in the whole tensor.
        source_region: Where it lies in the block of ``source``.
        target_region: Where it lies in the block of ``target``.
        bytes: Its size.
    """

    source: int
    target: int
    region: Region
    source_region: Region
    target_region: Region
    bytes: int


def transfers(src: Layout, dst: Layout, shape: Sequence[int], itemsize: int) -> tuple[Transfer, ...]:
    """The pieces from which each rank of ``dst`` puts its block together.

    Where several ranks of ``src`` hold the same block, a target that is one of them takes its own, and the
    others are served in turns. A transfer whose source is its target moves nothing between ranks.

    Args:
        src: The layout that the tensor has.
        dst: The wanted layout; its mesh may have other axes and other ranks.
        shape: The global shape.
        itemsize: The bytes of one element.

    Returns:
        The transfers, by target as its mesh lists the ranks, then by place in the tensor. The regions of one
        target do not overlap and cover its block.

    Raises:
        LayoutError: If the layouts are of different rank, one of them is Partial, or does not cut ``shape``
            into equal blocks.
    """
    for layout in (src, dst):
        if layout.partial_axes:
            raise LayoutError(
                f"{layout.notation!r} is Partial: its blocks are addends, not pieces. Reduce it first "
                "(plan, redistribute)"
            )
        layout.check_even(shape)
    holders: dict[_Box, list[int]] = {}
    for rank in src.mesh.rank_list:
        holders.setdefault(_box(src.local_slice(shape, rank)), []).append(rank)
    blocks = [(box, ranks, cycle(ranks)) for box, ranks in sorted(holders.items())]
    found: list[Transfer] = []
    for target in dst.mesh.rank_list:
        wanted = _box(dst.local_slice(shape, target))
        for box, ranks, turns in blocks:
            overlap = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, wanted, strict=True))
            if all(start < stop for start, stop in overlap):
                source = target if target in ranks else next(turns)
                found.append(_transfer(source, target, overlap, box, wanted, itemsize))
    return tuple(found)


_Box: TypeAlias = tuple[tuple[int, int], ...]
"""A region as pairs of start and stop, which can be compared and hashed."""


def _box(region: Region) -> _Box:
    return tuple((part.start, part.stop) for part in region)


def _transfer(source: int, target: int, region: _Box, held: _Box, wanted: _Box, itemsize: int) -> Transfer:
    return Transfer(
        source,
        target,
        region=_slices(region, [0] * len(region)),
        source_region=_slices(region, [start for start, _ in held]),
        target_region=_slices(region, [start for start, _ in wanted]),
        bytes=prod(stop - start for start, stop in region) * itemsize,
    )


def _slices(region: _Box, origin: Sequence[int]) -> Region:
    return tuple(slice(start - zero, stop - zero) for (start, stop), zero in zip(region, origin, strict=True))
