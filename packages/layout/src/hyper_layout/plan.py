"""Redistribution planning: the cheapest steps from one layout to another. Pure arithmetic.

Each step moves data along one mesh axis. The plan is a shortest path over the layouts of the tensor: fewest
bytes received per rank, then fewest collectives, then fewest steps. It is the same on every rank. An axis on
which both layouts agree may be used on the way where that saves bytes: what is Replicate on an axis is sliced
for free, reduced in pieces over another axis, and gathered again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count
from math import prod
from typing import Final, Literal, TypeAlias

from hyper_layout.errors import LayoutError
from hyper_layout.layout import Layout
from hyper_layout.mesh import DeviceMesh
from hyper_layout.order import DimAxes, canonical
from hyper_layout.placement import commute

Kind: TypeAlias = Literal["all_gather", "all_reduce", "reduce_scatter", "all_to_all", "slice", "to_partial"]

LOCAL_KINDS: Final = frozenset({"slice", "to_partial"})
"""The steps that communicate nothing."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a plan, along one mesh axis.

    Kinds, with n the size of the axis and L the bytes of the local block before the step:

    ===============  ==============================  ==================  ============================
    kind             placement on ``axis``           bytes received      local block
    ===============  ==============================  ==================  ============================
    all_gather       Shard(dim) -> Replicate         (n - 1) L           dim grows n times
    all_reduce       Partial -> Replicate            2 (n - 1) L / n     same shape
    reduce_scatter   Partial -> Shard(dim)           (n - 1) L / n       dim shrinks n times
    all_to_all       Shard(dim) -> Shard(to_dim)     (n - 1) L / n       dim grows, to_dim shrinks
    slice            Replicate -> Shard(dim)         0                   dim shrinks n times
    to_partial       Replicate -> Partial            0                   same shape
    ===============  ==============================  ==================  ============================

    An axis leaves a dim only as its innermost axis and enters one as the innermost, so that the local blocks
    are cut and joined by plain slicing and concatenation. ``to_partial`` for sum and prod keeps the value on
    coordinate 0 and puts zeros, or ones, elsewhere; for avg, max and min it changes nothing.

    On an axis of size 1 every step is the identity and costs 0 bytes.

    Attributes:
        kind: What is done.
        axis: The position of the mesh axis.
        dim: The tensor dim that the step gathers, scatters or slices; None for all_reduce and to_partial.
        to_dim: The dim that an all_to_all splits; None for the other kinds.
        reduce_op: The reduce op of a Partial that ends or begins; None for the other kinds.
        bytes: The bytes that each rank receives.
        layout: The layout after the step.
    """

    kind: Kind
    axis: int
    dim: int | None
    to_dim: int | None
    reduce_op: str | None
    bytes: int
    layout: Layout

    @property
    def is_local(self) -> bool:
        """Whether the step communicates nothing."""
        return self.kind in LOCAL_KINDS


_Partials: TypeAlias = tuple[str | None, ...]
_State: TypeAlias = tuple[DimAxes, _Partials]
_Move: TypeAlias = tuple[Kind, int, int | None, int | None, str | None, int]
"""A step before its layout is made: kind, axis, dim, to_dim, reduce_op, bytes."""
_Cost: TypeAlias = tuple[int, int, int]
"""Bytes, collectives, steps."""


@lru_cache(maxsize=8192)
def plan(src: Layout, dst: Layout, shape: tuple[int, ...], itemsize: int) -> tuple[Step, ...]:
    """The cheapest steps, each along one mesh axis, that turn ``src`` into ``dst``.

    An axis that is Replicate in both layouts takes no part: to slice along it and to gather again could save
    bytes, but would send on links, and in a backward, that the layouts do not name.

    Args:
        src: The layout of the tensor.
        dst: The wanted layout, on the same mesh and of the same rank.
        shape: The global shape.
        itemsize: The bytes of one element.

    Returns:
        The steps in order; none if the layouts are the same. Results are cached (bounded).

    Raises:
        LayoutError: If the meshes differ (`transfers` is for these), or one of the layouts does not cut
            ``shape`` into equal blocks.
    """
    if src.mesh is not dst.mesh:
        raise LayoutError(
            f"cannot redistribute between the meshes {src.mesh!r} and {dst.mesh!r}: a plan is of one mesh; "
            "hyper_layout.transfers() says which rank sends what from one mesh to the other"
        )
    src.check_even(shape)
    dst.check_even(shape)
    idle = src.replicate_axes & dst.replicate_axes
    came_from = _shortest_paths(src, dst.partial, idle, shape, itemsize)
    path: list[Step] = []
    state = (dst.dim_axes, dst.partial)
    while state != (src.dim_axes, src.partial):
        move, before = came_from[state]
        path.append(Step(*move, layout=Layout.from_dim_axes(src.mesh, *state)))
        state = before
    return tuple(reversed(path))


# One search serves all goals of a source that wait for the same reductions and leave the same axes alone,
# as when dispatch compares cures.
@lru_cache(maxsize=16)
def _shortest_paths(
    src: Layout, wanted: _Partials, idle: int, shape: tuple[int, ...], itemsize: int
) -> dict[_State, tuple[_Move, _State]]:
    """Dijkstra's algorithm: the last move to each state that can be reached, and the state before it.

    Ties are broken by the order in which ``_moves`` yields, so that every rank finds the same paths.
    """
    sizes = src.mesh_shape
    total_bytes = prod(shape) * itemsize
    start: _State = (src.dim_axes, src.partial)
    best: dict[_State, _Cost] = {start: (0, 0, 0)}
    came_from: dict[_State, tuple[_Move, _State]] = {}
    order = count()
    queue = [((0, 0, 0), next(order), start)]
    while queue:
        cost, _, state = heappop(queue)
        if cost != best[state]:
            continue
        for move, after in _moves(state, wanted, src.mesh, shape, total_bytes):
            if idle >> move[1] & 1:
                continue
            collective = move[0] not in LOCAL_KINDS and sizes[move[1]] > 1
            reached = (cost[0] + move[5], cost[1] + collective, cost[2] + 1)
            if after not in best or reached < best[after]:
                best[after] = reached
                came_from[after] = (move, state)
                heappush(queue, (reached, next(order), after))
    return came_from


# Searches from other sources of the same mesh and shape pass the same states.
@lru_cache(maxsize=2048)
def _moves(
    state: _State, wanted: _Partials, mesh: DeviceMesh, shape: tuple[int, ...], total_bytes: int
) -> tuple[tuple[_Move, _State], ...]:
    """All steps from a state, in a fixed order. Replicate becomes Partial only as the goal wants it."""
    moves = _one_axis_moves(state, wanted, mesh, shape, total_bytes)
    if 1 not in mesh.mesh_shape:
        return tuple(moves)
    # An axis of size 1 has one canonical place in the order (see hyper_layout.order).
    return tuple((move, (canonical(dim_axes, mesh), partial)) for move, (dim_axes, partial) in moves)


def _one_axis_moves(
    state: _State, wanted: _Partials, mesh: DeviceMesh, shape: tuple[int, ...], total_bytes: int
) -> Iterator[tuple[_Move, _State]]:
    dim_axes, partial = state
    sizes = mesh.mesh_shape
    counts = [prod(sizes[axis] for axis in axes) for axes in dim_axes]
    local_bytes = total_bytes // prod(counts)
    split: dict[int, int] = {}
    for dim, axes in enumerate(dim_axes):
        for axis in axes:
            split[axis] = dim
    for axis, size in enumerate(sizes):
        fits = [dim for dim, length in enumerate(shape) if length % (counts[dim] * size) == 0]
        exchanged = -(-local_bytes * (size - 1) // size)
        reduce_op = partial[axis]
        if axis in split:
            dim = split[axis]
            axes = dim_axes[dim]
            if size > 1 and any(sizes[inner] > 1 for inner in axes[axes.index(axis) + 1 :]):
                continue
            without = _with_dim(dim_axes, dim, tuple(other for other in axes if other != axis))
            yield ("all_gather", axis, dim, None, None, local_bytes * (size - 1)), (without, partial)
            for to_dim in fits:
                if to_dim != dim:
                    moved = _with_dim(without, to_dim, (*without[to_dim], axis))
                    yield ("all_to_all", axis, dim, to_dim, None, exchanged), (moved, partial)
        elif reduce_op is not None:
            reduced = (*partial[:axis], None, *partial[axis + 1 :])
            all_reduced = -(-2 * local_bytes * (size - 1) // size)
            yield ("all_reduce", axis, None, None, reduce_op, all_reduced), (dim_axes, reduced)
            for dim in fits:
                scattered = _with_dim(dim_axes, dim, (*dim_axes[dim], axis))
                yield ("reduce_scatter", axis, dim, None, reduce_op, exchanged), (scattered, reduced)
        else:
            for dim in fits:
                sliced = _with_dim(dim_axes, dim, (*dim_axes[dim], axis))
                yield ("slice", axis, dim, None, None, 0), (sliced, partial)
            wanted_op = wanted[axis]
            # A layout holds only Partials that commute: others must be reduced before this one begins.
            if wanted_op is not None and all(op is None or commute(op, wanted_op) for op in partial):
                waiting = (*partial[:axis], wanted_op, *partial[axis + 1 :])
                yield ("to_partial", axis, None, None, wanted_op, 0), (dim_axes, waiting)


def _with_dim(dim_axes: DimAxes, dim: int, axes: tuple[int, ...]) -> DimAxes:
    return (*dim_axes[:dim], axes, *dim_axes[dim + 1 :])
