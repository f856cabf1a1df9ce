"""The rules of norms: which layouts they take, what comes out."""

from __future__ import annotations

import pytest

from hyper_layout import LayoutError
from tests.support.rules import infer

# Cache values behind the layout: order, dim, keepdim, dtype.
ACCEPTED = [
    ("norm", "S(0)", 2, (2.0, None, False, None), "I"),
    ("norm", "S(0)/S(1)", 2, (2.0, 1, False, None), "S(0)/I"),
    ("norm", "S(2)", 3, (1.0, (0, 1), True, None), "S(2)"),
    ("linalg_vector_norm", "S(1)", 2, (0.0, -1, True, None), "I"),
    ("linalg_norm", "S(0)", 3, ("matrix", (1, 2), False, None), "S(0)"),
    ("linalg_norm", "S(1)", 3, (2.0, (1, 2), False, None), "I"),
]
REFUSED = [
    ("norm", "P(sum)", 2, (2.0, None, False, None)),
    ("norm", "P(max)", 2, (float("inf"), None, False, None)),
    ("linalg_norm", "S(1)", 3, ("matrix", (1, 2), False, None)),
]


@pytest.mark.parametrize(("op", "operand", "ndim", "static", "output"), ACCEPTED)
def test_accepted(op, operand, ndim, static, output):
    assert infer(op, operand, [ndim], *static) == output


@pytest.mark.parametrize(("op", "operand", "ndim", "static"), REFUSED)
def test_refused(op, operand, ndim, static):
    with pytest.raises(LayoutError):
        infer(op, operand, [ndim], *static)
