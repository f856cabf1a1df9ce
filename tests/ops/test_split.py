"""The rules of cutting."""

from __future__ import annotations

import pytest

from hyper_layout import LayoutError
from tests.support.rules import infer

# Cache values behind the layout: the dim, the number of pieces.
ACCEPTED = [
    ("split", "S(1)", [2], (0, 3), "S(1) S(1) S(1)"),
    ("chunk", "S(0)/P(sum)", [3], (1, 2), "S(0)/P(sum) S(0)/P(sum)"),
    ("tensor_split", "P(max)", [1], (0, 2), "P(max) P(max)"),
    ("unbind", "S(1)", [2], (0, 2), "S(0) S(0)"),
    ("unbind", "S(0)", [2], (1, 2), "S(0) S(0)"),
]
REFUSED = [
    ("split", "S(0)", [2], (0, 2), "nearest"),
    ("chunk", "R/S(1)", [2], (1, 2), "nearest"),
    ("unbind", "S(0)", [2], (0, 4), "nearest"),
]


@pytest.mark.parametrize(("op", "operands", "ndims", "static", "output"), ACCEPTED)
def test_accepted(op, operands, ndims, static, output):
    assert infer(op, operands, ndims, *static) == output


@pytest.mark.parametrize(("op", "operands", "ndims", "static", "message"), REFUSED)
def test_refused(op, operands, ndims, static, message):
    with pytest.raises(LayoutError, match=message):
        infer(op, operands, ndims, *static)


@pytest.mark.parametrize(
    ("form", "pieces", "size", "count"),
    [
        ("sizes", 3, 7, 3),
        ("sizes", [1, 6], 7, 2),
        ("sizes", 9, 7, 1),
        ("sizes", 2, 0, 1),
        ("chunks", 3, 7, 3),
        ("chunks", 4, 5, 3),
        ("chunks", 9, 4, 4),
        ("chunks", 3, 0, 3),
        ("sections", 3, 7, 3),
        ("sections", (2, 5), 7, 3),
        ("sections", 3, 0, 3),
    ],
)
def test_number_of_pieces(form, pieces, size, count):
    from hyper_ops.split import _COUNTS

    assert _COUNTS[form](pieces, size) == count
