"""The rules of new tensors and triangles."""

from __future__ import annotations

import pytest

from hyper_layout import LayoutError
from tests.support.rules import infer

ACCEPTED = [
    ("zeros_like", "S(1)", [2], (), "S(1)"),
    ("ones_like", "S(0)/P(sum)", [2], (), "S(0)/I"),
    ("full_like", "R", [2], (), "I"),
    ("rand_like", "P(max)/S(0)", [2], (), "I/S(0)"),
    ("new_zeros", "S(0)", [2], (True, 4, 6), "S(0)"),
    ("new_zeros", "S(0)", [2], (False, 3), "I"),
    ("new_full", "P(sum)/S(1)", [2], (True, 4, 6), "I/S(1)"),
    ("tril", "S(1)", [2], (), "S(1)"),
    ("triu", "S(0)/S(0)", [3], (), "S(0)/S(0)"),
    ("triu_", "P(min)", [2], (), "P(min)"),
    ("one_hot", "S(1)", [2], (True,), "S(1)"),
]
REFUSED = [
    ("one_hot", "S(0)", [2], (False,), "Replicate"),
    ("one_hot", "P(sum)", [2], (True,), "nearest"),
]


@pytest.mark.parametrize(("op", "operands", "ndims", "static", "output"), ACCEPTED)
def test_accepted(op, operands, ndims, static, output):
    assert infer(op, operands, ndims, *static) == output


@pytest.mark.parametrize(("op", "operands", "ndims", "static", "message"), REFUSED)
def test_refused(op, operands, ndims, static, message):
    with pytest.raises(LayoutError, match=message):
        infer(op, operands, ndims, *static)
