"""The rules of random operations: which layouts they take, what comes out, when they draw."""

from __future__ import annotations

import pytest

from hyper_dispatch import find_op
from hyper_layout import LayoutError
from tests.support.rules import infer


@pytest.mark.parametrize("layout", ["R", "S(0)", "S(1)", "S(1)/S(1)", "SS(0,2)/S(0)"])
def test_splits_are_kept(layout):
    assert infer("dropout", layout, [2], True) == layout
    assert infer("normal_", layout, [2], False) == layout


def test_dropout_of_a_partial_only_where_it_keeps_everything():
    assert infer("dropout", "P(sum)/P(sum)", [2], False) == "P(sum)/P(sum)"
    with pytest.raises(LayoutError):
        infer("dropout", "P(sum)", [2], True)


def test_a_generator_of_the_callers_would_repeat_itself_on_shards():
    assert infer("uniform_", "R", [2], True) == "R"
    with pytest.raises(LayoutError, match="generator"):
        infer("uniform_", "S(0)", [2], True)


def test_what_draws():
    dropout, normal = find_op("dropout"), find_op("normal_")
    assert dropout.draws([None, True])
    assert not dropout.draws([None, False])
    assert normal.draws([None, False])
    assert not normal.draws([None, True])
