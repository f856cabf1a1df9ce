"""einsum: any product of tensors written in letters.

The rows follow from the letters (`contraction`): a letter of the result may be split wherever it stands, a
letter that is summed gives Partial(sum), and the product is linear in each operand. A letter that stands
twice in one operand (a diagonal) may not be split. The dims of an ellipsis are broadcast and get letters of
their own; a dim of size 1 that is repeated is Replicate.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from hyper_dispatch import Row, RowsOp, register_strategy, to_locals
from hyper_ops.contraction import contraction_rows
from hyper_ops.matmul import factors_of


@register_strategy("einsum")
class Einsum(RowsOp):
    """cache_values: the layouts and the equation without ellipsis, `1` for a repeated dim."""

    shapes_follow = True
    preprocess_is_pure = True

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        equation, *operands = args
        if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            operands = list(operands[0])
        local_args, local_kwargs = to_locals(args, kwargs)
        plain = plain_equation(equation, tuple(tuple(operand.shape) for operand in operands))
        return local_args, local_kwargs, [*(operand._layout for operand in operands), plain]

    def rows(self, cache_values: Sequence[Any]) -> Sequence[Row]:
        return contraction_rows(cache_values[-1])

    def output_ndims(self, cache_values: Sequence[Any]) -> tuple[int]:
        return (len(cache_values[-1].partition("->")[2]),)

    def letters(self, cache_values: Sequence[Any]) -> list[str]:
        return factors_of(cache_values[-1])


@lru_cache(maxsize=1024)
def plain_equation(equation: str, shapes: tuple[tuple[int, ...], ...]) -> str:
    """The equation with letters for an ellipsis, the result spelled out, and `1` for repeated dims.

    Args:
        equation: As the user wrote it: `"...ij, ...jk"`.
        shapes: Global shapes of the operands.

    Raises:
        ValueError: If the equation does not fit the operands, or sizes of one letter differ.
    """
    inputs, arrow, result = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(shapes):
        raise ValueError(f"einsum {equation!r} has {len(terms)} operands, got {len(shapes)}")
    free = [letter for letter in string.ascii_letters if letter not in equation]
    dims = [len(shape) - len(term.replace("...", "")) for term, shape in zip(terms, shapes, strict=True)]
    for number, (term, extra) in enumerate(zip(terms, dims, strict=True)):
        if extra < 0 or (extra and "..." not in term):
            raise ValueError(f"einsum {equation!r}: operand {number} has shape {shapes[number]}")
    most = max((extra for term, extra in zip(terms, dims, strict=True) if "..." in term), default=0)
    shared = "".join(free[:most])
    terms = [term.replace("...", shared[most - extra :]) for term, extra in zip(terms, dims, strict=True)]
    if arrow:
        result = result.replace("...", shared)
    else:
        together = "".join(terms)
        result = shared + "".join(sorted(x for x in set(together) - set(shared) if together.count(x) == 1))
    sizes = _letter_sizes(equation, terms, shapes)
    marked = [
        "".join(letter if size == sizes[letter] else "1" for letter, size in zip(term, shape, strict=True))
        for term, shape in zip(terms, shapes, strict=True)
    ]
    return f"{','.join(marked)}->{result}"


def _letter_sizes(equation: str, terms: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for letter, size in zip(term, shape, strict=True):
            known = sizes.setdefault(letter, size)
            if 1 not in (known, size) and known != size:
                raise ValueError(f"einsum {equation!r}: letter {letter!r} has the sizes {known} and {size}")
            sizes[letter] = size if known == 1 else known
    return sizes
