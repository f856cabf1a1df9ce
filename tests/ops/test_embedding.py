"""The rules of embedding: which layouts it takes, what comes out."""

from __future__ import annotations

import pytest

from hyper_layout import LayoutError
from tests.support.rules import infer


@pytest.mark.parametrize(
    ("operands", "output"),
    [
        ("R R", "R"),
        ("S(0) R", "S(0)"),
        ("S(1) R", "S(1)"),
        ("R S(1)", "S(2)"),
        ("R S(0)", "P(sum)"),
        ("R P(sum)", "P(sum)"),
        ("R P(avg)", "P(avg)"),
        ("S(0)/R R/S(0)", "S(0)/P(sum)"),
        ("S(1)/R R/S(1)", "S(1)/S(2)"),
        ("R/R S(0)/S(0)", "P(sum)/P(sum)"),
        ("R/R SS(1,2)/S(1)", "SS(2,2)/S(2)"),
        ("R/R S(0)/S(1)", "P(sum)/S(2)"),
    ],
)
def test_accepted(operands, output):
    assert infer("embedding", operands, [2, 2], "") == output


@pytest.mark.parametrize("operands", ["S(0) S(0)", "S(0) S(1)", "P(sum) R", "R P(max)", "S(0) P(sum)"])
def test_refused(operands):
    with pytest.raises(LayoutError):
        infer("embedding", operands, [2, 2], "")


@pytest.mark.parametrize("option", ["max_norm", "scale_grad_by_freq", "sparse"])
def test_what_looks_at_whole_rows_or_all_ids(option):
    assert infer("embedding", "R R", [2, 2], option) == "R"
    for operands in ("S(0) R", "R S(0)", "R S(1)"):
        with pytest.raises(LayoutError, match=option):
            infer("embedding", operands, [2, 2], option)
