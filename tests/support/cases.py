"""Which layouts a brute-force sample is tried with. Pure: every rank makes the same list.

A token is one input's placement on one axis as text: ``R``, ``V`` (Replicate-varying), ``S(0)``, ``P(sum)``, or
``plain`` for a plain tensor. A column is the tokens of all inputs on one axis; a case is one column per axis.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hyper_layout import DeviceMesh, Layout, LayoutError, Placement, Replicate, StridedShard, parse_placement
from tests.support.sample import Input

__all__ = ["Case", "case_layouts", "one_axis_columns", "tokens_of", "two_axis_cases", "varying_axes"]

Column: TypeAlias = tuple[str, ...]

FLOATING_PARTIALS = ("P(sum)", "P(avg)", "P(max)", "P(min)", "P(prod)")
# Beyond this many combinations a part of them is tried: on one axis (five inputs and more), and on two.
MOST_COLUMNS = {1: 2500, 2: 120}


@dataclass(frozen=True)
class Case:
    """The layouts of all inputs.

    Attributes:
        columns: One per mesh axis.
        reverse: Per input, whether two axes that split one dim do it in the reverse order.
    """

    columns: tuple[Column, ...]
    reverse: tuple[bool, ...]

    def __str__(self) -> str:
        """``S(0) R`` on one axis; ``[S(0) R] [R P(sum)] reversed 0`` on two."""
        if len(self.columns) == 1:
            return " ".join(self.columns[0])
        columns = " ".join(f"[{' '.join(column)}]" for column in self.columns)
        reverse = " ".join(str(i) for i, reverse in enumerate(self.reverse) if reverse)
        return f"{columns} reversed {reverse}" if reverse else columns


def tokens_of(given: Input) -> tuple[str, ...]:
    """All placements on one axis that an input is tried with."""
    if given.tokens is not None:
        return given.tokens
    shards = tuple(f"S({dim})" for dim, size in enumerate(given.shape) if size > 1)
    if given.values == "booleans":
        return ("R", *shards)
    if given.values == "integers":
        return ("R", *shards, "P(sum)")
    return ("R", "V", *shards, *FLOATING_PARTIALS)


def one_axis_columns(inputs: Sequence[Input], axes: int) -> list[Column]:
    """Every combination of placements on one axis, for a mesh of one or two axes."""
    columns = list(itertools.product(*map(tokens_of, inputs)))
    most = MOST_COLUMNS[axes]
    if len(columns) > most:
        columns = [columns[i] for i in sorted(random.Random(0).sample(range(len(columns)), most))]
    return columns


def two_axis_cases(columns: Sequence[Column], accepted: Sequence[Column], count: int) -> list[Case]:
    """Cases on two axes: pairs of columns that one axis accepts, then half as many of any columns.

    Args:
        columns: All columns.
        accepted: Those that are accepted beside Replicate.
        count: How many pairs of accepted columns.
    """
    source = random.Random(1)
    pairs = list(itertools.product(accepted, repeat=2))
    chosen = source.sample(pairs, min(count, len(pairs)))
    chosen += [(source.choice(columns), source.choice(columns)) for _ in range(count // 2)]
    cases = [Case((dp, tp), reverse) for dp, tp in chosen for reverse in _orders(dp, tp, source)]
    return list(dict.fromkeys(cases))


def _orders(dp: Column, tp: Column, source: random.Random) -> Iterable[tuple[bool, ...]]:
    """Axis orders to try: as they come, all reversed, and sometimes one input alone reversed."""
    twice = [first == second and first.startswith("S(") for first, second in zip(dp, tp, strict=True)]
    yield (False,) * len(twice)
    if any(twice):
        yield tuple(twice)
        if sum(twice) > 1 and source.random() < 0.5:
            only = source.choice([i for i, reverse in enumerate(twice) if reverse])
            yield tuple(i == only for i in range(len(twice)))


def case_layouts(case: Case, inputs: Sequence[Input], mesh: DeviceMesh) -> list[Layout | None] | None:
    """The layout of each input (None for a plain one), or None if the case is no possible one.

    It is impossible where a size does not divide, or Partials of one input do not commute.
    """
    layouts: list[Layout | None] = []
    for i, given in enumerate(inputs):
        tokens = [column[i] for column in case.columns]
        if "plain" in tokens:
            if set(tokens) != {"plain"}:
                return None
            layouts.append(None)
            continue
        placements: list[Placement] = [Replicate() if t == "V" else parse_placement(t) for t in tokens]
        if case.reverse[i]:
            dim = int(tokens[0][2:-1])
            placements[0] = StridedShard(dim, mesh.mesh_shape[1])
        try:
            layout = Layout(mesh, tuple(placements), len(given.shape))
            layout.check_even(given.shape)
        except LayoutError:
            return None
        layouts.append(layout)
    return layouts


def varying_axes(case: Case, i: int) -> list[int]:
    """The mesh axes on which input ``i`` is Replicate-varying."""
    return [axis for axis, column in enumerate(case.columns) if column[i] == "V"]
