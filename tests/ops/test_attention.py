"""The rules of scaled_dot_product_attention: which layouts it takes, what comes out."""

from __future__ import annotations

import pytest

from hyper_layout import LayoutError
from tests.support.rules import infer

OP = "scaled_dot_product_attention"
SIZES = ((2, 4), (2, 4), (2, 4))


def attend(
    operands, *, ndims=(4, 4, 4, 4), sizes=SIZES, ones=None, causal=False, dropout=False, grouped=False
):
    return infer(OP, operands, ndims, sizes, ones, causal, dropout, grouped)


@pytest.mark.parametrize(
    ("operands", "output"),
    [
        ("S(0) S(0) S(0) -", "S(0)"),
        ("S(1) S(1) S(1) -", "S(1)"),
        ("S(1) R R -", "S(1)"),
        ("S(1) S(1) R -", "S(1)"),
        ("S(2) R R -", "S(2)"),
        ("R R S(3) -", "S(3)"),
        ("R R P(sum) -", "P(sum)"),
        ("R R P(avg) -", "P(avg)"),
        ("S(0)/S(1) S(0)/S(1) S(0)/S(1) -", "S(0)/S(1)"),
        ("S(1)/S(1) R/R R/R -", "S(1)/S(1)"),
        ("S(1)/R S(1)/R S(1)/P(sum) -", "S(1)/P(sum)"),
    ],
)
def test_accepted(operands, output):
    assert attend(operands) == output


@pytest.mark.parametrize(
    "operands",
    ["S(3) S(3) R -", "R S(2) S(2) -", "R S(2) R -", "P(sum) R R -", "R P(sum) R -", "R S(1) S(1) -"],
)
def test_refused(operands):
    with pytest.raises(LayoutError):
        attend(operands)


def test_causal_needs_the_whole_query_length():
    assert attend("S(1) S(1) S(1) -", causal=True) == "S(1)"
    with pytest.raises(LayoutError):
        attend("S(2) R R -", causal=True)


def test_dropout_must_drop_the_same_weights_for_all_features():
    assert attend("S(1) S(1) S(1) -", dropout=True) == "S(1)"
    for operands in ("R R S(3) -", "R R P(sum) -"):
        with pytest.raises(LayoutError):
            attend(operands, dropout=True)


def test_a_mask_is_broadcast_or_split_alike():
    whole, heads = (False, False), (False, True, False, False)
    assert attend("S(1) S(1) S(1) R", ndims=(4, 4, 4, 2), ones=whole) == "S(1)"
    assert attend("S(2) R R S(0)", ndims=(4, 4, 4, 2), ones=whole) == "S(2)"
    assert attend("S(2) R R R", ndims=(4, 4, 4, 2), ones=whole) == "S(2)"
    assert attend("S(0) S(0) S(0) S(0)", ones=heads) == "S(0)"
    assert attend("S(1) S(1) S(1) R", ones=heads) == "S(1)"
    with pytest.raises(LayoutError):
        attend("R R R S(1)", ndims=(4, 4, 4, 2), ones=whole)


def test_grouped_heads():
    two, one, odd = ((2, 4), (2, 2), (2, 2)), ((2, 4), (2, 1), (2, 1)), ((2, 12), (2, 4), (2, 4))
    assert attend("S(1) S(1) S(1) -", sizes=two, grouped=True) == "S(1)"
    assert attend("S(1) R R -", sizes=one, grouped=True) == "S(1)"
    assert attend("S(1)/S(1) R/R R/R -", sizes=two, grouped=True) == "S(1)/S(1)"
    assert attend("S(1) R R -", sizes=odd, grouped=True) == "S(1)"
    with pytest.raises(LayoutError, match="do not fit groups"):
        attend("S(1)/S(1) R/R R/R -", sizes=((2, 12), (2, 6), (2, 6)), grouped=True)
    with pytest.raises(ValueError, match="do not divide into groups"):
        attend("S(1) R R -", sizes=((2, 4), (2, 3), (2, 3)), grouped=True)


def test_heads_that_differ_without_grouping():
    with pytest.raises(LayoutError):
        attend("S(1) R R -", sizes=((2, 4), (2, 1), (2, 1)))
