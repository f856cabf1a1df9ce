"""layer_norm and rms_norm; native_layer_norm returns the two statistics of each row too.

Rule on one mesh axis, for the dims in front of the normalised ones::

    S(d) R R -> S(d)      input, weight, bias as far as they are there

The normalised dims must be whole. Weight and bias are Replicate: their gradients are summed over the ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hyper_dispatch import Row, RowsOp, layouts_of, register_strategy
from hyper_layout import Replicate, Shard


@register_strategy("normalization")
class Normalization(RowsOp):
    """`layer_norm(input, normalized_shape, weight=None, bias=None, eps)`, `rms_norm` (which has no bias).

    Args:
        op_name: The operation.
        outputs: How many results it has; all have the dims of the input, some of size 1.
    """

    def __init__(self, op_name: str, outputs: int = 1) -> None:
        super().__init__(op_name)
        self._outputs = outputs

    shapes_follow = True

    def statics(self, bound: dict[str, Any]) -> tuple[Any, ...]:
        shape = bound["normalized_shape"]
        return (1 if isinstance(shape, int) else len(shape),)

    def rows(self, cache_values: Sequence[Any]) -> Sequence[Row]:
        layouts = layouts_of(cache_values)
        leading = layouts[0].ndim - cache_values[-1]
        rest = (Replicate(),) * (len(layouts) - 1)
        return [Row((Shard(d), *rest), (Shard(d),) * self._outputs) for d in range(leading)]

    def output_ndims(self, cache_values: Sequence[Any]) -> Sequence[int]:
        return (cache_values[0].ndim,) * self._outputs
