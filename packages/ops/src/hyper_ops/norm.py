"""Norms: norm, linalg.vector_norm, linalg.norm.

Rule on one mesh axis, for a vector norm over some dims::

    S(kept)    -> S(where the dim is afterwards)
    S(reduced) -> I      the norm of the ranks' norms

A matrix norm (linalg.norm with an order over two dims, the nuclear norm) needs its dims whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, ClassVar

from hyper_dispatch import INVARIANT, Row, RowsOp, register_strategy
from hyper_dtensor import get_platform
from hyper_layout import Layout, Shard
from hyper_ops.dims import normal_dims
from hyper_ops.pieces import (
    axes_of_dims,
    check_inexact,
    gather_stack,
    squeeze_dims,
    sum_over,
    tied_extreme,
    widened,
)

Values = Sequence[Any]

_MATRIX = "matrix"
"""In the place of the order: a norm that is not one of all elements of its dims."""


class Norm(RowsOp):
    """Common part. Cache values: layout, order or `matrix`, dims as written, keepdim, dtype."""

    shapes_follow = True
    order_name: ClassVar[str]

    def statics(self, bound: dict[str, Any]) -> tuple[Any, ...]:
        operand, dim, dtype = bound["input"].to_local(), bound["dim"], bound["dtype"]
        check_inexact(self.op_name, operand)
        if dtype is not None and operand.is_complex() != getattr(dtype, "is_complex", operand.is_complex()):
            raise ValueError(
                f"{self.op_name}: dtype {dtype} is no dtype for {get_platform().dtype_name(operand)} numbers"
            )
        dims = tuple(dim) if isinstance(dim, list) else dim
        order = self.order(bound[self.order_name], dims, len(bound["input"].shape))
        return (order, None if dims == () else dims, bound["keepdim"], bound["dtype"])

    def order(self, order: Any, dims: Any, ndim: int) -> float | str:
        """The order of the vector norm that is asked for, or `matrix`."""
        raise NotImplementedError

    def rows(self, values: Values) -> Sequence[Row]:
        layout, order, _, keepdim, _ = values
        dims = self.dims(values)
        rows = []
        for dim in range(layout.ndim):
            if dim not in dims:
                after = dim if keepdim else dim - sum(reduced < dim for reduced in dims)
                rows.append(Row((Shard(dim),), (Shard(after),)))
            elif order != _MATRIX:
                rows.append(Row((Shard(dim),), (INVARIANT,)))
        return rows

    def dims(self, values: Values) -> tuple[int, ...]:
        """The reduced dims, in ascending order."""
        return normal_dims(values[2], values[0].ndim)

    def output_ndims(self, values: Values) -> Sequence[int]:
        ndim = values[0].ndim
        return (ndim if values[3] else ndim - len(self.dims(values)),)

    def get_expand_impl(self, func: Any, infer_result: Any, values: Values) -> Callable[..., Any] | None:
        layout, order, _, keepdim, dtype = values
        dims = self.dims(values)
        axes = axes_of_dims(layout, dims)
        if not axes:
            return None

        def of_all_ranks(x: Any, *_: Any, **__: Any) -> Any:
            x = x if dtype is None else x.to(dtype)
            whole = _vector_norm(widened(x), order, dims, layout, axes)
            whole = whole if keepdim else squeeze_dims(whole, dims)
            return whole if whole.dtype == x.dtype or x.is_complex() else whole.to(x.dtype)

        return of_all_ranks


def _vector_norm(x: Any, order: float, dims: Sequence[int], layout: Layout, axes: Sequence[int]) -> Any:
    """The norm over `dims` (kept with size 1), the same on all ranks.

    Sum of p-th powers and p-th root cancel between a rank's norm and the norm of those, so that zeros,
    whose gradient the local operation knows, stay exact.
    """
    ops = get_platform().ops
    mesh = layout.mesh
    if order in (inf, -inf):
        op = "max" if order > 0 else "min"
        return tied_extreme(ops.abs(x), dims, mesh, axes, op, nan_ties=True)
    local = ops.vector_norm(x, order, dims, True)
    if order == 0:
        # The number of elements that are not zero.
        return sum_over(local, mesh, axes)
    return ops.vector_norm(gather_stack(local, mesh, axes), order, 0)


@register_strategy("vector_norm")
class VectorNorm(Norm):
    """`linalg.vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None)`."""

    order_name = "ord"

    def order(self, order: Any, dims: Any, ndim: int) -> float | str:
        return float(order)


@register_strategy("linalg_norm")
class LinalgNorm(Norm):
    """`linalg.norm(A, ord=None, dim=None, keepdim=False, *, dtype=None)`.

    An order over one dim, or of a vector, is a vector norm. No order, or `fro`, is the 2-norm of all.
    """

    order_name = "ord"

    def order(self, order: Any, dims: Any, ndim: int) -> float | str:
        if order is None or order == "fro":
            return 2.0
        over_one = isinstance(dims, int) or (len(dims) == 1 if dims is not None else ndim == 1)
        return float(order) if over_one and not isinstance(order, str) else _MATRIX


@register_strategy("norm")
class TensorNorm(Norm):
    """`norm(input, p="fro", dim=None, keepdim=False, dtype=None)`: a vector norm for every number p."""

    order_name = "p"

    def order(self, order: Any, dims: Any, ndim: int) -> float | str:
        if order is None or order == "fro":
            return 2.0
        return _MATRIX if order == "nuc" else float(order)
