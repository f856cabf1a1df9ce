"""What is known about a call before its values are: a ready plan to run it.

Calls of one form (the same function, specs, shapes, dtypes and static values in the same places) get the same
arguments from `preprocess`, up to the local tensors. A plan keeps those arguments with places for the local
tensors, so that such a call is filled in and run without asking the strategy again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from hyper_dispatch.cache import ATOMS
from hyper_dispatch.record import Record
from hyper_dtensor import DTensor
from hyper_dtensor.meta import TensorMeta

Args = Sequence[Any]
Kwargs = dict[str, Any]


_CONTAINERS = frozenset({list, tuple, dict})


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
        is_free: Whether the floats among the arguments are those of the call and not of the plan.
        record: The inference.
        impl: What runs on the locals.
        args: Positional arguments; what stands in the places of local tensors is not used.
        kwargs: Keyword arguments, likewise.
        slots: `(position, operand)` of the local tensors that are positional arguments themselves.
        lists: `(position, first operand, one past the last, tuple or not)` of lists of local tensors.
        named: `(name, operand)` of the local tensors that are keyword arguments themselves.
        nested: `(place, operand)` of the other local tensors: in lists that hold more than these, or in lists
            among the keyword arguments.
        entrances: The operands that do not enter as their bare local, in calls of this form.
        result: What the last call has in common with the next ones, if its output was one tensor that was
            simply wrapped: `(local shape, dtype, meta)`; else None.
        shapes: Global shape of each output where it is known, by the rule or from a call before.
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
        "is_free",
        "is_simple",
        "kwargs",
        "lists",
        "loses_alias",
        "named",
        "nested",
        "record",
        "result",
        "shapes",
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
        is_free: bool,
    ) -> None:
        """Make the plan of a call from what `preprocess` returned."""
        locals_, needs, untracked = [], [], False
        for operand in operands:
            local, lost = operand._local, operand._untracked
            locals_.append(local)
            # With gradients off, a result of operands that needed one counts as they do.
            needs.append(local.requires_grad or (not grad_enabled and lost))
            untracked = untracked or lost
        places = find_places(locals_, args, kwargs)
        slots: list[tuple[int, int]] = []
        named: list[tuple[Any, int]] = []
        nested: list[tuple[Place, int]] = []
        for number, place in enumerate(places):
            if place is None:
                continue
            if place.item >= 0:
                nested.append((place, number))
            elif place.by_keyword:
                named.append((place.key, number))
            else:
                slots.append((place.key, number))
        self.record = record
        self.impl = impl
        self.is_free = is_free
        # Local tensors are not kept alive, and lists are not shared with the caller.
        self.args = list(args)
        for position, value in enumerate(args):
            if type(value) in _CONTAINERS:
                self.args[position] = _own(value)
        self.kwargs = _own(kwargs) if kwargs else {}
        if named or nested:
            blank, self.kwargs = replaced(
                self.args, self.kwargs, [(place, None) for place in places if place is not None]
            )
            self.args = list(blank)
        else:
            for position, _ in slots:
                self.args[position] = None
        self.slots = tuple(slots)
        self.lists = tuple(_lists(self.args, nested)) if nested else ()
        if self.lists:
            whole = {position for position, *_ in self.lists}
            nested = [each for each in nested if each[0].by_keyword or each[0].key not in whole]
        self.named = tuple(named)
        self.nested = tuple(nested)
        # A view matters to the gradient alone, a value that enters once matters always.
        entrances = []
        self.loses_alias = False
        for entrance in record.entrances:
            number = entrance.operand
            if places[number] is not None and (entrance.once_axes or (grad_enabled and needs[number])):
                entrances.append(entrance)
                self.loses_alias = self.loses_alias or (
                    record.views and number == 0 and entrance.view_axes != 0
                )
        self.entrances = tuple(entrances)
        self.shapes = record.shapes
        self.result: tuple[Any, Any, TensorMeta] | None = None
        self.grad = grad_enabled and True in needs
        self.checks = grad_enabled and untracked
        self.untracked = not grad_enabled and True in needs
        self.source = places[0] if record.derives and grad_enabled and needs[0] else None
        self.is_simple = not (
            self.checks
            or self.loses_alias
            or self.source is not None
            or record.draws is not None
            or record.writes
            or record.copied
        )
        self.tail = tuple(self.args[len(operands) :])
        numbers = range(len(operands))
        self.is_followed = self.slots == tuple(zip(numbers, numbers, strict=True))
        self.is_direct = self.is_followed and not self.tail and not self.kwargs

    def fill(self, locals_: Sequence[Any], args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        """The arguments of the local implementation, for a call with these local tensors and arguments."""
        local_args = list(args) if self.is_free else self.args.copy()
        local_kwargs = kwargs if self.is_free else self.kwargs
        for position, number in self.slots:
            local_args[position] = locals_[number]
        for position, first, end, is_tuple in self.lists:
            part = locals_[first:end]
            local_args[position] = tuple(part) if is_tuple else part
        if self.named:
            local_kwargs = local_kwargs.copy()
            for name, number in self.named:
                local_kwargs[name] = locals_[number]
        if self.nested:
            return replaced(
                local_args, local_kwargs, [(place, locals_[number]) for place, number in self.nested]
            )
        return local_args, local_kwargs


def _lists(args: Sequence[Any], nested: Sequence[tuple[Place, int]]) -> Iterator[tuple[int, int, int, bool]]:
    """The positional lists that hold operands which follow each other, and nothing else."""
    for position, value in enumerate(args):
        if isinstance(value, (list, tuple)):
            held = [
                (place.item, number)
                for place, number in nested
                if not place.by_keyword and place.key == position
            ]
            first = held[0][1] if held else 0
            if held and held == [(index, first + index) for index in range(len(value))]:
                yield position, first, first + len(value), isinstance(value, tuple)


def _own(value: Any) -> Any:
    """A copy of the lists and dicts in a value."""
    kind = type(value)
    if kind is list or kind is tuple:
        return kind([_own(item) if type(item) in _CONTAINERS else item for item in value])
    if kind is dict:
        return {name: _own(item) if type(item) in _CONTAINERS else item for name, item in value.items()}
    return value


def find_places(wanted: Sequence[Any], args: Args, kwargs: Kwargs) -> list[Place | None]:
    """Where a call passes each of these objects, found by identity, in order; None where it does not.

    An object that is wanted twice (`x + x`) gets its two places in their order.
    """
    places: list[Place | None] = [None] * len(wanted)
    waiting: dict[int, list[int]] = {}
    for number, value in enumerate(wanted):
        waiting.setdefault(id(value), []).append(number)
    calls: tuple[tuple[bool, Iterable[tuple[Any, Any]]], ...] = (
        (False, enumerate(args)),
        (True, kwargs.items()),
    )
    for by_keyword, named in calls:
        for key, value in named:
            if not isinstance(value, (list, tuple)):
                numbers = waiting.get(id(value))
                if numbers:
                    places[numbers.pop(0)] = Place(by_keyword, key, -1)
            elif not ATOMS.issuperset(map(type, value)):
                for item, candidate in enumerate(value):
                    numbers = waiting.get(id(candidate))
                    if numbers:
                        places[numbers.pop(0)] = Place(by_keyword, key, item)
    return places


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
