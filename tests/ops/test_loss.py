"""The rules of losses of element by element: which layouts they take, what comes out."""

from __future__ import annotations

import pytest

from hyper_layout import LayoutError
from tests.support.rules import infer

# Cache values behind the layouts: names of the weights, their dims of size 1, reduction, one shape.
PLAIN = ((), ())


@pytest.mark.parametrize(
    ("operands", "reduction", "output"),
    [
        ("S(0) S(0)", "mean", "P(sum)"),
        ("S(1) R", "sum", "P(sum)"),
        ("S(1) S(1)", "none", "S(1)"),
        ("R R", "mean", "R"),
        ("S(0)/S(1) S(0)/R", "mean", "P(sum)/P(sum)"),
        ("S(0)/S(0) R/R", "none", "S(0)/S(0)"),
        ("SS(0,2)/S(0) SS(0,2)/S(0)", "none", "SS(0,2)/S(0)"),
    ],
)
def test_accepted(operands, reduction, output):
    assert infer("mse_loss", operands, [2, 2], *PLAIN, reduction, True) == output


@pytest.mark.parametrize("operands", ["R S(0)", "S(0) S(1)", "P(sum) P(sum)", "P(sum) R", "S(0)/S(0) S(0)/R"])
def test_refused(operands):
    with pytest.raises(LayoutError):
        infer("mse_loss", operands, [2, 2], *PLAIN, "mean", True)


def test_weights_broadcast():
    weights = (("weight", "pos_weight"), ((False, True), (False,)))
    static = (*weights, "mean", True)
    op = "binary_cross_entropy_with_logits"
    assert infer(op, "S(0) S(0) S(0) R", [2, 2, 2, 1], *static) == "P(sum)"
    assert infer(op, "S(1) S(1) R S(0)", [2, 2, 2, 1], *static) == "P(sum)"
    assert infer(op, "S(1) R R R", [2, 2, 2, 1], *static) == "P(sum)"
    with pytest.raises(LayoutError):
        infer(op, "S(0) S(0) R S(0)", [2, 2, 2, 1], *static)


def test_bad_arguments():
    with pytest.raises(ValueError, match="one shape"):
        infer("mse_loss", "R R", [2, 2], *PLAIN, "mean", False)
    with pytest.raises(ValueError, match="batchmean"):
        infer("mse_loss", "R R", [2, 2], *PLAIN, "batchmean", True)
    assert infer("kl_div", "S(0) S(0)", [2, 2], *PLAIN, "batchmean", True) == "P(sum)"
