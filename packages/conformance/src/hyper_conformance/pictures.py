"""Rank pictures: what a collective does, as text that is executed.

``[a] [b] -> [a b] [a b]``: a box per rank, before and after; in a box the blocks of its tensor along one dim.
A block is a name, a sum ``a+b``, a product ``a*b``, ``max(a,b)``, ``min(a,b)``, a share ``a/2``, or ``0``,
without spaces; ``?`` is a block of which only the shape counts.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Picture"]

Array: TypeAlias = NDArray[Any]
Boxes: TypeAlias = tuple[tuple[str, ...], ...]


def _boxes(text: str) -> Boxes:
    return tuple(tuple(box.split()) for box in re.findall(r"\[([^\]]*)\]", text))


class Picture:
    """A picture, as a function of the tensors of all ranks.

    Args:
        text: The picture.
        before_dim: The dim along which the blocks of a box stand before.
        after_dim: And after.
    """

    def __init__(self, text: str, before_dim: int = 0, after_dim: int = 0) -> None:
        before, _, after = text.partition("->")
        self.text, self.before, self.after = text, _boxes(before), _boxes(after)
        self.before_dim, self.after_dim = before_dim, after_dim
        assert len(self.before) == len(self.after), f"{text}: as many boxes before as after"

    def apply(self, tensors: Sequence[Array]) -> list[Array]:
        """The tensors of all ranks after."""
        blocks: dict[str, Array] = {}
        for box, tensor in zip(self.before, tensors, strict=True):
            pieces = [tensor] if len(box) == 1 else np.split(tensor, len(box), self.before_dim)
            blocks.update(zip(box, pieces, strict=True))
        results = []
        for box in self.after:
            made = [_evaluate(block, blocks) for block in box]
            results.append(made[0] if len(made) == 1 else np.concatenate(made, self.after_dim))
        return results

    def __repr__(self) -> str:
        return self.text


def _evaluate(block: str, blocks: dict[str, Array]) -> Array:
    for name, function in (("max", np.maximum), ("min", np.minimum)):
        if block.startswith(f"{name}("):
            terms = block.removeprefix(f"{name}(").removesuffix(")").split(",")
            return functools.reduce(function, [blocks[term] for term in terms])
    if "+" in block:
        terms_ = [blocks[term] for term in block.split("+")]
        if terms_[0].dtype == np.bool_:  # a sum of bool counts, as on a single device
            terms_ = [term.astype(np.int64) for term in terms_]
        return functools.reduce(np.add, terms_)
    if "*" in block:
        return functools.reduce(np.multiply, [blocks[term] for term in block.split("*")])
    if "/" in block:
        name, _, count = block.partition("/")
        return np.asarray(blocks[name] / int(count))
    if block == "0":
        return np.zeros_like(next(iter(blocks.values())))
    return blocks[block]
