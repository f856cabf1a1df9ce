"""softmax and log_softmax.

Rule on one mesh axis::

    S(other) -> S(other)
    S(dim)   -> S(dim)      the largest value and the sum of exponentials are all-reduced

Over a sharded dim the result and its gradient are exact: two all-reduces forward, one backward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hyper_dispatch import Row, RowsOp, register_strategy
from hyper_dtensor import get_platform
from hyper_dtensor.collectives import vary
from hyper_ops.dims import normal_dim
from hyper_ops.moved_dims import moved_rows
from hyper_ops.pieces import check_inexact, reduce_extreme, sum_over, widened


@register_strategy("softmax")
class Softmax(RowsOp):
    """`softmax(input, dim, dtype=None)`.

    Args:
        op_name: The operation.
        log: Whether it is log_softmax.
    """

    needs_signature = True
    shapes_follow = True

    def __init__(self, op_name: str, log: bool) -> None:
        super().__init__(op_name)
        self.log = log

    def statics(self, bound: dict[str, Any]) -> tuple[Any, ...]:
        if bound["dtype"] is None:
            check_inexact(self.op_name, bound["input"].to_local())
        return (bound["dim"], bound["dtype"])

    def rows(self, cache_values: Sequence[Any]) -> Sequence[Row]:
        layout, dim = cache_values[0], cache_values[1]
        normal_dim(dim, layout.ndim)
        return moved_rows(tuple(range(layout.ndim)))

    def output_ndims(self, cache_values: Sequence[Any]) -> Sequence[int]:
        return (cache_values[0].ndim,)

    def get_expand_impl(
        self, func: Any, infer_result: Any, cache_values: Sequence[Any]
    ) -> Callable[..., Any] | None:
        layout, dim, dtype = cache_values
        place = normal_dim(dim, layout.ndim)
        axes = layout.dim_axes[place] if layout.ndim else ()
        if not axes:
            return None
        mesh, log = layout.mesh, self.log

        def over_all_ranks(x: Any, *_: Any, **__: Any) -> Any:
            platform = get_platform()
            ops = platform.ops
            x = x if dtype is None else x.to(dtype)
            wide = widened(x)
            # The result does not depend on what is subtracted, so that needs no gradient.
            largest = reduce_extreme(ops.amax(platform.detach(wide), place, True), mesh, axes, "max")
            shifted = wide - largest
            exponentials = ops.exp(shifted)
            total = sum_over(ops.sum(exponentials, place, True), mesh, axes)
            normaliser = ops.log(total) if log else total
            for axis in axes:
                # The same on all ranks, used by each for its own part.
                normaliser = vary(normaliser, mesh, axis)
            result = shifted - normaliser if log else exponentials / normaliser
            return result.to(x.dtype)

        return over_all_ranks
