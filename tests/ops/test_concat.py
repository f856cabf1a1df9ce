"""The rules of joining."""

from __future__ import annotations

import pytest

from hyper_layout import LayoutError
from tests.support.rules import infer

# Cache values behind the layouts: the joined dim, whether it is new, whether a gradient is needed.
ACCEPTED = [
    ("cat", "S(1) S(1)", [2, 2], (0, False, True), "S(1)"),
    ("cat", "S(1)/S(1) S(1)/S(1)", [2, 2], (0, False, True), "S(1)/S(1)"),
    ("cat", "SS(1,2)/S(1) SS(1,2)/S(1)", [2, 2], (0, False, True), "SS(1,2)/S(1)"),
    ("stack", "S(0) S(0)", [2, 2], (0, True, True), "S(1)"),
    ("stack", "S(0) S(0)", [2, 2], (2, True, True), "S(0)"),
    ("cat", "P(sum) R P(sum)", [1, 1, 1], (0, False, True), "P(sum)"),
    ("cat", "P(avg) R", [1, 1], (0, False, True), "P(avg)"),
    ("cat", "P(max) R", [1, 1], (0, False, False), "P(max)"),
    ("cat", "P(prod) P(prod)", [1, 1], (0, False, False), "P(prod)"),
    ("cat", "S(1)/P(sum) S(1)/R", [2, 2], (0, False, True), "S(1)/P(sum)"),
    ("cat", "R S(1)", [1, 2], (0, False, True), "S(1)"),
]
REFUSED = [
    ("cat", "S(0) S(0)", [2, 2], (0, False, True), "nearest"),
    ("cat", "S(1) R", [2, 2], (0, False, True), "nearest"),
    ("cat", "P(sum) P(max)", [1, 1], (0, False, False), "nearest"),
    ("cat", "P(prod) R", [1, 1], (0, False, False), "only operands that are Replicate"),
    ("cat", "P(max) R", [1, 1], (0, False, True), "only operands that are Replicate"),
    ("stack", "S(0) S(1)", [2, 2], (0, True, True), "nearest"),
    ("cat", "S(1)/S(1) SS(1,2)/S(1)", [2, 2], (0, False, True), "in the same order"),
]


@pytest.mark.parametrize(("op", "operands", "ndims", "static", "output"), ACCEPTED)
def test_accepted(op, operands, ndims, static, output):
    assert infer(op, operands, ndims, *static) == output


@pytest.mark.parametrize(("op", "operands", "ndims", "static", "message"), REFUSED)
def test_refused(op, operands, ndims, static, message):
    with pytest.raises(LayoutError, match=message):
        infer(op, operands, ndims, *static)


def test_replicate_tensors_enter_a_sum_once():
    from hyper_dispatch import find_op
    from hyper_layout import Layout, Partial, Replicate
    from tests.support.rules import ONE_AXIS

    layouts = [Layout(ONE_AXIS, (p,), 1) for p in (Replicate(), Partial("sum"), Replicate())]
    _, effects = find_op("cat").infer_layout([*layouts, 0, False, True])
    assert [effects.once_of(number) for number in range(3)] == [1, 0, 1]
