"""The rules of reading and adding by index tensors."""

from __future__ import annotations

import pytest

from hyper_layout import LayoutError
from tests.support.rules import infer

# Cache values behind the layouts: for reading the dim, whether the values are booleans, how sizes compare; for writing
# the dim, whether a reduction is named, how sizes compare.
ACCEPTED = [
    ("gather", "S(0) R", [2, 2], (0, False, "!="), "P(sum)"),
    ("gather", "S(0) R", [2, 2], (0, True, "=="), "P(max)"),
    ("gather", "S(1) S(1)", [2, 2], (0, False, "!="), "S(1)"),
    ("gather", "R S(0)", [2, 2], (0, False, "!="), "S(0)"),
    ("gather", "S(0)/S(0) R/R", [2, 2], (0, False, "=="), "P(sum)/P(sum)"),
    ("gather", "S(0)/R R/S(0)", [2, 2], (0, False, "=="), "P(sum)/S(0)"),
    ("gather", "P(prod) R", [2, 2], (0, False, "=="), "P(prod)"),
    ("take_along_dim", "R S(1)", [2, 2], (0, False, "!x"), "S(1)"),
    ("take_along_dim", "S(1) R", [2, 2], (0, False, "!i"), "S(1)"),
    ("take_along_dim", "P(sum) R", [2, 2], (None, False, ""), "P(sum)"),
    ("index_select", "S(0) R", [2, 1], (0, False, ""), "P(sum)"),
    ("index_select", "S(0) R", [2, 1], (1, False, ""), "S(0)"),
    ("index_select", "R S(0)", [2, 1], (1, False, ""), "S(1)"),
    ("scatter", "S(0) R R", [2, 2, 2], (0, False, "s="), "S(0)"),
    ("scatter", "S(1) S(1) S(1)", [2, 2, 2], (0, True, "s="), "S(1)"),
    ("scatter", "S(1) S(1)", [2, 2], (0, False, "s="), "S(1)"),
    ("scatter", "R R P(sum)", [2, 2, 2], (0, False, "s="), "P(sum)"),
    ("scatter_add", "R S(0) S(0)", [2, 2, 2], (0, False, "s="), "P(sum)"),
    ("scatter_add_", "P(sum) R R", [2, 2, 2], (0, False, "s="), "P(sum)"),
    ("index_add", "R S(0) S(1)", [2, 1, 2], (1, False, "=s"), "P(sum)"),
    ("index_add", "S(0) R S(0)", [2, 1, 2], (1, False, "=s"), "S(0)"),
    ("index_copy", "S(1) R R", [2, 1, 2], (1, False, "=s"), "S(1)"),
]
REFUSED = [
    ("gather", "S(0) S(0)", [2, 2], (0, False, "=="), "nearest"),
    ("gather", "S(1) S(1)", [2, 2], (0, False, "=!"), "nearest"),
    ("gather", "R S(1)", [2, 2], (0, False, "=="), "nearest"),
    ("take_along_dim", "S(0) R", [2, 2], (None, False, ""), "nearest"),
    ("index_select", "P(sum) S(0)", [2, 1], (0, False, ""), "nearest"),
    ("scatter", "S(0) R R", [2, 2, 2], (0, True, "=="), "nearest"),
    ("scatter", "R S(0) S(0)", [2, 2, 2], (0, False, "=="), "nearest"),
    ("scatter_add", "R S(1) S(1)", [2, 2, 2], (0, False, "=="), "nearest"),
    ("scatter_add", "P(max) R P(max)", [2, 2, 2], (0, False, "=="), "nearest"),
    ("masked_select", "S(0) R", [2, 2], (1,), "Replicate"),
    ("nonzero", "S(0)", [2], (2,), "Replicate"),
]


@pytest.mark.parametrize(("op", "operands", "ndims", "static", "output"), ACCEPTED)
def test_accepted(op, operands, ndims, static, output):
    assert infer(op, operands, ndims, *static) == output


@pytest.mark.parametrize(("op", "operands", "ndims", "static", "message"), REFUSED)
def test_refused(op, operands, ndims, static, message):
    with pytest.raises(LayoutError, match=message):
        infer(op, operands, ndims, *static)
