"""The same values in the same layout: detach, clone, contiguous, moves between devices, casts.

On one mesh axis::

    S(d) -> S(d)    P(op) -> P(op)

A cast passes Partial on between floating dtypes only (or where it changes no dtype): an integer cast of a
summand is no summand. What `type_as` or `to(other)` take dtype and device from may lie on the mesh in any
way. `copy_` is an elementwise operation of two operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hyper_dispatch import NO_EFFECTS, DistributedOp, Effects, register_strategy, to_locals
from hyper_dispatch.distributed_op import InferResult
from hyper_dtensor import get_platform
from hyper_layout import Layout, LayoutError


@register_strategy("same")
class Same(DistributedOp):
    """The layout stays. cache_values: the layout."""

    shapes_follow = True
    preprocess_is_pure = True

    def __init__(self, op_name: str, leaf: bool = False) -> None:
        """Make the strategy.

        Args:
            op_name: Name of the operation.
            leaf: Whether the result starts a new graph: then it is invariant on Replicate axes.
        """
        super().__init__(op_name)
        self._leaf = leaf

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        source = args[0] if args else kwargs["input"]
        return *to_locals(args, kwargs), [source._layout]

    def infer_layout(self, cache_values: Sequence[Any]) -> InferResult:
        layout: Layout = cache_values[0]
        return (layout,), Effects(invariant=layout.replicate_axes) if self._leaf else NO_EFFECTS


@register_strategy("cast")
class Cast(DistributedOp):
    """`to` and its kin. cache_values: layouts of the tensor and of what it follows, and whether sums pass."""

    shapes_follow = True
    preprocess_is_pure = True

    def __init__(self, op_name: str, dtype: str | None = None) -> None:
        """Make the strategy.

        Args:
            op_name: Name of the operation.
            dtype: `floating` or `other` where the name of the operation says it (`half`, `long`); else the
                arguments do.
        """
        super().__init__(op_name)
        self._dtype = dtype

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        source, *targets = (*args, *kwargs.values()) if args else (kwargs["input"], *kwargs.values())
        layouts = [source._layout, *(value._layout for value in targets if hasattr(value, "_layout"))]
        local = source.to_local()
        if self._dtype is not None:
            passes = self._dtype == "floating" and get_platform().is_floating(local)
        else:
            passes = all(_passes_sums(local, target) for target in targets)
        return *to_locals(args, kwargs), [*layouts, passes]

    def infer_layout(self, cache_values: Sequence[Any]) -> InferResult:
        layout, passes = cache_values[0], cache_values[-1]
        if layout.partial_axes and not passes:
            raise LayoutError(
                f"{self.op_name} of a Partial tensor passes the summands on between floating dtypes only; "
                "reduce it first"
            )
        return (layout,), NO_EFFECTS

    def views(self, cache_values: Sequence[Any]) -> bool:
        # Between floating dtypes gradients flow, and the varying view is the cast of the source's (rule 4).
        return bool(cache_values[-1])


# Of PyTorch, of MindSpore (whose float32 is a Float), of Python.
_DTYPE_CLASSES = frozenset(("dtype", "Int", "UInt", "Float", "BFloat", "Bool", "Complex", "type"))


def _passes_sums(local: Any, target: Any) -> bool:
    """Whether a cast of `local` to what `target` names is linear; what is no dtype does not matter."""
    if hasattr(target, "_layout"):
        target = target.to_local().dtype
    elif type(target).__name__ not in _DTYPE_CLASSES:
        return True
    # Frameworks spell it torch.bfloat16, Float32, <class 'float'>.
    return target == local.dtype or ("float" in str(target).lower() and get_platform().is_floating(local))
