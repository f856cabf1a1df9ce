"""The rule of a whole step of an optimizer in one call."""

from __future__ import annotations

import pytest

from hyper_layout import LayoutError
from tests.support.rules import infer

NDIMS = [2, 1, 2, 1, 0]


def test_what_belongs_to_one_parameter_is_laid_out_alike():
    positions = (0, 1, 0, 1, None)
    for layouts in ("S(0) R S(0) R R", "S(1)/R S(0)/S(0) S(1)/R S(0)/S(0) R/R"):
        assert infer("_fused_adamw_", layouts, NDIMS, positions, ()) == "-"
    assert infer("_fused_sgd_", "S(0) S(0)", [2, 2], (1, 1), (0,)) == "-"


@pytest.mark.parametrize(
    ("layouts", "positions", "plain", "match"),
    [
        ("S(0) S(1)", (0, 0), (), r"at position 0 of the lists are tp:S\(0\) and tp:S\(1\)"),
        (
            "S(0) R",
            (3, 3),
            (),
            r"at position 3 .* redistribute them, or make the optimizer without fused=True",
        ),
        ("P(sum) P(sum)", (0, 0), (), r"tp:P\(sum\) and tp:P\(sum\)"),
        ("S(0) S(0)", (0, 1), (1,), r"at position 1 of the lists are a plain tensor and tp:S\(0\)"),
        (
            "S(0) P(max)",
            (0, None),
            (),
            r"a number or a counter of steps is tp:P\(max\), and must be Replicate",
        ),
    ],
)
def test_anything_else_is_refused(layouts, positions, plain, match):
    with pytest.raises(LayoutError, match=match):
        infer("_fused_adamw_", layouts, [2, 2 if positions[1] is not None else 0], positions, plain)
