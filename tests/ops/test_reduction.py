"""The rules of reductions: which layouts they take, what comes out."""

from __future__ import annotations

import pytest

from hyper_layout import LayoutError
from tests.support.rules import infer

# Cache values behind the layout: dim, keepdim, then what the family adds.
NO_PARTIAL = (None, None)
ACCEPTED = [
    ("sum", "S(0)", 2, (None, False, *NO_PARTIAL), "P(sum)"),
    ("sum", "S(0)", 2, (0, False, *NO_PARTIAL), "P(sum)"),
    ("sum", "S(1)", 2, (0, False, *NO_PARTIAL), "S(0)"),
    ("sum", "S(1)", 2, (0, True, *NO_PARTIAL), "S(1)"),
    ("sum", "S(2)", 3, ((-3, 1), False, *NO_PARTIAL), "S(0)"),
    ("sum", "P(sum)", 2, (0, False, "f32", None), "P(sum)"),
    ("sum", "P(avg)", 2, (0, False, "f32", True), "P(avg)"),
    ("sum", "S(0)/S(0)", 2, (0, False, *NO_PARTIAL), "P(sum)/P(sum)"),
    ("sum", "S(0)/P(sum)", 2, (None, False, "f64", None), "P(sum)/P(sum)"),
    ("sum", "SS(1,2)/S(1)", 3, (0, False, *NO_PARTIAL), "SS(0,2)/S(0)"),
    ("mean", "S(0)/S(1)", 2, (-1, False, *NO_PARTIAL), "S(0)/P(sum)"),
    ("mean", "P(avg)", 1, (None, False, "bf16", None), "P(avg)"),
    ("count_nonzero", "S(0)", 1, (None, False), "P(sum)"),
    ("any", "S(0)", 2, (0, False, False), "P(max)"),
    ("any", "P(max)", 2, (0, False, True), "P(max)"),
    ("any", "S(0)", 2, ((), False, False), "S(0)"),
    ("all", "S(0)", 2, (None, False, False), "P(min)"),
    ("amax", "S(0)", 2, (0, False, False), "P(max)"),
    ("amax", "S(0)", 2, ((), False, True), "I"),
    ("amax", "P(max)", 2, (0, False, False), "P(max)"),
    ("amin", "S(1)/P(min)", 2, (1, False, False), "P(min)/P(min)"),
    ("max", "S(0)", 2, (None, False, False), "P(max)"),
    ("max", "S(0)", 2, (0, False, False), "I I"),
    ("max", "S(0)", 2, (1, False, True), "S(0) S(0)"),
    ("min", "S(0)", 1, (None, False, True), "I"),
    ("prod", "S(0)", 2, (0, False, False), "P(prod)"),
    ("prod", "S(0)", 2, (0, False, True), "I"),
    ("argmax", "S(0)", 2, (None, False), "I"),
    ("argmin", "S(0)/S(1)", 2, (1, True), "S(0)/I"),
    ("logsumexp", "S(1)/S(1)", 2, (1, False), "I/I"),
    ("var", "S(0)", 2, (None, False), "I"),
    ("std", "S(0)", 2, (1, True), "S(0)"),
]
REFUSED = [
    ("sum", "P(max)", 2, (0, False, "f32", None)),
    ("sum", "P(sum)", 2, (0, False, "b", None)),
    ("sum", "P(sum)", 2, (0, False, "i64", True)),
    ("sum", "P(sum)", 2, (0, False, "f32", False)),
    ("amax", "P(max)", 2, (0, False, True)),
    ("amax", "P(sum)", 2, (0, False, False)),
    ("max", "P(max)", 2, (0, False, False)),
    ("prod", "P(sum)", 2, (0, False, False)),
    ("any", "P(max)", 2, (0, False, False)),
    ("argmax", "P(max)", 2, (None, False)),
    ("var", "P(sum)", 2, (None, False)),
    ("logsumexp", "P(sum)", 2, (0, False)),
    ("count_nonzero", "P(sum)", 2, (0, False)),
]


@pytest.mark.parametrize(("op", "operand", "ndim", "static", "output"), ACCEPTED)
def test_accepted(op, operand, ndim, static, output):
    assert infer(op, operand, [ndim], *static) == output


@pytest.mark.parametrize(("op", "operand", "ndim", "static"), REFUSED)
def test_refused(op, operand, ndim, static):
    with pytest.raises(LayoutError):
        infer(op, operand, [ndim], *static)


def test_a_dim_out_of_range_is_the_error_of_the_framework():
    with pytest.raises(IndexError, match=r"range of \[-2, 1\], but got 2"):
        infer("sum", "R", [2], 2, False, *NO_PARTIAL)


def test_a_dim_named_twice():
    with pytest.raises(ValueError, match="dim 1 appears multiple times"):
        infer("sum", "R", [2], (1, -1), False, *NO_PARTIAL)
