"""Cutting a tensor into several: split, split_with_sizes, chunk, tensor_split, unbind.

Rule on one mesh axis: a dim that is not cut carries its split to every output (`S(d) -> S(d) S(d) ...`), the
dim that is cut must not be split; any Partial passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

from hyper_dispatch import Row, RowsOp, register_strategy
from hyper_layout import Layout
from hyper_ops.dims import normal_dim
from hyper_ops.moved_dims import PARTIAL_ROWS, moved_rows

Values = Sequence[Any]


@register_strategy("split")
class Split(RowsOp):
    """Pieces along one dim, or (unbind) slices without it.

    Cache values: the layout, the dim, the number of outputs.
    """

    view_like = True

    def __init__(self, op_name: str, form: str = "sizes") -> None:
        """Serve one operation; its `form` is `sizes`, `chunks`, `sections` or `unbind`."""
        super().__init__(op_name)
        self._form = form

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bound = self.bind(args, kwargs)
        tensor = bound["input"]
        shape = tensor.shape
        dim = normal_dim(bound["dim"], len(shape))
        if not len(shape):
            raise RuntimeError(f"{self.op_name} expects at least a 1-dimensional tensor")
        local = tensor.to_local()
        if self._form == "unbind":
            return (local, dim), {}, [tensor.layout, dim, shape[dim]]
        pieces = bound["pieces"]
        count = _COUNTS[self._form](pieces, shape[dim])
        return (local, pieces, dim), {}, [tensor.layout, dim, count]

    def rows(self, cache_values: Values) -> list[Row]:
        layout, dim, count = cache_values
        kept: list[int | None] = [d for d in range(layout.ndim) if d != dim]
        if self._form != "unbind":
            kept.insert(dim, None)
        rows = [*moved_rows(tuple(kept)), *PARTIAL_ROWS]
        return [Row(row.inputs, row.outputs * count) for row in rows]

    def output_ndims(self, cache_values: Values) -> tuple[int, ...]:
        layout: Layout = cache_values[0]
        count: int = cache_values[2]
        return (layout.ndim - (self._form == "unbind"),) * count


def _sizes_count(pieces: Any, size: int) -> int:
    """`split` by one size (the last piece may be smaller) or by a list of sizes."""
    if isinstance(pieces, (list, tuple)):
        return len(pieces)
    length = index(pieces)
    return max(-(-size // length), 1) if length > 0 else 1


def _chunks_count(pieces: Any, size: int) -> int:
    """`chunk` gives fewer pieces where the size does not suffice."""
    chunks = index(pieces)
    return max(-(-size // -(-size // chunks)), 1) if size and chunks > 0 else max(chunks, 1)


def _sections_count(pieces: Any, size: int) -> int:
    """`tensor_split` by a number of sections or by the places of the cuts."""
    return len(pieces) + 1 if isinstance(pieces, (list, tuple)) else index(pieces)


_COUNTS = {"sizes": _sizes_count, "chunks": _chunks_count, "sections": _sections_count}
