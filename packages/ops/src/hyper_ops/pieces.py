"""What expand implementations share: cutting to this rank's piece, and joining what the ranks found.

Everything here is the same computation on every rank; what differs by rank are values (design rule 8).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeAlias

from hyper_dtensor import get_platform
from hyper_dtensor.collectives import all_reduce, gather_invariant, reduce_sum
from hyper_layout import DeviceMesh, Layout

__all__ = [
    "axes_of_dims",
    "check_indices",
    "check_inexact",
    "cut",
    "gather_stack",
    "number_once",
    "position",
    "reduce_extreme",
    "squeeze_dims",
    "sum_over",
    "tied_extreme",
    "total_over",
    "widened",
]

Tensor: TypeAlias = Any


def axes_of_dims(layout: Layout, dims: Sequence[int]) -> tuple[int, ...]:
    """The mesh axes that split any of these dims; per dim the major one first."""
    axes: tuple[int, ...] = ()
    for dim in dims:
        axes += layout.dim_axes[dim]
    return axes


def position(mesh: DeviceMesh, axes: Sequence[int]) -> int:
    """Which block of a dim that `axes` split (major first) this rank holds."""
    place = 0
    for axis in axes:
        place = place * mesh.mesh_shape[axis] + mesh.get_local_rank(axis)
    return place


def cut(x: Tensor, dim: int, mesh: DeviceMesh, axes: Sequence[int]) -> Tensor:
    """This rank's block of the whole `x` along `dim`, as `axes` split it.

    Its gradient is the plain one (zero outside of the block), as a varying operand needs it.

    Raises:
        ValueError: If the dim does not divide.
    """
    if not axes:
        return x
    count = prod(mesh.mesh_shape[axis] for axis in axes)
    size = x.shape[dim]
    if size % count:
        raise ValueError(
            f"dim {dim} of size {size} does not divide into the {count} blocks of its counterpart"
        )
    length = size // count
    return get_platform().ops.narrow(x, dim, position(mesh, axes) * length, length)


def gather_stack(x: Tensor, mesh: DeviceMesh, axes: Sequence[int]) -> Tensor:
    """What every rank along `axes` holds, stacked along a new dim 0 in the order of their blocks.

    `x` is each rank's own part of the answer. What is computed from the stack is the same on all ranks, so
    the gradient of this rank's part is its slice.
    """
    stack = get_platform().ops.unsqueeze(x, 0)
    for axis in reversed(axes):
        stack = gather_invariant(stack, mesh, axis, 0)
    return stack


def sum_over(x: Tensor, mesh: DeviceMesh, axes: Sequence[int]) -> Tensor:
    """The sum of the ranks' summands, differentiable; the result is invariant."""
    for axis in axes:
        x = reduce_sum(x, mesh, axis)
    return x


def total_over(x: Tensor, mesh: DeviceMesh, axes: Sequence[int]) -> Tensor:
    """The sum of the ranks' summands, without gradient."""
    for axis in axes:
        x = all_reduce(x, mesh, axis)
    return x


def reduce_extreme(x: Tensor, mesh: DeviceMesh, axes: Sequence[int], op: str) -> Tensor:
    """The largest (`op` is max) or smallest (min) of the ranks' values, without gradient."""
    for axis in axes:
        x = all_reduce(x, mesh, axis, op)
    return x


def squeeze_dims(x: Tensor, dims: Sequence[int]) -> Tensor:
    """Drop dims of size 1."""
    squeeze = get_platform().ops.squeeze
    for dim in reversed(dims):
        x = squeeze(x, dim)
    return x


def tied_extreme(
    x: Tensor, dims: Sequence[int], mesh: DeviceMesh, axes: Sequence[int], op: str, *, nan_ties: bool
) -> Tensor:
    """The extreme over `dims`, reduced over `axes` too; its gradient is shared by all that tie, on any rank.

    Args:
        x: The local tensor.
        dims: Dims to reduce; they are kept with size 1.
        mesh: The mesh.
        axes: The mesh axes that split the dims.
        op: max or min.
        nan_ties: Whether NaNs tie where the extreme is NaN, or nothing does (the frameworks have both).
    """
    platform = get_platform()
    ops = platform.ops
    bare = platform.detach(x)
    extreme: Callable[..., Tensor] = ops.amax if op == "max" else ops.amin
    value = reduce_extreme(extreme(bare, dims, True), mesh, axes, op)
    ties = bare == value
    if nan_ties:
        ties = ties | (ops.isnan(bare) & ops.isnan(value))
    count = total_over(ops.sum(ties, dims, True), mesh, axes)

    def forward(summands: Tensor) -> Tensor:
        of_ties = ops.where(ties, summands, ops.zeros_like(summands))
        return total_over(ops.sum(of_ties, dims, True), mesh, axes) / count

    def backward(gradient: Tensor) -> Tensor:
        return gradient * ties / count

    return platform.linear(x, forward, backward, value)


def widened(x: Tensor) -> Tensor:
    """`x` in a precision in which sums over ranks and dims are computed: 16 bits become 32."""
    platform = get_platform()
    return x.float() if platform.is_floating(x) and platform.itemsize(x) < 4 else x


def number_once(number: Any, target: Tensor | None, mesh: DeviceMesh, axes: Sequence[int]) -> Any:
    """`number` where this rank has coordinate 0 on all axes, else a zero of its type.

    If it is written into a `target` whose dtype cannot hold it, that raises on every rank alike.
    """
    if position(mesh, axes) == 0:
        return number
    platform = get_platform()
    if target is not None and not platform.is_floating(target):
        platform.ops.full((), number, dtype=target.dtype, device=target.device)
    return type(number)(0)


def check_inexact(op_name: str, x: Tensor) -> None:
    """Refuse integers and booleans where the frameworks do: an implementation of ours would round its result.

    Raises:
        ValueError: Names the dtype.
    """
    platform = get_platform()
    name = platform.dtype_name(x)
    if not (platform.is_floating(x) or name.startswith("c")):
        raise ValueError(f"{op_name} takes floating or complex numbers, got {name}: cast the input before")


def check_indices(bad: Tensor, mesh: DeviceMesh, axes: Sequence[int], message: str) -> None:
    """Raise on every rank alike if any rank has a bad index.

    Args:
        bad: Boolean; where an index is out of range.
        mesh: The mesh.
        axes: The axes along which ranks hold different indices.
        message: What to say.

    Raises:
        IndexError: If any is bad.
    """
    if bool(reduce_extreme(get_platform().ops.any(bad), mesh, axes, "max")):
        raise IndexError(message)
