"""The example calls of the support table: what the strategies answer, and how it is said in short."""

from __future__ import annotations

import itertools

import pytest

from hyper_dispatch import find_op, row
from hyper_dtensor.platform import exchanged_platform, get_platform
from hyper_layout import LayoutError
from hyper_ops import load_ops
from hyper_ops.catalogue import catalogue
from hyper_ops.compact_rows import compact
from hyper_ops.example_calls import accepted_rows, example_call
from tests.support.rules import infer


def test_every_operator_has_an_example_that_it_accepts() -> None:
    """All Replicate works with all of them but those that change shapes in place, and lists of tensors."""
    operators = catalogue({})
    assert {operator.name for operator in operators} >= set(load_ops())
    for operator in operators:
        if operator.family in ("foreach", "fused_optimizers", "gradient_scaler") or not operator.strategy:
            assert operator.call is None
        elif operator.strategy == "ShapeInPlace":
            assert not operator.layouts
        else:
            assert operator.call is not None, f"{operator.name} needs the key 'example'"
            assert str(accepted_rows(operator.name, operator.call)[0]).startswith("R"), operator.name


@pytest.mark.parametrize(
    ("op", "call", "ndims", "static"),
    [
        ("sort", "x[4,6], dim=1", [2], (1, False)),
        ("cumsum", "x[4,6], dim=1", [2], (1, True)),
        ("mm", "x[4,6], y[6,8]", [2, 2], ("mk,kn->mn",)),
        ("addmm", "input[8], x[4,6], y[6,8]", [1, 2, 2], ("mk,kn->mn", "n")),
    ],
)
def test_the_rows_are_those_of_the_rule(
    op: str, call: str, ndims: list[int], static: tuple[object, ...]
) -> None:
    """Beside the static values written by hand, as the tests of the families have them."""
    load_ops()
    found = {str(each).replace("+", "R").replace("I", "R") for each in accepted_rows(op, call)}
    partials = [f"P({reduce_op})" for reduce_op in ("sum", "avg", "max", "min", "prod")]
    choices = [["R", *(f"S({dim})" for dim in range(ndim)), *partials] for ndim in ndims]
    wanted = set()
    for operands in map(" ".join, itertools.product(*choices)):
        try:
            wanted.add(f"{operands} -> {infer(op, operands, ndims, *static)}".replace("I", "R"))
        except LayoutError:
            pass
    assert found == wanted


def test_the_default_call_is_of_the_required_parameters() -> None:
    load_ops()
    assert example_call("add") == "input[4,6], other[4,6]"
    assert example_call("zero_") == "input[4,6]"
    assert example_call("no such operator") is None


@pytest.mark.parametrize(
    ("op", "call"),
    [
        ("argsort", "x[4,6], dim=1"),  # of the file
        ("msort", "x[4,6]"),  # its own
        ("new_empty", "x[4,6], (4, 6)"),  # of the entry that has it as an alias
        ("_foreach_norm", None),  # the file says that there is none
    ],
)
def test_the_call_of_the_registration(op: str, call: str | None) -> None:
    load_ops()
    assert example_call(op) == call


def test_values_of_calls() -> None:
    assert [str(each) for each in accepted_rows("getitem", "x[4,6], (slice(0, 2), 1)")][:3] == [
        "R -> R",
        "S(1) -> P(sum)",
        "P(sum) -> P(sum)",
    ]
    assert len(accepted_rows("layer_norm", "x[4,6], (6,), weight=weight[6], bias=None")) == 2


@pytest.mark.parametrize(
    ("op", "call", "message"),
    [
        ("no such", "x[4]", "'no such' is not registered"),
        ("abs", "x[4", "'x.4' is no call: "),
        ("abs", "x[4]) + f(y[4]", "is no call: it must be arguments"),
        ("abs", "x.y[4]", r"a tensor is written as name\[sizes\], not 'x.y\[4\]'"),
        ("add", "x[4]", r"^add\(x\[4\]\) is no call of it: .*other"),
    ],
)
def test_what_cannot_be_asked(op: str, call: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        accepted_rows(op, call)


def test_the_platform_of_the_process_is_left_as_it_was() -> None:
    load_ops()
    before = object()
    with exchanged_platform(before):  # type: ignore[arg-type]
        accepted_rows("abs", "x[4,6]")
        assert get_platform() is before


def test_a_strategy_that_fails_is_not_taken_for_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> object:
        raise ZeroDivisionError

    monkeypatch.setattr(type(find_op("abs")), "infer_layout", broken)
    with pytest.raises(ZeroDivisionError):
        accepted_rows("abs", "x[4,6]")


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ("R -> R; S(0) -> S(0)", ["S(0) -> S(0)"]),
        ("R -> R; P(sum) -> I; P(avg) -> I; P(max) -> I; P(min) -> I; P(prod) -> I", ["P(op) -> I"]),
        ("P(sum) -> P(sum); P(avg) -> P(avg)", ["P(sum) -> P(sum)", "P(avg) -> P(avg)"]),
        ("R R -> R; R S(0) -> R; S(0) R -> S(0); S(0) S(0) -> S(0)", ["R * -> R", "S(0) * -> S(0)"]),
        ("R R -> R; R S(0) -> S(0); S(0) R -> S(0)", ["R S(0) -> S(0)", "S(0) R -> S(0)"]),
        ("S(0) -> R R R R; S(1) -> S(1) S(1)", ["S(0) -> R ...", "S(1) -> S(1) S(1)"]),
        ("P(sum) + -> P(sum); R R -> I", ["P(sum) + -> P(sum)"]),
    ],
)
def test_in_short(rows: str, text: list[str]) -> None:
    assert list(compact([row(each) for each in rows.split("; ")])) == text


def test_nothing_in_short() -> None:
    assert compact([]) == ()
