"""Sums of products, `abk,kn->abn`, and an addend: the rows that follow from the letters alone.

On one mesh axis, for each letter that no factor has twice::

    a letter of the result     S wherever it stands, R elsewhere          -> S
    a letter that is summed    S in every factor that has it, R elsewhere -> P(sum), an addend enters once

A product is linear in each factor, so that one Partial factor among Replicate ones gives a Partial result;
an addend is Partial in the same way, or enters once (a Partial(avg) takes a Replicate one as it is). The
product of Replicate factors enters once into a Partial(sum) addend: `product_once` says on which axes.

A size-1 dim that is repeated to the size of its letter is written `1` and is Replicate.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from hyper_dispatch import ONCE, Row, Token
from hyper_dtensor import get_platform
from hyper_layout import Layout, Partial, Replicate, Shard, format_layout

_R = Replicate()
_SUM = Partial("sum")
_AVG = Partial("avg")


@lru_cache(maxsize=1024)
def contraction_rows(equation: str, addend: str | None = None) -> tuple[Row, ...]:
    """Rows over the factors, then the addend if there is one.

    Args:
        equation: Letters of the factors and of the result: `abk,kn->abn`.
        addend: Letters of the addend, aligned with those of the result.
    """
    inputs, _, result = equation.partition("->")
    factors = inputs.split(",")
    repeated = {letter for own in factors for letter in own if own.count(letter) > 1}
    letters = dict.fromkeys("".join((*factors, result)))
    none = (_R,) * len(factors)
    rows: list[Row] = []
    for letter in letters:
        if letter == "1" or letter in repeated:
            continue
        split: tuple[Token, ...] = tuple(Shard(own.index(letter)) if letter in own else _R for own in factors)
        if letter in result:
            beside = () if addend is None else (Shard(addend.index(letter)) if letter in addend else _R,)
            rows.append(Row((*split, *beside), (Shard(result.index(letter)),)))
        else:
            rows += _into_partial(split, _SUM, addend)
    for i in range(len(factors)):
        for partial in (_SUM, _AVG):
            rows += _into_partial((*none[:i], partial, *none[i + 1 :]), partial, addend)
    if addend is not None:
        rows += [Row((*none, partial), (partial,)) for partial in (_SUM, _AVG)]
    return tuple(rows)


def _into_partial(factors: tuple[Token, ...], partial: Partial, addend: str | None) -> list[Row]:
    """The rows of a Partial product: the addend waits for the same reduction, or comes in."""
    if addend is None:
        return [Row(factors, (partial,))]
    enters: Token = ONCE if partial is _SUM else _R
    return [Row((*factors, beside), (partial,)) for beside in (enters, partial)]


def product_once(factors: Sequence[Layout], addend: Layout) -> list[int]:
    """Mesh axes on which the product of Replicate factors enters once into a Partial(sum) addend."""
    return [
        axis
        for axis, op in enumerate(addend.partial)
        if op == "sum" and all(factor.placements[axis].is_replicate() for factor in factors)
    ]


@lru_cache(maxsize=1024)
def addend_letters(op_name: str, shape: tuple[int, ...], result: str, sizes: tuple[int, ...]) -> str:
    """Letters of an addend that is broadcast to the result.

    Args:
        op_name: Name for messages.
        shape: Global shape of the addend.
        result: Letters of the result.
        sizes: Its global shape.

    Raises:
        ValueError: If the addend cannot be broadcast to the result.
    """
    skipped = len(sizes) - len(shape)
    if skipped < 0 or any(
        own not in (1, size) for own, size in zip(shape, sizes[max(skipped, 0) :], strict=False)
    ):
        raise ValueError(
            f"{op_name}: the shape {tuple(shape)} of the addend cannot be broadcast to {tuple(sizes)}"
        )
    pairs = zip(shape, sizes[skipped:], result[skipped:], strict=True)
    return "".join(letter if own == size else "1" for own, size, letter in pairs)


def check_sizes(op_name: str, equation: str, factors: Sequence[Any]) -> None:
    """Refuse distributed factors whose dims meet but have other global sizes.

    Raises:
        ValueError: Names the dims, and shows both factors with their layouts.
    """
    sizes: dict[str, int] = {}
    for letters, factor in zip(equation.partition("->")[0].split(","), factors, strict=True):
        for letter, size in zip(letters, factor.shape, strict=False):
            if letter != "1" and sizes.setdefault(letter, size) != size:
                raise ValueError(f"{op_name}: {_unequal(letter, equation, factors)}")


def _unequal(letter: str, equation: str, factors: Sequence[Any]) -> str:
    """``dim 1 of f64[8,32] tp:S(1) has 32 elements and dim 1 of f64[16,16] tp:R has 16, ...``."""
    dtype_name = get_platform().dtype_name
    dims = [
        (factor, letters.index(letter))
        for letters, factor in zip(equation.partition("->")[0].split(","), factors, strict=True)
        if letter in letters
    ]
    said = [
        f"dim {dim} of {format_layout(dtype_name(factor._local), tuple(factor.shape), factor.layout)} has "
        f"{factor.shape[dim]}"
        for factor, dim in dims
    ]
    (first, dim), (second, other) = dims[0], dims[-1]
    ratio = first.shape[dim] / max(second.shape[other], 1)
    hint = ""
    if ratio == first.layout.shard_counts[dim]:
        hint = "; was a whole tensor taken for this rank's part (a style's input_layouts)?"
    elif ratio < 1 and ratio * first.layout.mesh.size() >= 1:
        hint = "; was this rank's part taken for the whole tensor (a style's input_layouts)?"
    return f"the dims that meet differ in size: {', '.join(said)}{hint}"


def result_sizes(equation: str, shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Global shape of the result of `equation` on factors of these shapes."""
    inputs, _, result = equation.partition("->")
    sizes: dict[str, int] = {}
    for own, shape in zip(inputs.split(","), shapes, strict=True):
        sizes |= dict(zip(own, shape, strict=True))
    return tuple(sizes[letter] for letter in result)
