"""The cures of a refusal: redistributions of its operands that would make the call possible.

Every cure that is printed has been tried: the operation's own inference accepted its layouts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product
from typing import Final

from hyper_layout import Layout, LayoutError, Placement, Replicate, Shard, plan

MAX_CURES: Final = 2
_MAX_OPERANDS: Final = 4
"""Operands beyond these are not redistributed one by one; the cures that change all alike remain."""

_MAX_TRIALS: Final = 2000
"""A bound for operations of many operands on meshes of many axes."""


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand as a message and a cure see it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    itemsize: int
    layout: Layout
    fixed: bool = False
    """Whether it must stay as it is (the target of an in-place operation)."""


@dataclass(frozen=True, slots=True)
class Cure:
    """One way out: the calls to make and what they cost."""

    calls: tuple[str, ...]
    collectives: tuple[tuple[str, int], ...]
    bytes: int

    def __str__(self) -> str:
        cost = ", ".join(f"{count} {kind}" for kind, count in self.collectives) or "free"
        calls = " and ".join(self.calls[:2])
        more = len(self.calls) - 2
        return f"{calls} and {more} more alike  {cost}" if more > 0 else f"{calls}  {cost}"


@dataclass(frozen=True, slots=True)
class _Move:
    """One operand in another layout."""

    operand: int
    layout: Layout
    named: tuple[str, ...]
    """The arguments of its `redistribute`: `tp=S(0)`."""


def find_cures(
    operands: Sequence[Operand], axes: Sequence[int], accepts: Callable[[list[Layout]], bool]
) -> list[Cure]:
    """The cheapest redistributions after which the operation takes its operands.

    Args:
        operands: The operands of the refused call.
        axes: The mesh axes that stand in the way; all of the mesh's if none are known.
        accepts: Whether the operation's inference accepts these layouts.

    Returns:
        At most two cures, fewest bytes first.
    """
    moves = [
        [] if operand.fixed else list(_moves(number, operand, axes))
        for number, operand in enumerate(operands)
    ]
    accepted: list[tuple[_Move, ...]] = []
    changes: list[set[tuple[int, str]]] = []
    for candidate in islice(_candidates(moves), _MAX_TRIALS):
        # What contains an accepted candidate changes more than it must.
        change = {(move.operand, named) for move in candidate for named in move.named}
        if any(known <= change for known in changes):
            continue
        layouts = [operand.layout for operand in operands]
        for move in candidate:
            layouts[move.operand] = move.layout
        if accepts(layouts):
            accepted.append(candidate)
            changes.append(change)
    cures = [_cure(operands, candidate) for candidate in accepted]
    cures.sort(key=lambda cure: (cure.bytes, sum(count for _, count in cure.collectives), len(cure.calls)))
    return cures[:MAX_CURES]


def _moves(number: int, operand: Operand, axes: Sequence[int]) -> Iterator[_Move]:
    """Every layout that one `redistribute` by axis names reaches from this operand, fewest names first."""
    placements: list[Placement] = [Replicate(), *map(Shard, range(operand.layout.ndim))]
    names = operand.layout.mesh.mesh_dim_names
    seen = {operand.layout}
    choices = product([None, *placements], repeat=len(axes))
    for choice in sorted(choices, key=lambda choice: len(choice) - choice.count(None)):
        layout = operand.layout
        named: list[str] = []
        for axis, placement in zip(axes, choice, strict=True):
            if placement is not None:
                layout = layout.replace(axis, placement)
                named.append(f"{names[axis]}={placement.notation}")
        if layout in seen:
            continue
        seen.add(layout)
        try:
            layout.check_even(operand.shape)
        except LayoutError:
            continue
        yield _Move(number, layout, tuple(named))


def _candidates(moves: Sequence[Sequence[_Move]]) -> Iterator[tuple[_Move, ...]]:
    """One operand moved, then all of them moved alike, then two."""
    few = [choices for choices in moves if choices][:_MAX_OPERANDS]
    for choices in few:
        yield from ((move,) for move in choices)
    for named in dict.fromkeys(move.named for choices in moves for move in choices):
        yield tuple(move for choices in moves for move in choices if move.named == named)
    for one, two in combinations(few, 2):
        yield from product(one, two)


def _cure(operands: Sequence[Operand], candidate: tuple[_Move, ...]) -> Cure:
    steps = [
        step
        for move in candidate
        for operand in [operands[move.operand]]
        for step in plan(operand.layout, move.layout, operand.shape, operand.itemsize)
    ]
    return Cure(
        calls=tuple(
            f"{operands[move.operand].name}.redistribute({', '.join(move.named)})" for move in candidate
        ),
        collectives=tuple(sorted(Counter(step.kind for step in steps if not step.is_local).items())),
        bytes=sum(step.bytes for step in steps),
    )
