"""``einsum`` of local tensors, which MindSpore has on Ascend alone: matrix products of two at a time."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from mindspore import Tensor, mint

__all__ = ["einsum"]


def einsum(equation: str, *operands: Tensor) -> Tensor:
    """The sum of products that the letters say.

    Raises:
        NotImplementedError: If an operand has a letter twice, or the equation an ellipsis.
    """
    inputs, _, result = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if "." in equation or any(len(set(term)) < len(term) for term in terms):
        raise NotImplementedError(f"einsum {equation!r} has an ellipsis or a repeated letter: use matmul")
    found, letters = operands[0], terms[0]
    for number, (other, term) in enumerate(zip(operands[1:], terms[1:], strict=True), start=2):
        wanted = set(result).union(*terms[number:])
        found, letters = _product(found, letters, other, term, wanted)
    found, letters = _summed(found, letters, set(result))
    return mint.permute(found, tuple(letters.index(letter) for letter in result)) if result else found


def _summed(x: Tensor, letters: str, wanted: set[str]) -> tuple[Tensor, str]:
    """The sum over letters that nobody wants."""
    dims = tuple(dim for dim, letter in enumerate(letters) if letter not in wanted)
    return (mint.sum(x, dims) if dims else x), "".join(letter for letter in letters if letter in wanted)


def _product(left: Tensor, l_term: str, right: Tensor, r_term: str, wanted: set[str]) -> tuple[Tensor, str]:
    """The product of two factors, summed over what they share and nobody wants."""
    left, l_term = _summed(left, l_term, wanted | set(r_term))
    right, r_term = _summed(right, r_term, wanted | set(l_term))
    shared = [letter for letter in l_term if letter in r_term]
    batch = [letter for letter in shared if letter in wanted]
    inner = [letter for letter in shared if letter not in wanted]
    rows = [letter for letter in l_term if letter not in shared]
    columns = [letter for letter in r_term if letter not in shared]
    sizes = dict(zip(l_term, left.shape, strict=True)) | dict(zip(r_term, right.shape, strict=True))

    def matrix(x: Tensor, term: str, *parts: Sequence[str]) -> Tensor:
        order = [letter for part in parts for letter in part]
        x = mint.permute(x, tuple(term.index(letter) for letter in order)) if order else x
        return mint.reshape(x, tuple(prod(sizes[letter] for letter in part) for part in parts))

    product = mint.bmm(matrix(left, l_term, batch, rows, inner), matrix(right, r_term, batch, inner, columns))
    letters = "".join([*batch, *rows, *columns])
    return mint.reshape(product, tuple(sizes[letter] for letter in letters)), letters
