"""The rules of copies and casts."""

from __future__ import annotations

import pytest

from hyper_layout import LayoutError
from tests.support.rules import infer

KEPT = ["S(0)", "R", "P(sum)", "P(max)", "S(1)/S(1)", "SS(0,2)/S(0)", "S(0)/P(avg)"]


@pytest.mark.parametrize("layout", KEPT)
@pytest.mark.parametrize("op", ["clone", "contiguous", "conj"])
def test_the_layout_stays(op, layout):
    assert infer(op, layout, [2]) == layout


def test_a_detached_tensor_is_invariant():
    assert infer("detach", "R", [2]) == "I"
    assert infer("detach", "S(0)/R", [2]) == "S(0)/I"


@pytest.mark.parametrize("layout", KEPT)
def test_casts_between_floating_dtypes(layout):
    assert infer("to", layout, [2], True) == layout


def test_casts_to_integers_take_no_partial():
    assert infer("long", "S(0)", [2], False) == "S(0)"
    with pytest.raises(LayoutError, match="between floating dtypes only"):
        infer("long", "P(sum)", [2], False)


def test_what_a_cast_follows_may_lie_in_any_way():
    assert infer("type_as", "S(0) S(1)", [2, 2], True) == "S(0)"
    assert infer("type_as", "R P(sum)", [2, 1], True) == "R"
