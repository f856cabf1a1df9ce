"""Operations along one dim that need all of it: sort, argsort, msort, topk, cumsum, cumprod, cummax, cummin.

Rule on one mesh axis: the dim must not be split, every other dim carries its split to all outputs
(`S(d) -> S(d) S(d)`); `cumsum` is linear, so that Partial(sum) and Partial(avg) pass it (`P -> P`). The Sort
of the three-stage RFC (section 8.1) is the same rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from hyper_dispatch import Row, RowsOp, register_strategy
from hyper_dtensor import get_platform
from hyper_layout import Partial, Shard
from hyper_ops.dims import normal_dim

Values = Sequence[Any]


@register_strategy("along_dim")
class AlongDim(RowsOp):
    """An operation along one dim whose outputs all have the dims of the input.

    Cache values: the layout, the dim, whether sums pass. What else a call says (`descending`, `stable`, `k`,
    `largest`, `sorted`) changes neither layout nor implementation.
    """

    algebras: ClassVar[frozenset[str]] = frozenset({"none", "linear"})

    def __init__(self, op_name: str, outputs: int = 1) -> None:
        """Serve one operation.

        Args:
            op_name: Its name.
            outputs: How many results it has.
        """
        super().__init__(op_name)
        self._outputs = outputs

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bound = self.bind(args, kwargs)
        tensor = bound["input"]
        dim = normal_dim(bound.get("dim", 0), len(tensor.shape))
        local = tensor.to_local()
        local_args = tuple(local if value is tensor else value for value in args)
        local_kwargs = {name: local if value is tensor else value for name, value in kwargs.items()}
        dtype = bound.get("dtype")
        return local_args, local_kwargs, [tensor.layout, dim, self._sums_pass(local, dtype)]

    def _sums_pass(self, local: Any, dtype: Any) -> bool:
        """A cast of the summands is exact between floating dtypes only; booleans have no summands."""
        if self.algebra != "linear":
            return False
        platform = get_platform()
        if dtype is not None:
            return platform.is_floating(local) and bool(getattr(dtype, "is_floating_point", False))
        return platform.dtype_name(local) != "b"

    def rows(self, cache_values: Values) -> list[Row]:
        layout, dim, sums_pass = cache_values
        count = self._outputs
        rows = [Row((Shard(d),), (Shard(d),) * count) for d in range(layout.ndim) if d != dim]
        if sums_pass:
            rows += [Row((Partial(op),), (Partial(op),)) for op in ("sum", "avg")]
        return rows

    def output_ndims(self, cache_values: Values) -> tuple[int, ...]:
        return (cache_values[0].ndim,) * self._outputs
