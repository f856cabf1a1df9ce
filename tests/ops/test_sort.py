"""The rules of operations along one dim that need all of it."""

from __future__ import annotations

import pytest

from hyper_layout import LayoutError
from tests.support.rules import infer

# Cache values behind the layout: the dim, whether sums pass.
ACCEPTED = [
    ("sort", "S(0)", [2], (1, False), "S(0) S(0)"),
    ("sort", "SS(0,2)/S(0)", [2], (1, False), "SS(0,2)/S(0) SS(0,2)/S(0)"),
    ("topk", "S(0)/R", [3], (2, False), "S(0)/R S(0)/R"),
    ("argsort", "S(1)", [2], (0, False), "S(1)"),
    ("cumsum", "P(sum)", [2], (0, True), "P(sum)"),
    ("cumsum", "S(1)/P(avg)", [2], (0, True), "S(1)/P(avg)"),
    ("cummax", "S(1)", [2], (0, False), "S(1) S(1)"),
]
REFUSED = [
    ("sort", "S(1)", [2], (1, False), "nearest"),
    ("topk", "R/S(0)", [2], (0, False), "nearest"),
    ("cumsum", "S(0)", [2], (0, True), "nearest"),
    ("cumsum", "P(sum)", [2], (0, False), "nearest"),
    ("cumsum", "P(max)", [2], (0, True), "nearest"),
    ("sort", "P(sum)", [2], (0, False), "nearest"),
]


@pytest.mark.parametrize(("op", "operands", "ndims", "static", "output"), ACCEPTED)
def test_accepted(op, operands, ndims, static, output):
    assert infer(op, operands, ndims, *static) == output


@pytest.mark.parametrize(("op", "operands", "ndims", "static", "message"), REFUSED)
def test_refused(op, operands, ndims, static, message):
    with pytest.raises(LayoutError, match=message):
        infer(op, operands, ndims, *static)
