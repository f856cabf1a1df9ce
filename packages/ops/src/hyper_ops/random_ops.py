"""Random operations: dropout, bernoulli, and the in-place fillings (normal_, uniform_ ...).

Rule on one mesh axis: `S(d) -> S(d)`. Each runs on a generator seeded by the random path of the dispatcher:
Replicate pieces agree, shards differ, recomputation repeats. A dropout that keeps everything is an identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hyper_dispatch import Row, RowsOp, layouts_of, register_strategy
from hyper_layout import LayoutError, Partial, Shard


@register_strategy("random")
class Random(RowsOp):
    """An element-by-element operation of one distributed tensor that draws numbers.

    A generator of the caller's is refused on a sharded tensor: its numbers would be the same on every shard.
    """

    def statics(self, bound: dict[str, Any]) -> tuple[Any, ...]:
        return (bound.get("generator") is not None,)

    def rows(self, cache_values: Sequence[Any]) -> Sequence[Row]:
        layout, *parameters = layouts_of(cache_values)
        own_generator = cache_values[-1]
        if parameters:
            raise LayoutError(f"{self.op_name} takes numbers as parameters, not tensors")
        if own_generator and layout.shard_axes:
            raise LayoutError(
                f"{self.op_name} with a generator of your own would draw the same numbers for every shard: "
                "leave it out and seed all ranks alike"
            )
        return [Row((Shard(d),), (Shard(d),)) for d in range(layout.ndim)]

    def output_ndims(self, cache_values: Sequence[Any]) -> Sequence[int]:
        return (cache_values[0].ndim,)

    def draws(self, cache_values: Sequence[Any]) -> bool:
        return not cache_values[-1]


@register_strategy("dropout")
class Dropout(RowsOp):
    """`dropout(input, p=0.5, training=True, inplace=False)`."""

    def statics(self, bound: dict[str, Any]) -> tuple[Any, ...]:
        return (bool(bound["training"]) and bound["p"] != 0,)

    def rows(self, cache_values: Sequence[Any]) -> Sequence[Row]:
        layout, active = cache_values
        rows = [Row((Shard(d),), (Shard(d),)) for d in range(layout.ndim)]
        return (
            rows if active else [*rows, *(Row((Partial(op),), (Partial(op),)) for op in layout.partial if op)]
        )

    def output_ndims(self, cache_values: Sequence[Any]) -> Sequence[int]:
        return (cache_values[0].ndim,)

    def draws(self, cache_values: Sequence[Any]) -> bool:
        return bool(cache_values[1])
