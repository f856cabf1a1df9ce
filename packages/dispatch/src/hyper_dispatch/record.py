"""What an inference leaves behind: which operand enters how, and what the outputs are.

The gradient states follow from the operands' specs and the strategy's effects alone (design section 3,
rules 2 and 4); strategies know nothing of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hyper_dispatch.distributed_op import DistributedOp
from hyper_dispatch.effects import NO_EFFECTS, Effects
from hyper_dtensor import DTensor, Spec
from hyper_dtensor.gradients import enter
from hyper_layout import Layout

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


class Place(NamedTuple):
    """Where a call passes a value."""

    by_keyword: bool
    key: Any
    """Position or keyword name."""
    item: int
    """Index in a list that is passed there; -1 for the argument itself."""


class Entrance(NamedTuple):
    """An operand that does not enter as its bare local."""

    operand: int
    view_axes: int
    once_axes: int
    place: Place


@dataclass(frozen=True, slots=True)
class Record:
    """A finished inference: everything about a call that does not depend on its values.

    Attributes:
        impl: The expand implementation, or None to run the operation itself.
        layouts: The output layouts.
        specs: Layout and gradient state of each output; None for one that is passed through.
        shapes: Global shape of each output where the rule knows it.
        entrances: The operands that enter through a varying view or once.
        source: Where operand 0 is passed if the outputs derive their varying view from it, else None.
        draws: Layout of the output of an operation that draws random numbers, else None.
        state_change: How an in-place call would change the gradient state of its target, or None.
        own_wrap: The strategy's own `wrap_output`, or None.
    """

    impl: Callable[..., Any] | None
    layouts: tuple[Layout | None, ...]
    specs: tuple[Spec | None, ...]
    shapes: tuple[tuple[int, ...] | None, ...]
    entrances: tuple[Entrance, ...]
    source: Place | None
    draws: Layout | None
    state_change: str | None
    own_wrap: Callable[[Any, Any], Any] | None


def make_record(
    op: DistributedOp,
    func: Callable[..., Any],
    operands: Sequence[DTensor],
    local_args: Args,
    local_kwargs: Kwargs,
    cache_values: Sequence[Any],
    infer_result: tuple[tuple[Layout | None, ...], Any],
) -> Record:
    """Derive the record of an inference.

    An operation varies on an axis if an operand is Shard, Partial or varying there, or an output is Shard or
    Partial there. Operands that are invariant there enter through their varying view, or once where the
    effects say so; Replicate outputs are varying there unless the effects say that they are invariant.
    """
    layouts, extra_info = infer_result
    effects = extra_info if isinstance(extra_info, Effects) else NO_EFFECTS
    varies = 0
    for operand in operands:
        layout = operand._spec.layout
        varies |= layout.shard_axes | layout.partial_axes | operand._spec.varying
    for output in layouts:
        if output is not None:
            varies |= output.shard_axes | output.partial_axes
    specs = tuple(
        None
        if output is None
        else Spec.of(output, varies & output.replicate_axes & ~effects.invariant_of(number))
        for number, output in enumerate(layouts)
    )
    places = find_places([operand._local for operand in operands], local_args, local_kwargs)
    first = operands[0]._spec
    change = None
    if op.inplace and specs[0] is not None and specs[0] is not first:
        change = f"{specs[0]!r} instead of {first!r}"
    return Record(
        impl=op.get_expand_impl(func, infer_result, cache_values),
        layouts=tuple(layouts),
        specs=specs,
        shapes=effects.shapes or (None,) * len(layouts),
        entrances=tuple(_entrances(op, operands, places, varies, effects)),
        source=places[0] if op.view_like and first.invariant else None,
        draws=next(filter(None, layouts), None) if op.draws(cache_values) else None,
        state_change=change,
        own_wrap=None if type(op).wrap_output is DistributedOp.wrap_output else op.wrap_output,
    )


def _entrances(
    op: DistributedOp,
    operands: Sequence[DTensor],
    places: Sequence[Place | None],
    varies: int,
    effects: Effects,
) -> Iterator[Entrance]:
    for number, (operand, place) in enumerate(zip(operands, places, strict=True)):
        if place is None or (op.inplace and number == 0):
            # Not passed on (only its layout or type counts), or written to: a view of it would be lost.
            continue
        once = effects.once_of(number) & operand._spec.layout.replicate_axes
        view = varies & operand._spec.invariant & ~once
        if view or once:
            yield Entrance(number, view, once, place)


def find_places(wanted: Sequence[Any], args: Sequence[Any], kwargs: Kwargs) -> list[Place | None]:
    """Where a call passes each of these objects, found by identity, in order; None where it does not.

    An object that is wanted twice (`x + x`) gets its two places in their order.
    """
    free = list(_passed(args, kwargs))
    places: list[Place | None] = []
    for each in wanted:
        for index, (place, value) in enumerate(free):
            if value is each:
                places.append(place)
                del free[index]
                break
        else:
            places.append(None)
    return places


def _passed(args: Sequence[Any], kwargs: Kwargs) -> Iterator[tuple[Place, Any]]:
    calls: tuple[tuple[bool, Iterable[tuple[Any, Any]]], ...] = (
        (False, enumerate(args)),
        (True, kwargs.items()),
    )
    for by_keyword, named in calls:
        for key, value in named:
            if isinstance(value, (list, tuple)):
                yield from ((Place(by_keyword, key, number), item) for number, item in enumerate(value))
            else:
                yield Place(by_keyword, key, -1), value


def read_place(place: Place, local_args: Sequence[Any], local_kwargs: Kwargs) -> Any:
    """The value passed at a place, or None if the call has no such place."""
    try:
        value = local_kwargs[place.key] if place.by_keyword else local_args[place.key]
        return value if place.item < 0 else value[place.item]
    except (LookupError, TypeError):
        return None


def replaced(
    local_args: Args, local_kwargs: Kwargs, changes: Sequence[tuple[Place, Any]]
) -> tuple[Args, Kwargs]:
    """The call with other values at some places; the given containers are left alone."""
    args, kwargs = list(local_args), local_kwargs
    for place, value in changes:
        if place.by_keyword and kwargs is local_kwargs:
            kwargs = dict(local_kwargs)
        container: Any = kwargs if place.by_keyword else args
        if place.item >= 0:
            old = container[place.key]
            items = list(old)
            items[place.item] = value
            value = tuple(items) if isinstance(old, tuple) else items
        container[place.key] = value
    return tuple(args), kwargs


def enter_operands(
    record: Record, operands: Sequence[DTensor], local_args: Args, local_kwargs: Kwargs
) -> tuple[Args, Kwargs]:
    """Put views and once-entered values in the place of bare locals.

    The places of the recorded call are used where they hold; an equivalent call in another form (by keyword
    instead of by position) is searched again.
    """
    changes = []
    places: Sequence[Place | None] | None = None
    for number, view_axes, once_axes, place in record.entrances:
        operand = operands[number]
        here: Place | None = place
        if read_place(place, local_args, local_kwargs) is not operand._local:
            if places is None:
                places = find_places([each._local for each in operands], local_args, local_kwargs)
            here = places[number]
        local = enter(operand, view_axes, once_axes)
        if local is not operand._local and here is not None:
            changes.append((here, local))
    return replaced(local_args, local_kwargs, changes) if changes else (local_args, local_kwargs)
