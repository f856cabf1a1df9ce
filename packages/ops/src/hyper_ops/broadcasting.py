"""Which dims of broadcast operands meet, as letters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from hyper_dispatch import Row
from hyper_layout import Layout, Replicate, Shard

LETTERS = "abcdefghijklmnopqrstuvwxyz"

_R = Replicate()


@lru_cache(maxsize=4096)
def broadcast_letters(op_name: str, shapes: tuple[tuple[int, ...], ...], inplace: bool = False) -> str:
    """Letters of the dims of each operand, `1` for a dim that is repeated: `(8, 1), (16,) -> "a1,b"`.

    The result has one dim per letter, in order. A text, because texts are the cheapest cache values.

    Args:
        op_name: Name for messages.
        shapes: Global shapes of the operands.
        inplace: Whether the result must have the shape of the first.

    Raises:
        ValueError: If the shapes cannot be broadcast together, or not to the first.
    """
    ndim = max(map(len, shapes))
    padded = [(1,) * (ndim - len(shape)) + tuple(shape) for shape in shapes]
    sizes = [max(column) if 0 not in column else 0 for column in zip(*padded, strict=True)]
    fits = all(size in (1, sizes[d]) for shape in padded for d, size in enumerate(shape))
    if not fits or (inplace and tuple(sizes) != tuple(shapes[0])):
        shown = " and ".join(str(tuple(shape)) for shape in shapes)
        what = f"to the shape {tuple(shapes[0])} of the target" if fits else "together"
        raise ValueError(f"{op_name}: the shapes {shown} cannot be broadcast {what}")
    return ",".join(
        "".join(LETTERS[d] if padded[i][d] == sizes[d] else "1" for d in range(ndim - len(shape), ndim))
        for i, shape in enumerate(shapes)
    )


def letters_of(pattern: str, layouts: Sequence[Layout]) -> list[str]:
    """Letters of each operand; an empty pattern says that all have one shape."""
    return pattern.split(",") if pattern else [LETTERS[: layouts[0].ndim]] * len(layouts)


def shard_rows(letters: Sequence[str], ndim: int) -> list[Row]:
    """One row per dim of the result: split alike in every operand that has it, Replicate in the others."""
    return [
        Row(tuple(Shard(own.index(letter)) if letter in own else _R for own in letters), (Shard(d),))
        for d, letter in enumerate(LETTERS[:ndim])
    ]
