"""One rule, one mesh axis: an operation's rule as rows of placements, and the engine that applies it.

A row says what an operation does with its operands on ONE mesh axis, for example for `mk,kn->mn`::

    S(0) R    -> S(0)
    R    S(1) -> S(1)
    S(1) S(0) -> P(sum)

The engine picks the matching row on every axis of the mesh and puts the answers together, so that a
rule written for one axis serves meshes of any number of axes, several of them on one tensor dim included.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from operator import attrgetter, eq
from typing import Any, Final, NamedTuple

from hyper_dispatch.effects import NO_EFFECTS, Effects
from hyper_dispatch.errors import RuleError
from hyper_layout import Layout, LayoutError, Partial, Placement, Replicate, Shard


class Marker(enum.Enum):
    """Tokens of a row that are Replicate placements with something to say about gradients."""

    ONCE = "+"
    """Input: a Replicate operand that enters a Partial output once, not once per rank."""
    INVARIANT = "I"
    """Output: Replicate because the implementation itself reduced or gathered over the axis."""


ONCE: Final = Marker.ONCE
INVARIANT: Final = Marker.INVARIANT

Token = Placement | Marker

_R: Final = Replicate()
_MARKERS: Final[dict[str, Token]] = {"R": _R, "+": ONCE, "I": INVARIANT, "P": Partial()}
_SHARD = re.compile(r"S\((-?\d+)\)$")
_PARTIAL = re.compile(r"P\((\w+)\)$")


class Row(NamedTuple):
    """One row: a token for each operand and for each output, on one mesh axis."""

    inputs: tuple[Token, ...]
    outputs: tuple[Token, ...]

    def __str__(self) -> str:
        return f"{notation(self.inputs)} -> {notation(self.outputs)}"


def token_text(token: Token) -> str:
    """Short notation of a token: `S(0)`, `R`, `P(sum)`, `+`, `I`."""
    return token.value if isinstance(token, Marker) else token.notation


def notation(tokens: Sequence[Token]) -> str:
    """Short notation of several tokens, separated by blanks."""
    return " ".join(token_text(token) for token in tokens)


def parse_token(text: str) -> Token:
    """Read one token.

    Raises:
        ValueError: If the text is no token; the message lists the forms.
    """
    if text in _MARKERS:
        return _MARKERS[text]
    if found := _SHARD.match(text):
        return Shard(int(found[1]))
    if found := _PARTIAL.match(text):
        return Partial(found[1])
    raise ValueError(f"{text!r} is no token of a row; write S(dim), R, P, P(op), + (input) or I (output)")


def row(text: str) -> Row:
    """Read a row from its notation.

    `row("S(1) S(1) + -> P(sum)")` is the row of a linear layer whose contracted dim is split.

    Raises:
        ValueError: If the text has not exactly one `->` or a token is unknown or on the wrong side.
    """
    left, arrow, right = text.partition("->")
    if not arrow or "->" in right:
        raise ValueError(f"a row has the form 'inputs -> outputs', got {text!r}")
    inputs = tuple(parse_token(part) for part in left.split())
    outputs = tuple(parse_token(part) for part in right.split())
    if INVARIANT in inputs or ONCE in outputs:
        raise ValueError(f"'+' marks inputs and 'I' marks outputs only, got {text!r}")
    return Row(inputs, outputs)


@lru_cache(maxsize=4096)
def axis_placements(layout: Layout) -> tuple[Placement, ...]:
    """What a layout does on each axis, the order of axes aside (`StridedShard` reads as `Shard`)."""
    return tuple([Shard(each.dim) if isinstance(each, Shard) else each for each in layout.placements])


def _accepted(row: Row) -> tuple[Token, ...]:
    """The placements that the inputs of a row stand for."""
    return tuple([_R if token is ONCE else token for token in row.inputs])


_outputs_of: Final = attrgetter("outputs")


@lru_cache(maxsize=4096)
def _replicated(operands: int, outputs: int) -> Row:
    return Row((_R,) * operands, (_R,) * outputs)


def match_row(rows: Sequence[Row], placements: tuple[Placement, ...]) -> Row | None:
    """The first row whose inputs are these placements, or None."""
    for candidate in rows:
        if len(candidate.inputs) != len(placements):
            raise AssertionError(f"row '{candidate}' needs one input for each of {len(placements)} operands")
        if candidate.inputs == placements:
            return candidate
        # A strategy may have made its row of lists, which no tuple equals.
        is_other = ONCE in candidate.inputs or type(candidate.inputs) is not tuple
        if is_other and _accepted(candidate) == placements:
            return candidate
    return None


def infer_rows(
    op_name: str,
    rows: Sequence[Row],
    layouts: Sequence[Layout],
    output_ndims: Sequence[int | None],
    *,
    letters: Callable[[], Sequence[str] | None] | None = None,
) -> tuple[tuple[Layout | None, ...], Effects]:
    """Apply one-axis rows to layouts on a mesh of any number of axes.

    Args:
        op_name: Name for messages.
        rows: The rule; earlier rows win. The row that is Replicate everywhere is added.
        layouts: One per column of the rows.
        output_ndims: Rank of each output; None for an output that is no tensor (its layout is None).
        letters: Returns names of the dims of each operand (`["mk", "kn"]`), to say in an error which dim is
            meant.

    Returns:
        The output layouts, and the effects that markers in the chosen rows state.

    Raises:
        RuleError: If no row matches on some axis, or operands that meet on a dim are not split by the
            same axes in the same order.
        LayoutError: If the operands are on different meshes.
    """
    mesh = layouts[0].mesh
    for layout in layouts:
        if layout.mesh is not mesh:
            raise LayoutError(f"{op_name} got operands on different meshes")
    table = (*rows, _replicated(len(layouts), len(output_ndims)))
    columns = list(zip(*map(axis_placements, layouts), strict=True))
    matched = []
    for column in columns:
        found = match_row(table, column)
        if found is None:
            missing = tuple([axis for axis, each in enumerate(columns) if match_row(table, each) is None])
            raise RuleError(
                op_name, missing, _names(layouts, missing), partial(_unmatched, rows, column, letters)
            )
        matched.append(found)
    if len(layouts) > 1:
        _check_meeting(op_name, layouts, columns)
    made: dict[Any, Layout | None] = {}
    outputs = []
    try:
        stated = list(zip(output_ndims, zip(*map(_outputs_of, matched), strict=True), strict=True))
    except ValueError:
        raise TypeError(
            f"{op_name}: has {len(output_ndims)} outputs, but a row makes another number: {matched}"
        ) from None
    for ndim, tokens in stated:
        if (ndim, tokens) not in made:
            made[ndim, tokens] = (
                None if ndim is None else _output_layout(op_name, tokens, ndim, layouts, columns)
            )
        outputs.append(made[ndim, tokens])
    return tuple(outputs), _effects(matched, len(layouts), len(output_ndims))


def _names(layouts: Sequence[Layout], axes: tuple[int, ...]) -> tuple[str, ...]:
    names = layouts[0].mesh.mesh_dim_names
    return tuple(names[axis] for axis in axes)


def _unmatched(
    rows: Sequence[Row], column: Sequence[Placement], letters: Callable[[], Sequence[str] | None] | None
) -> str:
    """Say in one line why no row matches the placements on an axis."""
    return _unmatched_letter(letters() if letters else None, column) or _nearest(rows, column)


def _nearest(rows: Sequence[Row], column: Sequence[Placement]) -> str:
    """Say in one line how the closest rows differ from the placements at hand."""
    got = notation(column)
    if not rows:
        return f"only operands that are Replicate there can be combined, got {got}"
    alike = [sum(map(eq, _accepted(candidate), column)) for candidate in rows]
    near = [candidate for candidate, count in zip(rows, alike, strict=True) if count == max(alike)]
    wanted = list(dict.fromkeys(notation(candidate.inputs).replace("+", "R") for candidate in near))
    return f"its operands are {got}; the nearest it can do is {' or '.join(wanted[:3])}"


def _unmatched_letter(letters: Sequence[str] | None, column: Sequence[Placement]) -> str | None:
    """Name the dim that is split in one operand but not in another that has it too."""
    if letters is None:
        return None
    for i, placement in enumerate(column):
        if not isinstance(placement, Shard):
            continue
        letter = letters[i][placement.dim]
        for j, other in enumerate(column):
            dim = letters[j].find(letter)
            if dim >= 0 and not (isinstance(other, Shard) and letters[j][other.dim] == letter):
                split = f"dim {letter} is split in {{{i}}} (dim {placement.dim})"
                return f"{split} but not in {{{j}}} (dim {dim})"
    return None


def _check_meeting(op_name: str, layouts: Sequence[Layout], columns: Sequence[Sequence[Placement]]) -> None:
    """Operands split together on an axis must agree on all axes of that dim, and on their order.

    Otherwise the ranks hold pieces of the dim that do not belong together.
    """
    mesh = layouts[0].mesh
    for axis, column in enumerate(columns):
        split = [(i, p.dim) for i, p in enumerate(column) if isinstance(p, Shard)]
        for i, dim in split[1:]:
            first, first_dim = split[0]
            ours, theirs = layouts[i].dim_axes[dim], layouts[first].dim_axes[first_dim]
            if ours == theirs:
                continue
            names = mesh.mesh_dim_names
            reason = (
                f"dim {first_dim} of {{{first}}} is split by ({', '.join(names[a] for a in theirs)}) "
                f"but dim {dim} of {{{i}}} by ({', '.join(names[a] for a in ours)}); "
                "dims that meet must be split by the same axes in the same order"
            )
            raise RuleError(op_name, (axis,), (names[axis],), reason)


def _output_layout(
    op_name: str,
    tokens: Sequence[Token],
    ndim: int,
    layouts: Sequence[Layout],
    columns: Sequence[Sequence[Placement]],
) -> Layout:
    """Put the one-axis answers for one output together, one token per axis."""
    mesh = layouts[0].mesh
    axes_of: dict[int, list[int]] = {}
    partial: list[str | None] = [None] * mesh.ndim
    for axis, token in enumerate(tokens):
        if isinstance(token, Partial):
            partial[axis] = token.reduce_op
        elif isinstance(token, Shard):
            dim = token.dim + ndim if token.dim < 0 else token.dim
            if not 0 <= dim < ndim:
                raise IndexError(f"{op_name}: a row makes {token.notation} of an output with {ndim} dims")
            axes_of.setdefault(dim, []).append(axis)
    dim_axes: list[tuple[int, ...]] = [()] * ndim
    for dim, axes in sorted(axes_of.items()):
        dim_axes[dim] = tuple(axes) if len(tokens) == 1 else _ordered(op_name, dim, axes, layouts, columns)
    return Layout.from_dim_axes(mesh, tuple(dim_axes), tuple(partial))


def _ordered(
    op_name: str, dim: int, axes: list[int], layouts: Sequence[Layout], columns: Sequence[Sequence[Placement]]
) -> tuple[int, ...]:
    """Order (major first) of the axes that split an output dim: that of the input dim they come from.

    Axes that no operand is split on (the implementation slices) come last: they cut what is there.
    """
    sources: dict[int, tuple[int, ...]] = {}
    for axis in axes:
        for layout, placement in zip(layouts, columns[axis], strict=True):
            if isinstance(placement, Shard):
                sources.setdefault(axis, layout.dim_axes[placement.dim])
    orders = set(sources.values())
    order = next(iter(orders), ())
    inherited = order[: len(sources)]
    if len(orders) > 1 or set(inherited) != set(sources):
        names = layouts[0].mesh.mesh_dim_names
        split = ", ".join(names[a] for a in axes)
        reason = f"output dim {dim} would be split by ({split}) in no order that its operands give"
        raise RuleError(op_name, tuple(axes), _names(layouts, tuple(axes)), reason)
    return (*inherited, *(axis for axis in axes if axis not in sources))


def _effects(rows: Sequence[Row], operands: int, outputs: int) -> Effects:
    for chosen in rows:
        if INVARIANT in chosen.outputs or ONCE in chosen.inputs:
            break
    else:
        return NO_EFFECTS

    def mask(tokens: Sequence[Token], marker: Marker) -> int:
        return sum(1 << axis for axis, token in enumerate(tokens) if token is marker)

    invariant = tuple(mask([chosen.outputs[i] for chosen in rows], INVARIANT) for i in range(outputs))
    once = tuple(mask([chosen.inputs[i] for chosen in rows], ONCE) for i in range(operands))
    return Effects(invariant=invariant, once=once)
