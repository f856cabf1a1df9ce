"""The rules of elementwise operations: which layouts they take, what comes out, what enters once."""

from __future__ import annotations

import math

import pytest

from hyper_dispatch import RegistryError, find_op, layouts_of, register_op
from hyper_layout import Layout, LayoutError, Partial, Replicate
from hyper_ops.broadcasting import broadcast_letters
from hyper_ops.partial_algebra import kind_of
from tests.support.rules import ONE_AXIS, infer

# Cache values behind the layouts: letters where shapes differ, then of calls with Partial operands the kinds of all
# arguments, whether no gradient is needed, whether all tensors are floating.
SAME = ("",)
ACCEPTED = [
    ("exp", "S(0)", [2], SAME, "S(0)"),
    ("exp", "SS(0,2)/S(0)", [2], SAME, "SS(0,2)/S(0)"),
    ("add", "S(1) S(1)", [2, 2], SAME, "S(1)"),
    ("add", "S(0)/S(0) S(0)/S(0)", [2, 2], SAME, "S(0)/S(0)"),
    ("add", "S(1) S(0)", [2, 1], ("ab,b",), "S(1)"),
    ("add", "S(0) R", [2, 1], ("ab,b",), "S(0)"),
    ("add", "R S(1)", [2, 2], ("a1,1b",), "S(1)"),
    ("add", "S(0)/R R/S(1)", [2, 2], ("a1,1b",), "S(0)/S(1)"),
    ("add", "R S(0)", [1, 3], ("c,abc",), "S(0)"),
    ("add", "P(sum) P(sum)", [2, 2], ("", "TT+", False, True), "P(sum)"),
    ("add", "P(sum) R", [2, 1], ("ab,b", "TT+", False, True), "P(sum)"),
    ("add", "R P(avg)", [2, 2], ("", "TT-", False, True), "P(avg)"),
    ("add", "S(0)/P(sum) S(0)/R", [2, 2], ("", "TT+", False, True), "S(0)/P(sum)"),
    ("add", "P(max)", [2], ("", "T++", True, True), "P(max)"),
    ("sub", "P(min)", [2], ("", "-T+", True, True), "P(max)"),
    ("neg", "P(max)", [2], ("", "T", True, True), "P(min)"),
    ("mul", "P(sum)", [2], ("", "T-", False, True), "P(sum)"),
    ("mul", "P(max)", [2], ("", "T-", True, True), "P(min)"),
    ("mul", "R P(avg)", [2, 2], ("", "TT", False, True), "P(avg)"),
    ("div", "P(sum) R", [2, 2], ("", "TTx", False, True), "P(sum)"),
    ("clamp", "P(max)", [2], ("", "T+x", True, True), "P(max)"),
    ("relu", "P(min)", [2], ("", "T0", True, True), "P(min)"),
    ("maximum", "P(max) R", [2, 2], ("", "TT", True, False), "P(max)"),
    ("where", "R P(sum) R", [2, 2, 2], ("", "TTT", False, False), "P(sum)"),
    ("where", "R P(sum)", [2, 2], ("", "TTi", False, False), "P(sum)"),
    ("masked_fill", "P(avg) R", [2, 2], ("", "TTi", False, False), "P(avg)"),
    ("lerp", "P(sum) R", [2, 2], ("", "TT+", False, True), "P(sum)"),
    ("lerp", "R R P(sum)", [2, 2, 2], ("", "TTT", False, True), "P(sum)"),
    ("addcmul", "R P(sum) R", [2, 2, 2], ("", "TTT+", False, True), "P(sum)"),
    ("addcdiv", "P(sum) R R", [2, 2, 2], ("", "TTT+", False, True), "P(sum)"),
    ("fill_", "P(sum)", [2], ("", "T+", False, True), "P(sum)"),
    ("zero_", "P(prod)", [2], ("", "T", True, True), "P(prod)"),
    ("copy_", "P(sum) R", [2, 2], ("", "TT0", False, True), "P(sum)"),
]
REFUSED = [
    ("exp", "P(sum)", [2], ("", "T", False, True), "nearest"),
    ("exp_", "P(sum)", [2], ("", "T", False, True), "nearest"),
    ("abs", "P(avg)", [2], ("", "T", False, True), "nearest"),
    ("add", "S(0) R", [2, 2], SAME, "dim a is split"),
    ("add", "S(0) S(1)", [2, 2], SAME, "dim a is split"),
    ("add", "S(0)/S(0) SS(0,2)/S(0)", [2, 2], SAME, "in the same order"),
    ("add", "P(sum) S(0)", [2, 2], ("", "TT+", False, True), "cannot combine"),
    ("add", "P(sum) P(avg)", [2, 2], ("", "TT+", False, True), "nearest"),
    ("add", "P(max)", [2], ("", "T++", False, True), "nearest"),
    ("add", "P(max)", [2], ("", "T++", True, False), "nearest"),
    ("add", "P(max)", [2], ("", "Ti+", True, True), "nearest"),
    ("add", "P(max) R", [2, 2], ("", "TT+", True, True), "nearest"),
    ("mul", "P(sum) P(sum)", [2, 2], ("", "TT", False, True), "nearest"),
    ("mul", "P(sum)", [2], ("", "Ti", False, True), "nearest"),
    ("mul", "P(max)", [2], ("", "T0", True, True), "nearest"),
    ("div", "R P(sum)", [2, 2], ("", "TTx", False, True), "nearest"),
    ("div", "P(sum)", [2], ("", "T0x", False, True), "nearest"),
    ("div", "P(sum)", [2], ("", "T+s", False, True), "nearest"),
    ("where", "P(sum) R R", [2, 2, 2], ("", "TTT", False, True), "nearest"),
    ("clamp", "P(sum)", [2], ("", "T+x", False, True), "nearest"),
    ("relu", "P(max)", [2], ("", "T0", False, True), "nearest"),
]


@pytest.mark.parametrize(("op", "operands", "ndims", "static", "output"), ACCEPTED)
def test_accepted(op, operands, ndims, static, output):
    assert infer(op, operands, ndims, *static) == output


@pytest.mark.parametrize(("op", "operands", "ndims", "static", "message"), REFUSED)
def test_refused(op, operands, ndims, static, message):
    with pytest.raises(LayoutError, match=message):
        infer(op, operands, ndims, *static)


def test_an_operand_added_to_a_sum_enters_once():
    infer("add", "R", [1], "")
    add = find_op("add")
    layouts = [Layout(ONE_AXIS, (p,), 2) for p in (Partial("sum"), Replicate())]
    _, effects = add.infer_layout([*layouts, "", "TT+", False, True])
    assert effects.once_of(0) == 0 and effects.once_of(1) == 1
    assert layouts_of([*layouts, ""]) == layouts


@pytest.mark.parametrize(
    ("shapes", "letters"),
    [
        (((4, 6), (6,)), "ab,b"),
        (((4, 1), (1, 6)), "a1,1b"),
        (((), (3,)), ",a"),
        (((2, 1), (4, 1)), None),
        (((1, 1), (1,)), "ab,b"),
        (((0, 3), (1, 3)), "ab,1b"),
        (((3,), (0,)), None),
    ],
)
def test_letters(shapes, letters):
    if letters is None:
        with pytest.raises(ValueError, match=r"add: the shapes .* cannot be broadcast together"):
            broadcast_letters("add", shapes)
    else:
        assert broadcast_letters("add", shapes) == letters


def test_a_target_is_not_broadcast():
    with pytest.raises(ValueError, match="to the shape"):
        broadcast_letters("add_", ((1, 6), (4, 6)), True)
    assert broadcast_letters("add_", ((4, 6), (1, 6)), True) == "ab,1b"


KINDS = {"+": [2, True, 0.5], "-": [-0.5], "0": [0.0, False], "i": [math.inf, -math.inf], "n": [math.nan]}
KINDS |= {"c": [1j], "x": [None], "s": ["floor"]}


@pytest.mark.parametrize(
    ("kind", "value"), [(kind, value) for kind, values in KINDS.items() for value in values]
)
def test_kinds(kind, value):
    assert kind_of(value) == kind


def test_a_registration_has_a_signature() -> None:
    with pytest.raises(
        RegistryError, match=r"register_op\('mine'\): key 'signature' is missing, which Elementwise"
    ):
        register_op("mine", "elementwise")
