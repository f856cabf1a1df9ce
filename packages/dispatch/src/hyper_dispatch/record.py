"""What an inference leaves behind: the gradient state of each output, and which operand enters how.

Both follow from the operands' specs and the strategy's effects alone (design section 3, rules 2 and 4);
strategies know nothing of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from hyper_dispatch.distributed_op import DistributedOp, InferResult
from hyper_dispatch.effects import NO_EFFECTS, Effects
from hyper_dtensor import Spec
from hyper_layout import Layout

_FORMS: Final = 64
"""Most forms of one operation that are remembered: a caller may make a new function for every call."""


class Entrance(NamedTuple):
    """An operand that does not enter as its bare local."""

    operand: int
    view_axes: int
    once_axes: int


class Record:
    """A finished inference, an entry of the layout cache: what equivalent calls have in common.

    Attributes:
        layouts: The output layouts.
        specs: Layout and gradient state of each output; None for one that is passed through.
        shapes: Global shape of each output where the rule knows it, else None.
        entrances: The operands that enter through a varying view or once.
        views: Whether the outputs are views of operand 0.
        derives: Whether the outputs derive their varying view from operand 0.
        draws: Layout of the output of an operation that draws random numbers, else None.
        state_change: How an in-place call would change the gradient state of its target, or None.
        writes: Whether operand 0 is written in place.
        copied: Whether a copy that stands for a view (see `Spec`) is among operands and outputs.
        wrap_output: The strategy's own `wrap_output`, or None.
    """

    __slots__ = (
        "_impls",
        "_infer_result",
        "_op",
        "copied",
        "derives",
        "draws",
        "entrances",
        "layouts",
        "shapes",
        "shapes_follow",
        "specs",
        "state_change",
        "views",
        "wrap_output",
        "writes",
    )

    def __init__(
        self, op: DistributedOp, specs: Sequence[Spec], cache_values: Sequence[Any], infer_result: InferResult
    ) -> None:
        """Derive the record.

        An operation varies on an axis if an operand is Shard, Partial or varying there, or an output is Shard
        or Partial there. Operands that are invariant there enter through their varying view, or once where
        the effects say so; Replicate outputs are varying there unless the effects call them invariant.

        Args:
            op: The strategy.
            specs: Layout and gradient state of the operands, in order.
            cache_values: As `preprocess` made them.
            infer_result: As `infer_layout` derived it.
        """
        layouts, extra_info = infer_result
        effects = extra_info if isinstance(extra_info, Effects) else NO_EFFECTS
        varies, invariant_axes, copied = 0, 0, False
        for spec in specs:
            invariant_axes |= spec.invariant
            varies |= spec.layout.shard_axes | spec.layout.partial_axes | spec.varying
            copied = copied or spec.copied
        for output in layouts:
            if output is not None:
                varies |= output.shard_axes | output.partial_axes
        views = op.views(cache_values)
        copies = effects.copies or (views and specs[0].copied)
        made: list[Spec | None] = []
        for number, output in enumerate(layouts):
            if output is None:
                made.append(None)
                continue
            invariant = effects.invariant_of(number) if effects.invariant else 0
            made.append(Spec.of(output, varies & output.replicate_axes & ~invariant, copies))
        self.layouts = tuple(layouts)
        self.specs = tuple(made)
        self.shapes: Sequence[tuple[int, ...] | None] = effects.shapes or (None,) * len(layouts)
        self.entrances = (
            _entrances(op, specs, varies, effects) if varies & invariant_axes or effects.once else ()
        )
        self.views = views
        self.shapes_follow = op.shapes_follow
        self.derives = views and specs[0].invariant != 0
        self.copied = copies or copied
        self.draws: Layout | None = next(filter(None, layouts), None) if op.draws(cache_values) else None
        self.writes = op.inplace
        self.state_change: str | None = None
        if op.inplace and self.specs[0] is not None and self.specs[0] is not specs[0]:
            self.state_change = f"{self.specs[0]!r} instead of {specs[0]!r}"
        own_wrap = type(op).wrap_output is not DistributedOp.wrap_output
        self.wrap_output: Callable[[Any, Any], Any] | None = op.wrap_output if own_wrap else None
        self._op = op
        self._infer_result = infer_result
        self._impls: dict[Callable[..., Any], Callable[..., Any]] = {}

    def impl(self, func: Callable[..., Any], cache_values: Sequence[Any]) -> Callable[..., Any]:
        """What runs on the locals: the strategy's implementation over `func`, or `func` itself.

        Forms of one operation (function, method) share the record, each with its own implementation.
        """
        known = self._impls.get(func)
        if known is None:
            expanded = self._op.get_expand_impl(func, self._infer_result, cache_values)
            if len(self._impls) >= _FORMS:
                self._impls.clear()
            known = self._impls[func] = expanded or func
        return known


def _entrances(
    op: DistributedOp, specs: Sequence[Spec], varies: int, effects: Effects
) -> tuple[Entrance, ...]:
    found = []
    for number, spec in enumerate(specs):
        if op.inplace and number == 0:
            continue  # it is written to: a view of it would be lost
        once = effects.once_of(number) & spec.layout.replicate_axes if effects.once else 0
        view = varies & spec.invariant & ~once
        if view or once:
            found.append(Entrance(number, view, once))
    return tuple(found)
