"""The rules of cross_entropy and nll_loss: which layouts they take, what comes out."""

from __future__ import annotations

import pytest

from hyper_layout import LayoutError
from tests.support.rules import infer

# Cache values behind the layouts: reduction, whether the class weights need a gradient.
ACCEPTED = [
    ("S(0) S(0) -", [2, 1, 1], "mean", "P(sum)"),
    ("S(0) R -", [2, 1, 1], "mean", "P(sum)"),
    ("S(0) S(0) R", [2, 1, 1], "sum", "P(sum)"),
    ("S(0) S(0) R", [2, 1, 1], "none", "S(0)"),
    ("S(1) R -", [2, 1, 1], "mean", "I"),
    ("S(1) R S(0)", [2, 1, 1], "none", "I"),
    ("S(1) R R", [2, 1, 1], "sum", "I"),
    ("S(2) S(1) -", [3, 2, 1], "none", "S(1)"),
    ("S(2) R R", [3, 2, 1], "mean", "P(sum)"),
    ("S(0) R -", [1, 0, 1], "mean", "I"),
    ("S(1) S(1) -", [2, 2, 1], "mean", "I"),
    ("S(0) S(0) -", [2, 2, 1], "none", "S(0)"),
    ("S(0)/S(1) S(0)/R -", [2, 1, 1], "mean", "P(sum)/I"),
    ("S(0)/S(1) R/R R/S(0)", [2, 1, 1], "mean", "P(sum)/I"),
    ("S(1)/S(1) R/R S(0)/S(0)", [2, 1, 1], "mean", "I/I"),
    ("SS(0,2)/S(0) SS(0,2)/S(0) -", [2, 1, 1], "none", "SS(0,2)/S(0)"),
]
REFUSED = [
    ("R S(0) -", [2, 1, 1], "mean"),
    ("P(sum) R -", [2, 1, 1], "mean"),
    ("S(0) S(0) S(0)", [2, 1, 1], "mean"),
    ("S(1) S(0) -", [2, 1, 1], "mean"),
    ("S(0)/S(0) S(0)/R -", [2, 1, 1], "mean"),
    ("SS(0,2)/S(0) S(0)/S(0) -", [2, 1, 1], "mean"),
    ("S(1)/S(1) R/R S(0)/R", [2, 1, 1], "mean"),
]


@pytest.mark.parametrize(("operands", "ndims", "reduction", "output"), ACCEPTED)
def test_accepted(operands, ndims, reduction, output):
    assert infer("cross_entropy", operands, ndims, reduction, False) == output


@pytest.mark.parametrize(("operands", "ndims", "reduction"), REFUSED)
def test_refused(operands, ndims, reduction):
    with pytest.raises(LayoutError):
        infer("cross_entropy", operands, ndims, reduction, False)


def test_nll_loss_is_linear():
    assert infer("nll_loss", "P(sum) R -", [2, 1, 1], "mean", False) == "P(sum)"
    assert infer("nll_loss", "P(avg)/S(0) R/R R/R", [2, 1, 1], "mean", False) == "P(avg)/P(sum)"


def test_class_weights_with_a_gradient():
    with pytest.raises(LayoutError, match="no gradient for class weights"):
        infer("cross_entropy", "S(1) R R", [2, 1, 1], "mean", True)


@pytest.mark.parametrize(
    ("ndims", "reduction", "what"), [([2, 3, 1], "mean", "rank"), ([2, 1, 1], "median", "median")]
)
def test_bad_arguments(ndims, reduction, what):
    with pytest.raises(ValueError, match=what):
        infer("cross_entropy", "R R -", ndims, reduction, False)
