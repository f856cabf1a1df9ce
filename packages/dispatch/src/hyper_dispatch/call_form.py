"""The form of a call: all of it but the values of its operands, as a key of ready plans.

A form reads from left to right and says of each argument what it is before what its value is, so that two
different calls never have one form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from hyper_dispatch.cache import ATOMS, is_atom
from hyper_dtensor import DTensor, Platform
from hyper_dtensor.meta import meta_of

OPERANDS: Final[set[type]] = set()
"""The classes of the distributed tensors that were met."""

_BOUNDS: Final = frozenset({int, type(None)})
_FLOAT: Final = frozenset({float})
"""The types of the items of a list of floats; in a form, such a list (`float` stands for one number)."""

NO_FORM: Final = object()
"""In place of the form of an argument: calls with it are not planned ahead. Plain tensors have none, nor have
named tuples and lists of other classes that hold distributed ones."""


def visit(
    platform: Platform,
    value: Any,
    form: list[Any],
    numbers: list[float],
    operands: list[DTensor],
    locals_: list[Any],
    needs: bool,
) -> None:
    """Add an argument to the form of a call, and its distributed tensors to the operands.

    Distributed tensors count by meta and need of a gradient. Floats are put aside into ``numbers``: only some
    operations depend on their values. One level of lists is looked into; whether the items of a list of
    distributed tensors need gradients counts only if ``needs`` says so.
    """
    kind = type(value)
    if kind is list or kind is tuple:
        form.append(kind)
        form.append(len(value))
        kinds = set(map(type, value))
        if kinds and OPERANDS.issuperset(kinds):
            locals_of = [item._local for item in value]
            form.append(tuple([item._meta or meta_of(item) for item in value]))
            if needs:
                form.append(tuple([local.requires_grad for local in locals_of]))
            operands += value
            locals_ += locals_of
        elif ATOMS.issuperset(kinds):
            form.append(tuple([*map(type, value)]))
            form.append(tuple(value))
        elif kinds == _FLOAT:
            form.append(_FLOAT)
            numbers += value
        else:
            for item in value:
                _visit_item(platform, item, form, numbers, operands, locals_)
    else:
        _visit_item(platform, value, form, numbers, operands, locals_)


def _visit_item(
    platform: Platform,
    item: Any,
    form: list[Any],
    numbers: list[float],
    operands: list[DTensor],
    locals_: list[Any],
) -> None:
    kind = type(item)
    if kind in OPERANDS:
        local = item._local
        form += (item._meta or meta_of(item), local.requires_grad)
        operands.append(item)
        locals_.append(local)
    elif kind in ATOMS:
        form += (kind, item)
    elif kind is float:
        form.append(kind)
        numbers.append(item)
    elif kind is slice and item.step is None and type(item.start) in _BOUNDS and type(item.stop) in _BOUNDS:
        form += (kind, item.start, item.stop)
    elif isinstance(item, DTensor):
        OPERANDS.add(kind)
        _visit_item(platform, item, form, numbers, operands, locals_)
    else:
        form.append(form_of(platform, item))


def form_of(platform: Platform, value: Any) -> Any:
    """The form of a static argument: equal exactly for values of one type that are the same, or `NO_FORM`."""
    kind = type(value)
    if kind is float:
        return (kind, value) if _tells_apart(value) else NO_FORM
    if kind is list or (issubclass(kind, tuple) and not hasattr(value, "__dict__")):
        found = tuple([form_of(platform, item) for item in value])
        return NO_FORM if NO_FORM in found else (kind, found)
    if kind is slice:
        bounds = (value.start, value.stop, value.step)
        return (kind, bounds) if _BOUNDS.issuperset(map(type, bounds)) else NO_FORM
    if kind not in ATOMS and (isinstance(value, DTensor) or platform.is_tensor(value) or not is_atom(value)):
        return NO_FORM
    return kind, value


def _tells_apart(number: float) -> bool:
    """Whether a number equals only itself: 0.0 equals -0.0, which strategies may tell apart; nan nothing."""
    return number != 0 and number == number


def holds_values_only(platform: Platform, values: Sequence[Any]) -> bool:
    """Whether arguments are static: none was computed from the values of the operands."""
    for value in values:
        kind = type(value)
        if kind in ATOMS or kind is float:
            continue  # numbers are told apart by the key, or are those of the call (`numbers_are_free`)
        if kind is list or kind is tuple:
            kinds = set(map(type, value))
            if ATOMS.issuperset(kinds) or (kind is list and kinds == _FLOAT):
                continue
        if form_of(platform, value) is NO_FORM:
            return False
    return True


def plain_sequences(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The call with plain lists and tuples for named ones that hold distributed tensors; None without any."""
    if not any(map(_is_named, (*args, *kwargs.values()))):
        return None
    return tuple(map(_plain_sequence, args)), {name: _plain_sequence(kwargs[name]) for name in kwargs}


def _is_named(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and type(value) not in (list, tuple)
        and any(isinstance(item, DTensor) for item in value)
    )


def _plain_sequence(value: Any) -> Any:
    if not _is_named(value):
        return value
    return list(value) if isinstance(value, list) else tuple(value)


def items(value: Any) -> Sequence[Any]:
    """The items of a list or tuple, or the value alone."""
    return value if isinstance(value, (list, tuple)) else (value,)


def flat(args: Sequence[Any], kwargs: dict[str, Any]) -> Iterator[Any]:
    """All arguments of a call, lists item by item."""
    for value in (*args, *kwargs.values()):
        yield from items(value)
