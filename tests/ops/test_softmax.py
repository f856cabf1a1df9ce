"""The rules of softmax: which layouts it takes, what comes out."""

from __future__ import annotations

import pytest

from hyper_layout import LayoutError
from tests.support.rules import infer


@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
@pytest.mark.parametrize("layout", ["R", "S(0)", "S(1)", "S(1)/S(1)", "SS(0,2)/S(0)", "S(0)/S(1)"])
def test_every_split_is_kept(op, layout):
    assert infer(op, layout, [2], -1, None) == layout


@pytest.mark.parametrize("partial", ["P(sum)", "P(avg)", "P(max)"])
def test_partial_is_refused(partial):
    with pytest.raises(LayoutError):
        infer("softmax", partial, [2], 0, None)


def test_a_dim_out_of_range_is_the_error_of_the_framework():
    with pytest.raises(IndexError, match="but got 2"):
        infer("softmax", "S(0)", [2], 2, None)
