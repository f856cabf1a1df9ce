"""scaled_dot_product_attention.

Rule on one mesh axis, for query [..., L, E], key [..., S, E], value [..., S, Ev], and a mask that broadcasts
to [..., L, S]; `b` is a leading dim (batch or heads)::

    S(b)  S(b)  S(b)  [S(b)]  -> S(b)
    S(-2) R     R     [S(-2)] -> S(-2)     the query's length, unless is_causal
    R     R     S(-1) [R]     -> S(-1)     the value's features, without dropout
    R     R     P     [R]     -> P         linear in the value alone, without dropout

Key, value and mask that are Replicate where the query is split are cut to this rank's part. With
`enable_gqa` those are the key and value heads that this rank's query heads use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hyper_dispatch import Row, RowsOp, register_strategy
from hyper_dtensor import get_platform
from hyper_layout import Layout, LayoutError, Partial, Replicate, Shard
from hyper_ops.pieces import cut, position

Tensor = Any
_R = Replicate()


@register_strategy("attention")
class Attention(RowsOp):
    """`f(query, key, value, attn_mask, dropout_p, is_causal, *, scale, enable_gqa)`.

    Cache values: layouts of query, key, value and mask, the leading sizes of query, key and value, which dims
    of the mask have size 1, is_causal, whether dropout is on, enable_gqa.
    """

    shapes_follow = True

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bound = self.bind(args, kwargs)
        query, key, value, mask = (bound.pop(name) for name in ("query", "key", "value", "attn_mask"))
        leading = tuple(tuple(operand.shape)[:-2] for operand in (query, key, value))
        ones = None if mask is None else tuple(size == 1 for size in mask.shape)
        layouts = [operand._layout for operand in (query, key, value)]
        mask_layout = None if mask is None else mask._layout
        options = {"attn_mask": None if mask is None else mask.to_local(), **bound}
        values = [
            *layouts,
            mask_layout,
            leading,
            ones,
            bool(bound["is_causal"]),
            bound["dropout_p"] > 0,
            bool(bound["enable_gqa"]),
        ]
        return (query.to_local(), key.to_local(), value.to_local()), options, values

    def rows(self, cache_values: Sequence[Any]) -> Sequence[Row]:
        query, key, value, mask, leading, _, causal, dropout, grouped = cache_values
        ndim = query.ndim
        if not ndim == key.ndim == value.ndim or ndim < 2:
            raise ValueError("query, key and value must have one rank, 2 or more")
        if mask is not None and mask.ndim > ndim:
            raise ValueError(
                f"attn_mask must broadcast against the scores: it has {mask.ndim} dims, not {ndim}"
            )
        _groups(cache_values)
        none: tuple[Any, ...] = () if mask is None else (_R,)
        rows = []
        for dim in range(ndim - 2):
            sizes = {of_operand[dim] for of_operand in leading}
            if len(sizes) > 1 and not (grouped and dim == ndim - 3):
                # Broadcast: key and value of size 1 are used as they are, cutting them is not needed.
                continue
            for of_key in (Shard(dim), _R):
                for of_value in (Shard(dim), _R):
                    for of_mask in self._mask_tokens(cache_values, dim):
                        rows.append(Row((Shard(dim), of_key, of_value, *of_mask), (Shard(dim),)))
        if not causal:
            for of_mask in self._mask_tokens(cache_values, ndim - 2):
                rows.append(Row((Shard(ndim - 2), _R, _R, *of_mask), (Shard(ndim - 2),)))
        if not dropout:
            # With dropout the ranks would have to drop the same attention weights.
            rows.append(Row((_R, _R, Shard(ndim - 1), *none), (Shard(ndim - 1),)))
            rows += [Row((_R, _R, Partial(op), *none), (Partial(op),)) for op in ("sum", "avg")]
        return rows

    def _mask_tokens(self, cache_values: Sequence[Any], dim: int) -> list[tuple[Any, ...]]:
        mask = cache_values[3]
        if mask is None:
            return [()]
        own = _mask_dim(cache_values, dim)
        return [(_R,)] if own is None else [(Shard(own),), (_R,)]

    def output_ndims(self, cache_values: Sequence[Any]) -> Sequence[int]:
        return (cache_values[0].ndim,)

    def draws(self, cache_values: Sequence[Any]) -> bool:
        return bool(cache_values[7])

    def get_expand_impl(
        self, func: Any, infer_result: Any, cache_values: Sequence[Any]
    ) -> Callable[..., Any] | None:
        query, key, value, mask = cache_values[:4]
        split = [dim for dim in range(query.ndim - 2) if query.dim_axes[dim]]
        groups = _groups(cache_values)
        heads = query.ndim - 3 if groups else None
        cut_of = {
            number: [dim for dim in split if not layout.dim_axes[dim] and dim != heads]
            for number, layout in ((1, key), (2, value))
        }
        mask_cuts = [
            (own, query.dim_axes[dim])
            for dim in (*split, query.ndim - 2)
            if mask is not None and query.dim_axes[dim]
            for own in [_mask_dim(cache_values, dim)]
            if own is not None and not mask.dim_axes[own]
        ]
        if not any(cut_of.values()) and not groups and not mask_cuts:
            return None
        mesh = query.mesh

        def on_own_part(
            q: Tensor, k: Tensor, v: Tensor, *, attn_mask: Tensor | None, **options: Any
        ) -> Tensor:
            parts = {1: k, 2: v}
            for number, dims in cut_of.items():
                for dim in dims:
                    parts[number] = cut(parts[number], dim, mesh, query.dim_axes[dim])
            for number, group in groups.items():
                parts[number] = group.cut(parts[number])
            for own, axes in mask_cuts:
                attn_mask = cut(attn_mask, own, mesh, axes)
            return func(q, parts[1], parts[2], attn_mask=attn_mask, **options)

        return on_own_part


def _mask_dim(cache_values: Sequence[Any], dim: int) -> int | None:
    """The mask's dim that meets a dim of the query, or None where it is broadcast."""
    ndim, mask, ones = cache_values[0].ndim, cache_values[3], cache_values[5]
    own = dim - (ndim - mask.ndim)
    return None if own < 0 or ones[own] else int(own)


class _Group:
    """The key (or value) heads that this rank's query heads use.

    Args:
        query: Layout of the query.
        dim: The dim of the heads.
        query_heads: Number of query heads.
        own_heads: Number of key heads.

    Raises:
        LayoutError: If this rank's query heads use parts of the heads that others use differently.
    """

    def __init__(self, query: Layout, dim: int, query_heads: int, own_heads: int) -> None:
        if query_heads % own_heads:
            raise ValueError(f"{query_heads} query heads do not divide into groups for {own_heads} key heads")
        self.query = query
        self.dim = dim
        self.here = query_heads // query.shard_counts[dim]
        self.size = query_heads // own_heads
        if self.here % self.size and self.size % self.here:
            raise LayoutError(
                f"{self.here} query heads on each rank do not fit groups of {self.size} for one key head: "
                "split the heads over fewer ranks, or repeat the key heads before"
            )

    def cut(self, x: Tensor) -> Tensor:
        """This rank's heads of the whole `x`."""
        first = position(self.query.mesh, self.query.dim_axes[self.dim]) * self.here // self.size
        return get_platform().ops.narrow(x, self.dim, first, max(self.here // self.size, 1))


def _groups(cache_values: Sequence[Any]) -> dict[int, _Group]:
    """With grouped heads that only the query splits: how key (1) and value (2) are cut.

    Raises:
        LayoutError: If they cannot be.
    """
    query, key, value, _, leading, *_, grouped = cache_values
    heads = query.ndim - 3
    if not grouped or heads < 0 or not query.dim_axes[heads]:
        return {}
    return {
        number: _Group(query, heads, leading[0][heads], leading[number][heads])
        for number, layout in ((1, key), (2, value))
        if not layout.dim_axes[heads]
    }
