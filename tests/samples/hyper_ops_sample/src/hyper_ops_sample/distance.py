"""Distances between all pairs of points: cdist.

Rule on one mesh axis, for x1 [..., P, M], x2 [..., R, M] and the result [..., P, R]; `b` is a batch dim::

    S(b)  S(b)  -> S(b)
    S(-2) R     -> S(-2)     the points of x1
    R     S(-2) -> S(-1)     the points of x2

The coordinates M may not be split: a distance is no sum of the distances of the parts. Nor is it linear, so that
there are no rows with Partial.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hyper_dispatch import Row, RowsOp, register_strategy
from hyper_layout import Replicate, Shard


@register_strategy("sample.distance")
class Distance(RowsOp):
    """`cdist(x1, x2, p=2.0, compute_mode=...)`: what it returns has the rows of x1 and, as columns, those of x2."""

    shapes_follow = True

    def statics(self, bound: dict[str, Any]) -> tuple[Any, ...]:
        """Nothing: neither the norm nor the mode decides a layout, and calls that differ in them share an entry."""
        return ()

    def rows(self, cache_values: Sequence[Any]) -> Sequence[Row]:
        """The rule above."""
        left, right = cache_values
        if left.ndim != right.ndim:
            raise ValueError(f"{self.op_name} takes tensors of one rank, got {left.ndim} and {right.ndim}")
        points, whole = Shard(left.ndim - 2), Replicate()
        batch = [Row((Shard(dim), Shard(dim)), (Shard(dim),)) for dim in range(left.ndim - 2)]
        return [*batch, Row((points, whole), (points,)), Row((whole, points), (Shard(left.ndim - 1),))]

    def output_ndims(self, cache_values: Sequence[Any]) -> Sequence[int]:
        """That of the operands."""
        return (cache_values[0].ndim,)

    def letters(self, cache_values: Sequence[Any]) -> Sequence[str]:
        """Names of the dims, for messages."""
        batch = "abcdefgh"[: cache_values[0].ndim - 2]
        return [f"{batch}pm", f"{batch}rm"]
