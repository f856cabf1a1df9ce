"""What is known about a call before its values are: a ready plan to run it.

Calls of one form (the same function, specs, shapes, dtypes and static values in the same places) get the same
arguments from `preprocess`, up to the local tensors. A plan keeps those arguments with places for the local
tensors, so that such a call is filled in and run without asking the strategy again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from hyper_dispatch.cache import ATOMS, is_atom
from hyper_dispatch.record import Record
from hyper_dtensor import DTensor, Platform, Spec
from hyper_dtensor.meta import TensorMeta, meta_of

Args = Sequence[Any]
Kwargs = dict[str, Any]


class Place(NamedTuple):
    """Where a call passes a value."""

    by_keyword: bool
    key: Any
    """Position or keyword name."""
    item: int
    """Index in a list that is passed there; -1 for the argument itself."""


class CallPlan:
    """How to run the calls of one form.

    Attributes:
        record: The inference.
        impl: What runs on the locals.
        args: Positional arguments; what stands in the places of local tensors is not used.
        kwargs: Keyword arguments, likewise.
        slots: `(position, operand)` of the local tensors that are positional arguments themselves.
        lists: `(position, list, tuple or not, ((index, operand), ...))` of lists with local tensors.
        named: `(name, operand)` of the local tensors that are keyword arguments themselves.
        named_items: `(place, operand)` of the local tensors in lists among the keyword arguments.
        entrances: The operands that do not enter as their bare local, in calls of this form.
        result: What the last call has in common with the next ones, if its output was one tensor that was
            simply wrapped: `(local shape, dtype, spec, meta)`; else None.
        grad: Whether gradients are on and an operand needs one.
        checks: Whether gradients are on and an operand is untracked.
        loses_alias: Whether the outputs are views of operand 0's varying view, not of itself.
        untracked: Whether gradients are off and an operand needs one.
        is_simple: Whether the call is filled in by position, run and wrapped, and nothing else.
        is_direct: Whether its arguments are the operands in order.
        is_followed: Whether they are the operands in order, and then static values.
        tail: The static positional arguments that follow the operands.
        source: Where operand 0 is passed if the outputs derive their varying view from it, else None.
    """

    __slots__ = (
        "args",
        "checks",
        "entrances",
        "grad",
        "impl",
        "is_direct",
        "is_followed",
        "is_simple",
        "kwargs",
        "lists",
        "loses_alias",
        "named",
        "named_items",
        "record",
        "result",
        "slots",
        "source",
        "tail",
        "untracked",
    )

    def __init__(
        self,
        record: Record,
        impl: Callable[..., Any],
        operands: Sequence[DTensor],
        args: Sequence[Any],
        kwargs: Kwargs,
        grad_enabled: bool,
    ) -> None:
        """Make the plan of a call from what `preprocess` returned."""
        places = find_places([operand._local for operand in operands], args, kwargs)
        # With gradients off, a result of operands that needed one counts as they do.
        needs = [operand.requires_grad or (not grad_enabled and operand._untracked) for operand in operands]
        passed = [(place, number) for number, place in enumerate(places) if place is not None]
        self.record = record
        self.impl = impl
        # Local tensors are not kept alive, and lists are not shared with the caller.
        blank, self.kwargs = replaced(_own(tuple(args)), _own(kwargs), [(place, None) for place, _ in passed])
        self.args = list(blank)
        self.slots = tuple((place.key, number) for place, number in passed if _is_positional(place))
        self.lists = tuple(_lists(self.args, passed))
        by_name = [(place, number) for place, number in passed if place.by_keyword]
        self.named = tuple((place.key, number) for place, number in by_name if place.item < 0)
        self.named_items = tuple((place, number) for place, number in by_name if place.item >= 0)
        # A view matters to the gradient alone, a value that enters once matters always.
        self.entrances = tuple(
            entrance
            for entrance in record.entrances
            if places[entrance.operand] is not None
            and (entrance.once_axes or (grad_enabled and needs[entrance.operand]))
        )
        self.result: tuple[Any, Any, Spec, TensorMeta] | None = None
        self.grad = grad_enabled and any(needs)
        self.checks = grad_enabled and any(operand._untracked for operand in operands)
        self.untracked = not grad_enabled and any(needs)
        self.source = places[0] if record.derives and grad_enabled and needs[0] else None

        self.loses_alias = record.views and any(
            entrance.operand == 0 and entrance.view_axes for entrance in self.entrances
        )
        self.is_simple = not (
            self.checks
            or self.loses_alias
            or self.source is not None
            or record.draws is not None
            or record.writes
            or record.copied
        )
        self.tail = tuple(self.args[len(operands) :])
        in_order = tuple((number, number) for number in range(len(operands)))
        self.is_followed = self.slots == in_order and not self.lists and not by_name
        self.is_direct = self.is_followed and not self.tail and not self.kwargs

    def fill(self, locals_: Sequence[Any]) -> tuple[Args, Kwargs]:
        """The arguments of a call with these local tensors."""
        args = self.args.copy()
        for position, number in self.slots:
            args[position] = locals_[number]
        for position, items, is_tuple, places in self.lists:
            filled = items.copy()
            for index, number in places:
                filled[index] = locals_[number]
            args[position] = tuple(filled) if is_tuple else filled
        if not self.named and not self.named_items:
            return args, self.kwargs
        kwargs = self.kwargs.copy()
        for name, number in self.named:
            kwargs[name] = locals_[number]
        if self.named_items:
            _, kwargs = replaced((), kwargs, [(place, locals_[number]) for place, number in self.named_items])
        return args, kwargs


def _lists(
    args: Sequence[Any], passed: Sequence[tuple[Place, int]]
) -> Iterator[tuple[int, list[Any], bool, tuple[tuple[int, int], ...]]]:
    for position, value in enumerate(args):
        places = tuple(
            (place.item, number)
            for place, number in passed
            if not place.by_keyword and place.item >= 0 and place.key == position
        )
        if places:
            yield position, list(value), isinstance(value, tuple), places


def _own(value: Any) -> Any:
    """A copy of the lists and dicts in a value."""
    if value.__class__ is list or value.__class__ is tuple:
        return value.__class__([_own(item) for item in value])
    return {name: _own(item) for name, item in value.items()} if value.__class__ is dict else value


def _is_positional(place: Place) -> bool:
    return not place.by_keyword and place.item < 0


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


def replaced(
    args: Sequence[Any], kwargs: Kwargs, changes: Sequence[tuple[Place, Any]]
) -> tuple[Args, Kwargs]:
    """The call with other values at some places; the given containers are left alone."""
    new_args, new_kwargs = list(args), dict(kwargs)
    for place, value in changes:
        container: Any = new_kwargs if place.by_keyword else new_args
        if place.item >= 0:
            old = container[place.key]
            items = list(old)
            items[place.item] = value
            value = tuple(items) if isinstance(old, tuple) else items
        container[place.key] = value
    return tuple(new_args), new_kwargs


OPERANDS: Final[set[type]] = set()
"""The classes of the distributed tensors that were met."""

_BOUNDS: Final = frozenset({int, type(None)})

NO_FORM: Final = object()
"""In place of the form of an argument: calls with it are not planned ahead."""


def form_of(platform: Platform, value: Any) -> Any:
    """The form of a static argument: equal exactly for values of one type that are the same, or `NO_FORM`."""
    kind = value.__class__
    if kind is float:
        # 0.0 equals -0.0, and a strategy may tell them apart.
        return (kind, value) if value else NO_FORM
    if kind is list or kind is tuple:
        found = tuple([form_of(platform, item) for item in value])
        return NO_FORM if NO_FORM in found else (kind, found)
    if kind is slice:
        bounds = (value.start, value.stop, value.step)
        return (kind, bounds) if _BOUNDS.issuperset(map(type, bounds)) else NO_FORM
    if kind not in ATOMS and (isinstance(value, DTensor) or platform.is_tensor(value) or not is_atom(value)):
        return NO_FORM
    return kind, value


def visit(
    platform: Platform,
    value: Any,
    form: list[Any],
    operands: list[DTensor],
    locals_: list[Any],
) -> None:
    """Add an argument to the form of a call, and its distributed tensors to the operands.

    Distributed tensors count by spec, meta and need of a gradient. One level of lists is looked into.
    """
    kind = type(value)
    if kind is list or kind is tuple:
        form += (kind, len(value))
    else:
        value = (value,)
    for item in value:
        kind = type(item)
        if kind in OPERANDS:
            local = item._local
            form += (item._spec, item._meta or meta_of(item), local.requires_grad)
            operands.append(item)
            locals_.append(local)
        elif kind in ATOMS:
            form += (kind, item)
        elif (
            kind is slice and type(item.start) in _BOUNDS and type(item.stop) in _BOUNDS and item.step is None
        ):
            form += (kind, item.start, item.stop)
        elif isinstance(item, DTensor):
            OPERANDS.add(kind)
            visit(platform, item, form, operands, locals_)
        else:
            form.append(form_of(platform, item))


def can_be_kept(platform: Platform, form: Sequence[Any], plan: CallPlan) -> bool:
    """Whether calls of a form may use the plan: all arguments have a form, and it holds values only.

    A strategy that computes an argument from the values of the operands is asked anew at each call.
    """
    values = (*plan.args, *plan.kwargs.values())
    if any(item is NO_FORM for item in form):
        return False
    return all(value.__class__ is float or form_of(platform, value) is not NO_FORM for value in values)


def items(value: Any) -> Sequence[Any]:
    """The items of a list or tuple, or the value alone."""
    return value if isinstance(value, (list, tuple)) else (value,)


def flat(args: Args, kwargs: Kwargs) -> Iterator[Any]:
    """All arguments of a call, lists item by item."""
    for value in (*args, *kwargs.values()):
        yield from items(value)
