"""The rule of the linear layer."""

from __future__ import annotations

import pytest

from hyper_dispatch import find_op
from hyper_layout import Layout, LayoutError, Replicate, Shard
from hyper_ops.linear import linear_equation
from tests.support.rules import ONE_AXIS, infer

E = "abk,nk->abn"
ACCEPTED = [
    ("S(0) R R", "S(0)"),
    ("R S(0) S(0)", "S(2)"),
    ("S(2) S(1) R", "P(sum)"),
    ("S(2) S(1) P(sum)", "P(sum)"),
    ("P(sum) R R", "P(sum)"),
    ("R P(sum) R", "P(sum)"),
    ("R R P(sum)", "P(sum)"),
    ("P(avg) R R", "P(avg)"),
    ("S(0)/S(2) R/S(1) R/R", "S(0)/P(sum)"),
    ("S(1)/R R/S(0) R/S(0)", "S(1)/S(2)"),
]
REFUSED = [
    ("R S(0) R", "dim n is split in operand 1 .dim 0. but not in operand 2 .dim 0."),
    ("R S(1) R", "dim k is split in operand 1 .dim 1. but not in operand 0 .dim 2."),
    ("S(2) S(1) S(0)", "cannot combine"),
    ("P(sum) P(sum) R", "nearest"),
    ("P(max) R R", "nearest"),
]


@pytest.mark.parametrize(("operands", "output"), ACCEPTED)
def test_accepted(operands, output):
    assert infer("linear", operands, [3, 2, 1], E, "n") == output


@pytest.mark.parametrize(("operands", "message"), REFUSED)
def test_refused(operands, message):
    with pytest.raises(LayoutError, match=message):
        infer("linear", operands, [3, 2, 1], E, "n")


def test_without_bias():
    assert infer("linear", "S(2) S(1) -", [3, 2, 1], E, None) == "P(sum)"
    assert infer("linear", "R S(0) -", [3, 2, 1], E, None) == "S(2)"


def test_a_row_parallel_bias_enters_once():
    infer("linear", "R R R", [3, 2, 1], E, "n")
    layouts = [Layout(ONE_AXIS, (p,), n) for p, n in ((Shard(2), 3), (Shard(1), 2), (Replicate(), 1))]
    _, effects = find_op("linear").infer_layout([*layouts, E, "n"])
    assert [effects.once_of(number) for number in range(3)] == [0, 0, 1]


def test_equation():
    assert linear_equation(3, 2) == E
    assert linear_equation(2, 1) == "ak,k->a"
    with pytest.raises(ValueError, match="a weight of one or two"):
        linear_equation(2, 3)
