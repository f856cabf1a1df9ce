"""The rules of einsum: letters in, rows out."""

from __future__ import annotations

import pytest

from hyper_layout import LayoutError
from hyper_ops.einsum import plain_equation
from tests.support.rules import infer

ACCEPTED = [
    ("ij,jk->ik", "S(1) S(0)", [2, 2], "P(sum)"),
    ("bhqd,bhkd->bhqk", "S(1) S(1)", [4, 4], "S(1)"),
    ("bhqd,bhkd->bhqk", "S(0)/S(3) S(0)/S(3)", [4, 4], "S(0)/P(sum)"),
    ("ij->ji", "S(0)", [2], "S(1)"),
    ("ij->", "S(0)/S(1)", [2], "P(sum)/P(sum)"),
    ("iij->j", "S(2)", [3], "S(0)"),
    ("ii->i", "P(sum)", [2], "P(sum)"),
    ("ij,1j->ij", "S(0) R", [2, 2], "S(0)"),
    ("i,j,k->ijk", "R P(sum) R", [1, 1, 1], "P(sum)"),
]
REFUSED = [
    ("ii->i", "S(0)", [2]),
    ("ij,ij->ij", "S(0) R", [2, 2]),
    ("ij,jk->ik", "P(sum) P(sum)", [2, 2]),
    ("ij,1j->ij", "R S(0)", [2, 2]),
]


@pytest.mark.parametrize(("equation", "operands", "ndims", "output"), ACCEPTED)
def test_accepted(equation, operands, ndims, output):
    assert infer("einsum", operands, ndims, equation) == output


@pytest.mark.parametrize(("equation", "operands", "ndims"), REFUSED)
def test_refused(equation, operands, ndims):
    with pytest.raises(LayoutError):
        infer("einsum", operands, ndims, equation)


@pytest.mark.parametrize(
    ("equation", "shapes", "plain"),
    [
        ("ij, jk", ((2, 3), (3, 4)), "ij,jk->ik"),
        ("kj,ij", ((2, 3), (4, 3)), "kj,ij->ik"),
        ("...ij,jk->...ik", ((5, 6, 2, 3), (3, 4)), "abij,jk->abik"),
        ("...i,...i->...", ((5, 1, 2), (6, 2)), "a1i,bi->ab"),
        ("...i,ij", ((5, 2), (2, 3)), "ai,ij->aj"),
        ("ij,ij->i", ((2, 4), (2, 1)), "ij,i1->i"),
        ("ii", ((3, 3),), "ii->"),
        ("ab,Bc->aBc", ((2, 3), (4, 5)), "ab,Bc->aBc"),
    ],
)
def test_equations(equation, shapes, plain):
    assert plain_equation(equation, shapes) == plain


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk", ((2, 3),)),
        ("ij,jk", ((2, 3), (3,))),
        ("ij,jk", ((2, 3), (4, 3))),
        ("i", ((2, 3),)),
        ("...i", ((),)),
    ],
)
def test_what_does_not_fit(equation, shapes):
    with pytest.raises(ValueError, match="einsum"):
        plain_equation(equation, shapes)
