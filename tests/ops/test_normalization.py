"""The rules of layer_norm and rms_norm: which layouts they take, what comes out."""

from __future__ import annotations

import pytest

from hyper_layout import LayoutError
from tests.support.rules import infer


@pytest.mark.parametrize(
    ("op", "operands", "output"),
    [
        ("layer_norm", "S(0) R R", "S(0)"),
        ("layer_norm", "S(1) R -", "S(1)"),
        ("layer_norm", "S(1)/S(0) R/R R/R", "S(1)/S(0)"),
        ("layer_norm", "S(1)/S(1) R/R -", "S(1)/S(1)"),
        ("layer_norm", "R - -", "R"),
        ("rms_norm", "S(0) R", "S(0)"),
        ("rms_norm", "S(1) -", "S(1)"),
    ],
)
def test_accepted(op, operands, output):
    assert infer(op, operands, [3, 1, 1][: len(operands.split())], 1) == output


@pytest.mark.parametrize(
    "operands", ["S(2) R R", "S(2) S(0) S(0)", "R S(0) R", "P(sum) R R", "R P(sum) R", "S(0) R P(sum)"]
)
def test_refused(operands):
    with pytest.raises(LayoutError):
        infer("layer_norm", operands, [3, 1, 1], 1)


def test_two_normalised_dims():
    assert infer("layer_norm", "S(0) R R", [3, 2, 2], 2) == "S(0)"
    with pytest.raises(LayoutError):
        infer("layer_norm", "S(1) R R", [3, 2, 2], 2)
