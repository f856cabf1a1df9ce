"""The rules of matrix products."""

from __future__ import annotations

import pytest

from hyper_layout import LayoutError
from hyper_ops.contraction import addend_letters
from hyper_ops.matmul import matmul_equation
from tests.support.rules import infer

MM = "mk,kn->mn"
ACCEPTED = [
    ("mm", "S(0) R", [2, 2], (MM,), "S(0)"),
    ("mm", "R S(1)", [2, 2], (MM,), "S(1)"),
    ("mm", "S(1) S(0)", [2, 2], (MM,), "P(sum)"),
    ("mm", "P(sum) R", [2, 2], (MM,), "P(sum)"),
    ("mm", "R P(avg)", [2, 2], (MM,), "P(avg)"),
    ("mm", "S(0)/S(1) R/S(0)", [2, 2], (MM,), "S(0)/P(sum)"),
    ("mm", "S(0)/S(0) R/R", [2, 2], (MM,), "S(0)/S(0)"),
    ("mm", "S(1)/S(1) S(0)/S(0)", [2, 2], (MM,), "P(sum)/P(sum)"),
    ("mm", "SS(1,2)/S(1) SS(0,2)/S(0)", [2, 2], (MM,), "P(sum)/P(sum)"),
    ("matmul", "S(0) R", [3, 2], ("amk,kn->amn",), "S(0)"),
    ("matmul", "S(0) S(0)", [3, 3], ("amk,akn->amn",), "S(0)"),
    ("matmul", "S(0) R", [3, 3], ("amk,1kn->amn",), "S(0)"),
    ("matmul", "R S(0)", [1, 1], ("k,k->",), None),
    ("dot", "S(0) S(0)", [1, 1], ("k,k->",), "P(sum)"),
    ("outer", "R S(0)", [1, 1], ("m,n->mn",), "S(1)"),
    ("addmm", "R S(1) S(0)", [2, 2, 2], (MM, "mn"), "P(sum)"),
    ("addmm", "P(sum) R R", [2, 2, 2], (MM, "mn"), "P(sum)"),
    ("addmm", "R S(0) R", [1, 2, 2], (MM, "n"), "S(0)"),
    ("addmm", "S(0) R S(1)", [1, 2, 2], (MM, "n"), "S(1)"),
    ("addmm", "R P(avg) R", [2, 2, 2], (MM, "mn"), "P(avg)"),
    ("baddbmm", "R R S(2)", [3, 3, 3], ("bmk,bkn->bmn", "1m1"), "S(2)"),
]
REFUSED = [
    ("mm", "S(1) R", [2, 2], (MM,), "dim k is split in operand 0 .dim 1. but not in operand 1 .dim 0."),
    ("mm", "S(1)/S(1) SS(0,2)/S(0)", [2, 2], (MM,), "in the same order"),
    ("mm", "P(sum) P(sum)", [2, 2], (MM,), "nearest"),
    ("mm", "P(max) R", [2, 2], (MM,), "nearest"),
    ("mm", "R R", [3, 2], (MM,), "takes tensors of ranks"),
    ("addmm", "S(0) S(1) S(0)", [2, 2, 2], (MM, "mn"), "cannot combine"),
]


@pytest.mark.parametrize(("op", "operands", "ndims", "static", "output"), ACCEPTED)
def test_accepted(op, operands, ndims, static, output):
    if output is None:
        with pytest.raises(LayoutError):
            infer(op, operands, ndims, *static)
    else:
        assert infer(op, operands, ndims, *static) == output


@pytest.mark.parametrize(("op", "operands", "ndims", "static", "message"), REFUSED)
def test_refused(op, operands, ndims, static, message):
    with pytest.raises(ValueError, match=message):
        infer(op, operands, ndims, *static)


@pytest.mark.parametrize(
    ("left", "right", "equation"),
    [
        ((3,), (3,), "k,k->"),
        ((2, 3), (3,), "mk,k->m"),
        ((3,), (3, 2), "k,kn->n"),
        ((5, 2, 3), (3, 4), "amk,kn->amn"),
        ((3,), (5, 3, 4), "k,akn->an"),
        ((2, 3), (5, 3, 4), "mk,akn->amn"),
        ((5, 1, 2, 3), (6, 3, 4), "a1mk,bkn->abmn"),
    ],
)
def test_equations(left, right, equation):
    assert matmul_equation("matmul", left, right) == equation


def test_batches_that_do_not_fit():
    with pytest.raises(ValueError, match="cannot be broadcast"):
        matmul_equation("matmul", (2, 3, 3), (4, 3, 3))
    with pytest.raises(ValueError, match="at least one dim"):
        matmul_equation("matmul", (), (4,))


def test_addends():
    assert addend_letters("addmm", (1, 4), "mn", (3, 4)) == "1n"
    assert addend_letters("addmm", (), "mn", (3, 4)) == ""
    with pytest.raises(ValueError, match="cannot be broadcast"):
        addend_letters("addmm", (3, 3), "mn", (3, 4))
    with pytest.raises(ValueError, match="cannot be broadcast"):
        addend_letters("addmm", (2, 3, 4), "mn", (3, 4))
