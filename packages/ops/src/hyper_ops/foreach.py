"""Operations on lists of tensors, item by item (`torch._foreach_*`), as optimizers use them.

Lists may mix plain and distributed tensors. Where every position is a matter of its own ranks alone (no
gradient is tracked, and the tensors of a position are all plain, or laid out alike without Partial), the
operation runs once on all locals. Otherwise it is the elementwise operation of the name at each position,
which is dispatched on its own.

The norms of shards are exact: the powers of all positions are added up together, one all-reduce per mesh
axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from hyper_dispatch import DistributedOp, Effects, layouts_of, register_strategy, to_local, to_locals
from hyper_dispatch.distributed_op import InferResult
from hyper_dtensor import Spec, get_platform
from hyper_dtensor.collectives import all_reduce
from hyper_layout import Layout, Replicate

EACH = "each"
TOGETHER = "together"


@register_strategy("foreach")
class Foreach(DistributedOp):
    """An elementwise operation at each position of lists.

    cache_values: the layouts, how it runs (`each` position on its own, or all `together`), and for each
    position `T` if its result is laid out as its first tensor, `-` if it is passed through.
    """

    takes_plain = True
    preprocess_is_pure = True
    shapes_follow = True

    def __init__(self, op_name: str, each: str = "", number: str = "") -> None:
        """Make the strategy.

        Args:
            op_name: Name of the operation.
            each: Name of the elementwise operation; by default that of the operation itself.
            number: Its name where the second operand is a number, if it is another one.
        """
        super().__init__(op_name)
        self._each = each or op_name.removeprefix("_foreach_")
        self._number = number or self._each

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        values = (*args, *kwargs.values())
        lists = [value for value in values if _holds_tensors(value)]
        single = [value for value in values if hasattr(value, "_layout")]
        layouts = [item._layout for value in values for item in _items(value) if hasattr(item, "_layout")]
        alike = all(value._layout.is_replicated and not len(value.shape) for value in single)
        alike = alike and all(map(_alike, zip(*lists, strict=True)))
        if alike and not any(_needs_care(item) for value in (*lists, single) for item in value):
            form = "".join(["T" if hasattr(item, "_layout") else "-" for item in lists[0]])
            return *to_locals(args, kwargs), [*layouts, TOGETHER, form]
        return args, kwargs, [*layouts, EACH, "-" * len(lists[0])]

    def numbers_are_free(self, specs: Sequence[Spec]) -> bool:
        return True

    def infer_layout(self, cache_values: Sequence[Any]) -> InferResult:
        *layouts, _, form = cache_values
        firsts = iter(layouts)
        outputs = tuple(next(firsts) if kind == "T" else None for kind in form)
        # Positions are together without gradients only: the results start anew.
        return outputs, Effects(invariant=tuple(out.replicate_axes if out else 0 for out in outputs))

    def get_expand_impl(
        self, func: Callable[..., Any] | None, infer_result: Any, cache_values: Sequence[Any]
    ) -> Callable[..., Any] | None:
        return None if cache_values[-2] == TOGETHER else self._one_by_one

    def _one_by_one(self, *args: Any, **kwargs: Any) -> list[Any]:
        count = next(len(value) for value in args if _is_list(value))
        rows = zip(*(value if _is_list(value) else [value] * count for value in args), strict=True)
        return [self._at_one_position(*row, **kwargs) for row in rows]

    def _at_one_position(self, *values: Any, **kwargs: Any) -> Any:
        ops = get_platform().ops
        if len(values) == 4:
            # The fourth is the factor of addcmul and addcdiv, which take it by name.
            return getattr(ops, self._each)(*values[:3], value=values[3])
        is_number = len(values) > 1 and not hasattr(values[1], "shape")
        return getattr(ops, self._number if is_number else self._each)(*values, **kwargs)


@register_strategy("foreach_norm")
class ForeachNorm(Foreach):
    """`torch._foreach_norm`: the norm of each tensor, 0-d and Replicate."""

    def numbers_are_free(self, specs: Sequence[Spec]) -> bool:
        return False

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensors, order, dtype = self.bind(args, kwargs).values()
        local_args, local_kwargs, (*layouts, how, form) = super().preprocess(tuple([tensors]), {})
        order = float(order)
        if how == EACH or not (order > 0 or order == 0):
            return args, kwargs, [*layouts, EACH, "-" * len(tensors), order]
        local_kwargs = {} if dtype is None else {"dtype": dtype}
        return (*local_args, order), local_kwargs, [*layouts, how, form, order]

    def infer_layout(self, cache_values: Sequence[Any]) -> InferResult:
        outputs, _effects = super().infer_layout(cache_values[:-1])
        scalars = tuple(
            None if out is None else Layout(out.mesh, (Replicate(),) * out.mesh.ndim, 0) for out in outputs
        )
        return scalars, Effects(invariant=tuple(out.replicate_axes if out else 0 for out in scalars))

    def get_expand_impl(
        self, func: Callable[..., Any] | None, infer_result: Any, cache_values: Sequence[Any]
    ) -> Callable[..., Any] | None:
        *_, how, form, _order = cache_values
        layouts = iter(layouts_of(cache_values))
        if how == EACH:
            return self._one_by_one
        positions = [next(layouts) if kind == "T" else None for kind in form]
        if not any(layout.shard_axes for layout in positions if layout):
            return None

        def impl(tensors: Any, order: Any, **kwargs: Any) -> Any:
            norms = list(get_platform().ops._foreach_norm(tensors, order, **kwargs))
            return join_norms(norms, positions, order)

        return impl

    def _one_by_one(self, *args: Any, **kwargs: Any) -> list[Any]:
        tensors, order, dtype = self.bind(args, kwargs).values()
        norm = get_platform().ops.vector_norm
        return [
            norm(tensor, order) if dtype is None else norm(tensor, order, dtype=dtype) for tensor in tensors
        ]


def join_norms(norms: list[Any], layouts: Sequence[Layout | None], order: float) -> list[Any]:
    """The norms of whole tensors from those of their pieces.

    Args:
        norms: This rank's norm of each tensor, 0-d.
        layouts: How each lies on the mesh, without Partial; None for a plain one.
        order: Order of the norm, not negative.
    """
    ops = get_platform().ops
    mesh = next(layout.mesh for layout in layouts if layout)
    power = order if 0 < order < math.inf else 1
    for axis in range(mesh.ndim):
        split = [i for i, layout in enumerate(layouts) if layout and layout.shard_axes >> axis & 1]
        # One all-reduce for all norms of a dtype. All ranks hold the same list, so they agree on it.
        for dtype in dict.fromkeys(norms[i].dtype for i in split):
            same = [i for i in split if norms[i].dtype == dtype]
            stacked = ops.stack([norms[i] for i in same])
            if order == math.inf:
                joined = all_reduce(stacked, mesh, axis, "max")
            else:
                joined = ops.pow(all_reduce(ops.pow(stacked, power), mesh, axis), 1 / power)
            for i, norm in zip(same, ops.unbind(joined), strict=True):
                norms[i] = norm
    return norms


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _items(value: Any) -> Sequence[Any]:
    return value if _is_list(value) else (value,)


def _holds_tensors(value: Any) -> bool:
    return _is_list(value) and bool(value) and hasattr(value[0], "shape")


def _needs_care(tensor: Any) -> bool:
    """Whether a tensor tracks a gradient, or is a copy that stands for a view."""
    spec = getattr(tensor, "_spec", None)
    return get_platform().tracks_gradient(to_local(tensor)) or (spec is not None and spec.copied)


def _alike(tensors: Sequence[Any]) -> bool:
    """Whether the tensors of one position are all plain, or of one shape and layout without Partial."""
    first = tensors[0]
    layout = getattr(first, "_layout", None)
    if any(
        getattr(tensor, "_layout", None) is not layout or tensor.shape != first.shape
        for tensor in tensors[1:]
    ):
        return False
    return layout is None or not layout.partial_axes
