"""embedding: rows of a table by index.

Rule on one mesh axis, for the ids and the weight [number, features]::

    S(d) R    -> S(d)
    R    S(1) -> S(-1)
    R    S(0) -> P(sum)      each rank looks up the ids it has rows for and contributes zeros for the others
    R    P    -> P           linear in the weight
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hyper_dispatch import Row, RowsOp, register_strategy
from hyper_dtensor import get_platform
from hyper_layout import Layout, LayoutError, Partial, Replicate, Shard
from hyper_ops.pieces import check_indices, position

_R = Replicate()


@register_strategy("embedding")
class Embedding(RowsOp):
    """`embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)`.

    With the vocabulary split, the range of the ids is checked over the whole vocabulary first, on every
    rank alike (one small all-reduce if ids are split too), because an id that no rank owns would give zeros.
    """

    shapes_follow = True

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bound = self.bind(args, kwargs)
        ids, weight = bound.pop("input"), bound.pop("weight")
        whole = "max_norm" if bound["max_norm"] is not None else ""
        for option in ("scale_grad_by_freq", "sparse"):
            whole = option if bound[option] else whole
        return (ids.to_local(), weight.to_local()), bound, [ids._layout, weight._layout, whole]

    def rows(self, cache_values: Sequence[Any]) -> Sequence[Row]:
        ids, weight, whole = cache_values
        if weight.ndim != 2:
            raise ValueError(f"the weight of {self.op_name} must have 2 dims, got {weight.ndim}")
        if whole:
            if ids.is_replicated and weight.is_replicated:
                return []
            raise LayoutError(
                f"{self.op_name} with {whole} needs ids and weight Replicate: it looks at all of them"
            )
        return [
            *(Row((Shard(d), _R), (Shard(d),)) for d in range(ids.ndim)),
            Row((_R, Shard(1)), (Shard(ids.ndim),)),
            Row((_R, Shard(0)), (Partial("sum"),)),
            *(Row((_R, Partial(op)), (Partial(op),)) for op in ("sum", "avg")),
        ]

    def output_ndims(self, cache_values: Sequence[Any]) -> Sequence[int]:
        return (cache_values[0].ndim + 1,)

    def get_expand_impl(
        self, func: Any, infer_result: Any, cache_values: Sequence[Any]
    ) -> Callable[..., Any] | None:
        ids_layout, weight_layout, _ = cache_values
        if not weight_layout.dim_axes[0]:
            return None
        return _masked_lookup(func, ids_layout, weight_layout)


def _masked_lookup(func: Any, ids_layout: Layout, weight_layout: Layout) -> Callable[..., Any]:
    mesh = weight_layout.mesh
    ids_axes = [axis for axes in ids_layout.dim_axes for axis in axes]
    vocabulary_axes = weight_layout.dim_axes[0]
    blocks = weight_layout.shard_counts[0]

    def masked_lookup(ids: Any, weight: Any, *, padding_idx: int | None, **_: Any) -> Any:
        platform = get_platform()
        ops = platform.ops
        here = weight.shape[0]
        number = here * blocks
        check_indices(
            (ids < 0) | (ids >= number),
            mesh,
            ids_axes,
            f"index out of range in an embedding of {number} rows",
        )
        local = ids - position(mesh, vocabulary_axes) * here
        owned = (local >= 0) & (local < here)
        found = func(ops.where(owned, local, ops.zeros_like(local)), weight)
        if padding_idx is not None:
            if not -number <= padding_idx < number:
                raise ValueError(
                    f"padding_idx {padding_idx} is out of range in an embedding of {number} rows"
                )
            # The row of the padding id gets no gradient, on whichever rank it lies.
            padding = ops.unsqueeze(ids == padding_idx % number, -1)
            found = ops.where(padding, platform.detach(found), found)
        return ops.where(ops.unsqueeze(owned, -1), found, ops.zeros_like(found))

    return masked_lookup
