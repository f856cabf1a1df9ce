"""A whole step of an optimizer in one call (`torch._fused_adamw_` and its neighbours: `fused=True`).

The step is elementwise at each position of the lists. It runs once on all locals, where a parameter, its
gradient and its states are laid out alike without Partial (or are all plain), and what has no dims, as a
counter of steps, is Replicate. There is no other way to run it: anything else is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hyper_dispatch import DistributedOp, Effects, layouts_of, register_strategy, to_locals
from hyper_dispatch.distributed_op import InferResult
from hyper_dtensor import Spec
from hyper_dtensor.copied import refuse_write
from hyper_layout import Layout, LayoutError

_CURE = "redistribute them, or make the optimizer without fused=True"


@register_strategy("fused_optimizer")
class FusedOptimizer(DistributedOp):
    """A step of an optimizer on lists of parameters, gradients and states.

    cache_values: the layouts of all tensors; the position of each in its list, None if it is in none or has
    no dims; the positions at which a plain tensor with dims stands.
    """

    takes_plain = True
    preprocess_is_pure = True

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        layouts: list[Layout] = []
        positions: list[int | None] = []
        plain: set[int] = set()
        for value in (*args, *kwargs.values()):
            is_list = isinstance(value, (list, tuple))
            for position, item in enumerate(value if is_list else (value,)):
                has_position = is_list and len(item.shape) > 0
                if hasattr(item, "_spec"):
                    if item._spec.copied:
                        refuse_write(item, self.op_name)
                    layouts.append(item._layout)
                    positions.append(position if has_position else None)
                elif has_position:
                    plain.add(position)
        return *to_locals(args, kwargs), [*layouts, tuple(positions), tuple(sorted(plain))]

    def numbers_are_free(self, specs: Sequence[Spec]) -> bool:
        return True

    def infer_layout(self, cache_values: Sequence[Any]) -> InferResult:
        *_, positions, plain = cache_values
        of_position: dict[int, Layout] = {}
        for layout, position in zip(layouts_of(cache_values), positions, strict=True):
            if position is None:
                if not layout.is_replicated:
                    raise LayoutError(
                        f"a number or a counter of steps is {layout.notation}, and must be Replicate; {_CURE}"
                    )
                continue
            first = of_position.setdefault(position, layout)
            if layout is not first or layout.partial_axes or position in plain:
                other = "a plain tensor" if position in plain else first.notation
                raise LayoutError(
                    f"at position {position} of the lists are {other} and {layout.notation}: a parameter, "
                    f"its gradient and its states must be laid out alike, without Partial; {_CURE}"
                )
        return (None,), Effects()
