"""Joining tensors: cat, stack, hstack, vstack.

Rule on one mesh axis: all operands are split alike along a dim that is not joined
(`S(d) S(d) -> S(out of d)`); or all are Partial alike; or some are Partial(sum) and the Replicate others
enter once (`P + -> P`). A Replicate operand is Partial(avg, max, min) as it is, every rank holding the value;
max and min carry no gradient, so that none may be needed there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from hyper_dispatch import ONCE, Row, RowsOp, Token, layouts_of, register_strategy
from hyper_dtensor import get_platform
from hyper_layout import Layout, LayoutError, Partial, Replicate, Shard
from hyper_ops.dims import normal_dim

Values = Sequence[Any]


@register_strategy("concat")
class Concat(RowsOp):
    """Joining along a dim that the operands have, or along a new one.

    Cache values: layouts of the operands, the dim of the output that joins them, whether it is a new one,
    whether a gradient is needed.
    """

    shapes_follow = True

    def __init__(self, op_name: str, form: str = "cat") -> None:
        """Serve one operation; its `form` is `cat`, `stack`, `hstack` or `vstack`."""
        super().__init__(op_name)
        self._form = form

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bound = self.bind(args, kwargs)
        tensors = bound["tensors"]
        layouts = [tensor.layout for tensor in tensors]
        local = [tensor.to_local() for tensor in tensors]
        # One dim-less empty tensor may stand among others in `cat`: the rank is that of the others.
        ndim = max(layout.ndim for layout in layouts)
        needs_grad = any(map(get_platform().tracks_gradient, local))
        if "dim" in bound:
            new = self._form == "stack"
            dim = normal_dim(bound["dim"], ndim + new)
            return (local, dim), {}, [*layouts, dim, new, needs_grad]
        if ndim < 1:
            raise LayoutError(f"{self.op_name} of 0-d tensors is not supported: use stack")
        dim, new = (min(ndim - 1, 1), False) if self._form == "hstack" else (0, ndim == 1)
        return (local,), {}, [*layouts, dim, new, needs_grad]

    def rows(self, cache_values: Values) -> list[Row]:
        layouts = layouts_of(cache_values)
        dim, new, needs_grad = cache_values[-3:]
        (ndim,) = self.output_ndims(cache_values)
        ranks = tuple([layout.ndim for layout in layouts])
        return [*_shard_rows(ranks, ndim, dim, new), *_partial_rows(layouts, needs_grad)]

    def output_ndims(self, cache_values: Values) -> tuple[int]:
        return (max(layout.ndim for layout in layouts_of(cache_values)) + cache_values[-2],)


@lru_cache(maxsize=1024)
def _shard_rows(ranks: tuple[int, ...], ndim: int, dim: int, new: bool) -> tuple[Row, ...]:
    """The rows that split all tensors, but an empty one without dims, along a dim that is not joined."""
    rows = []
    for out in range(ndim):
        if out != dim:
            source = Shard(out - (new and out > dim))
            same = tuple([source if rank == ndim - new else Replicate() for rank in ranks])
            rows.append(Row(same, (Shard(out),)))
    return tuple(rows)


def _partial_rows(layouts: Sequence[Layout], needs_grad: bool) -> list[Row]:
    """The rows with a Partial that can match these layouts: all of them would be too many."""
    rows = []
    for found in zip(*[layout.partial for layout in layouts], strict=True):
        for op in {*found} - {None}:
            other: Token = ONCE if op == "sum" else Replicate()
            if None not in found or op in ("sum", "avg") or (op != "prod" and not needs_grad):
                tokens = tuple(Partial(op) if each == op else other for each in found)
                rows.append(Row(tokens, (Partial(op),)))
    return rows
