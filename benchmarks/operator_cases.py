"""Operators: repeated calls with and without gradients, and first calls of a signature."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from benchmarks.case import OURS, Bound, Case
from benchmarks.library import Library, Maker, Operator
from benchmarks.timing import Call, Side
from hyper_dispatch import dispatcher

__all__ = ["OPERATOR", "first_calls", "first_uses", "new_operands", "repeated"]

OPERATOR = "operator"
NEW_OPERANDS = "operator on new operands"
FIRST_CALL = "first call of a signature"
NEW_SHAPE = "first call of a shape"
FIRST_USE = "first use in the process"

Libraries: TypeAlias = Sequence[Library]
Operators: TypeAlias = Mapping[str, Operator]


def repeated(libraries: Libraries, operators: Operators, bound: Bound | None = None) -> Iterator[Case]:
    """The same call again and again: what was inferred is found."""
    for grad, (name, operator) in itertools.product((True, False), operators.items()):
        sides = {library.name: _again(operator, Maker(library, grad=grad)) for library in libraries}
        title = name if grad else f"{name}, no grad"
        yield Case(OPERATOR, title, sides, bound, grad)


def new_operands(libraries: Libraries, operators: Operators) -> Iterator[Case]:
    """Operators that use a whole tensor differently on each rank, on tensors that were not used before.

    Ours then makes the view that sums up the gradient, once per tensor; in `repeated` it exists.
    """
    for name, operator in operators.items():
        sides = {library.name: _on_new(operator, Maker(library, grad=True)) for library in libraries}
        yield Case(NEW_OPERANDS, name, sides)


def first_calls(libraries: Libraries, operators: Operators, bound: Bound | None = None) -> Iterator[Case]:
    """Calls of which nothing was inferred before.

    torch DTensor has not seen the shapes. Ours has not seen them either, and forgets all that it inferred.
    """
    note = "each call has a shape that was not seen before; ours also forgot all layouts"
    for name, operator in operators.items():
        sides = {lib.name: _each_new(operator, lib, forget=lib.name == OURS) for lib in libraries}
        yield Case(FIRST_CALL, name, sides, bound, one_call=True, note=note)
    for name, operator in operators.items():
        sides = {lib.name: _each_new(operator, lib, forget=False) for lib in libraries}
        yield Case(NEW_SHAPE, name, sides, one_call=True, note="ours has seen the layouts with other shapes")


def first_uses(libraries: Libraries, operators: Operators) -> Iterator[Case]:
    """The first call of each operator in this process."""
    for name, operator in operators.items():
        sides = {library.name: _again(operator, Maker(library, grad=True)) for library in libraries}
        yield Case(FIRST_USE, name, sides, once=True, note="a single call")


def _again(operator: Operator, maker: Maker) -> Side:
    call = operator(maker)
    return lambda count: itertools.repeat(call, count)


def _on_new(operator: Operator, maker: Maker) -> Side:
    return lambda count: [operator(maker) for _ in range(count)]


# First calls of a signature and of a shape together take no shape twice; all are too small to compute much.
_SHAPES = list(itertools.product(range(17, 49), (4, 8, 12, 20, 24, 28, 32, 36)))
_unused: dict[tuple[str, str], Iterator[tuple[int, int]]] = {}


def _each_new(operator: Operator, library: Library, *, forget: bool) -> Side:
    shapes = _unused.setdefault((operator.__name__, library.name), iter(_SHAPES))

    def calls(count: int) -> Iterable[Call]:
        made = [operator(Maker(library, *next(shapes), grad=True)) for _ in range(count)]
        if forget:
            dispatcher.clear_cache()
        return made

    return calls
