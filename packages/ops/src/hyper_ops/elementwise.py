"""Elementwise operations: unary, binary and ternary ones with broadcasting, their in-place forms, fills.

On one mesh axis, for operands of one shape (a dim of size 1, or one that is not there, is Replicate
instead)::

    S(d) S(d) ... -> S(d)

and the rows over Partial that the operation's algebra allows (`partial_algebra`), among them `P + -> P` for
a sum: what is added to a Partial(sum), tensor or number, enters once. A number, or the constant that `lerp`
or `addcmul` imply, enters by value: as it is on coordinate 0, as zero on the others, in the same graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from hyper_dispatch import Row, RowsOp, axis_placements, layouts_of, register_strategy
from hyper_dispatch.distributed_op import to_locals
from hyper_dispatch.rows import match_row
from hyper_dtensor import Spec, get_platform
from hyper_dtensor.collectives import enter_once
from hyper_dtensor.copied import refuse_write
from hyper_layout import DeviceMesh, Layout
from hyper_ops.broadcasting import broadcast_letters, letters_of, shard_rows
from hyper_ops.partial_algebra import ALGEBRAS, TENSOR, Facts, kind_of, numbers_once, rows_for
from hyper_ops.pieces import number_once

_UNGRADED = ("max", "min", "prod")


@register_strategy("elementwise")
class Elementwise(RowsOp):
    """One value of the result for each value of the (broadcast) operands.

    cache_values: the layouts, the letters of broadcast operands (empty where all have one shape), and where
    an operand is Partial the kinds of all arguments, and whether rows for max and min may be used.
    """

    needs_signature = True
    shapes_follow = True
    algebras: ClassVar[frozenset[str]] = ALGEBRAS
    preprocess_is_pure = True

    def numbers_are_free(self, specs: Sequence[Spec]) -> bool:
        return not any(spec.layout.partial_axes for spec in specs)

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bound = self.bind(args, kwargs)
        if bound.get("inplace") and bound["input"]._spec.copied:
            refuse_write(bound["input"], self.op_name)
        layouts: list[Layout] = []
        shapes: list[tuple[int, ...]] = []
        partial = 0
        for value in bound.values():
            layout = getattr(value, "_layout", None)
            if layout is not None:
                layouts.append(layout)
                shapes.append(value.shape)
                partial |= layout.partial_axes
        letters = ""
        if len(shapes) > 1 and any(shape != shapes[0] for shape in shapes):
            letters = broadcast_letters(self.op_name, tuple(shapes), self.inplace)
        if partial:
            return self._preprocess_partial(bound, args, kwargs, [*layouts, letters])
        local_args, local_kwargs = to_locals(args, kwargs)
        return local_args, local_kwargs, [*layouts, letters]

    def _preprocess_partial(
        self, bound: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any], values: list[Any]
    ) -> Any:
        """Partial operands: arguments by position, so that a number is found in every form of a call."""
        platform = get_platform()
        arguments = list(bound.values())
        kinds = "".join([TENSOR if hasattr(value, "_layout") else kind_of(value) for value in arguments])
        tensors = [value.to_local() for value in arguments if hasattr(value, "_layout")]
        waiting = {op for layout in layouts_of(values) for op in layout.partial}
        # Asked only where it decides: the answer is part of the cache key.
        ungraded = bool(waiting.intersection(_UNGRADED)) and not any(map(platform.tracks_gradient, tensors))
        floating = all(map(platform.is_floating, tensors))
        signature = self.signature
        assert signature is not None
        keywords = signature.canonical(kwargs)
        named = {name: value for name, value in keywords.items() if signature.keyword_only(name)}
        last = max([len(args), *(signature.names.index(name) + 1 for name in keywords if name not in named)])
        local_args, local_kwargs = to_locals(tuple(arguments[:last]), named)
        return local_args, local_kwargs, [*values, kinds, ungraded, floating]

    def rows(self, cache_values: Sequence[Any]) -> list[Row]:
        layouts = layouts_of(cache_values)
        letters, *facts = cache_values[len(layouts) :]
        rows = shard_rows(letters_of(letters, layouts), self.output_ndims(cache_values)[0])
        return rows + [tensors for _, tensors in _partial_rows(self.algebra, facts)]

    def output_ndims(self, cache_values: Sequence[Any]) -> tuple[int]:
        return (max(layout.ndim for layout in layouts_of(cache_values)),)

    def letters(self, cache_values: Sequence[Any]) -> list[str]:
        layouts = layouts_of(cache_values)
        return letters_of(cache_values[len(layouts)], layouts)

    def get_expand_impl(
        self, func: Callable[..., Any] | None, infer_result: Any, cache_values: Sequence[Any]
    ) -> Callable[..., Any] | None:
        layouts = layouts_of(cache_values)
        _, *facts = cache_values[len(layouts) :]
        if not facts:
            return None
        kinds = facts[0]
        mesh = layouts[0].mesh
        numbers: dict[int, list[int]] = {}
        constant: list[int] = []
        rows = _partial_rows(self.algebra, facts)
        for axis, column in enumerate(zip(*map(axis_placements, layouts), strict=True)):
            for full, tensors in rows:
                if match_row([tensors], column):
                    for parameter in numbers_once(full, kinds):
                        numbers.setdefault(parameter, []).append(axis)
                    if str(full) == _IMPLIED_CONSTANT.get(self.algebra):
                        constant.append(axis)
                    break
        if not numbers and not constant:
            return None
        algebra, inplace = self.algebra, self.inplace
        writes = algebra in ("fill", "masked")  # the number takes the dtype of the tensor

        def impl(*args: Any, **kwargs: Any) -> Any:
            for parameter, axes in numbers.items():
                number = number_once(args[parameter], args[0] if writes else None, mesh, axes)
                args = (*args[:parameter], number, *args[parameter + 1 :])
            if constant:
                return _with_constant(algebra, inplace, mesh, constant, *args, **kwargs)
            assert func is not None
            return func(*args, **kwargs)

        return impl


# The row of an algebra in which a constant that no argument spells enters once.
_IMPLIED_CONSTANT = {
    "lerp": "R R P(sum) -> P(sum)",
    "addcmul": "P(sum) R R -> P(sum)",
    "addcdiv": "P(sum) R R -> P(sum)",
}


def _partial_rows(algebra: str, facts: Sequence[Any]) -> list[tuple[Row, Row]]:
    """`(over all parameters, over the tensors)`; none without Partial operands."""
    if not facts:
        return []
    return rows_for(algebra, Facts(*facts))


def _with_constant(
    algebra: str,
    inplace: bool,
    mesh: DeviceMesh,
    axes: Sequence[int],
    first: Any,
    second: Any,
    third: Any,
    value: Any = 1,
) -> Any:
    """The operation with its implied constant entering once; its operands are varying views."""
    ops = get_platform().ops
    if algebra == "lerp":
        constant, rest = first, ops.mul(third, ops.sub(second, first))
    else:
        join = ops.mul if algebra == "addcmul" else ops.div
        constant, rest = join(ops.mul(second, value), third), first
    for axis in axes:
        constant = enter_once(constant, mesh, axis, varying=True)
    return ops.add_(rest, constant) if inplace else ops.add(rest, constant)
