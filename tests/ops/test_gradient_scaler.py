"""The rule of unscaling gradients."""

from __future__ import annotations

import pytest

from hyper_layout import LayoutError
from tests.support.rules import infer

OP = "_amp_foreach_non_finite_check_and_unscale_"


def test_gradients_may_lie_as_they_like_but_for_partial():
    assert infer(OP, "S(0) R S(1) R", [2, 1, 2, 0]) == "-"
    assert infer(OP, "S(0)/R S(1)/S(0)", [1, 2]) == "-"
    with pytest.raises(LayoutError, match=r"operand 1 must not be Partial, but it is Partial\(sum\)"):
        infer(OP, "S(0) P(sum)", [2, 2])
