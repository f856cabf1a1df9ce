"""Covers rows.py: one-axis rows applied to meshes of any number of axes."""

from __future__ import annotations

import copy
import pickle

import pytest

from hyper_dispatch import INVARIANT, ONCE, Effects, Row, RuleError, infer_rows, row
from hyper_layout import DeviceMesh, Layout, LayoutError, Partial, Placement, Replicate, Shard, StridedShard
from tests.dispatch.examples import LINE, MESH, S0, S1, P, R

PRODUCT = [row("S(0) R -> S(0)"), row("R S(1) -> S(1)"), row("S(1) S(0) -> P")]


def layout(*placements: Placement, ndim: int = 2, mesh: DeviceMesh = MESH) -> Layout:
    return Layout(mesh, placements, ndim)


def test_a_row_is_read_and_printed() -> None:
    assert row("S(1) S(1) + -> P(avg) I") == Row((Shard(1), Shard(1), ONCE), (Partial("avg"), INVARIANT))
    assert str(row("S(0) R P -> S(0)")) == "S(0) R P(sum) -> S(0)"


@pytest.mark.parametrize("text", ["S(0) R", "S -> R", "I -> R", "R -> +", "R -> R -> R", "Q(0) -> R"])
def test_what_is_no_row_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        row(text)


@pytest.mark.parametrize(
    ("a", "b", "out"),
    [
        (layout(S0, S1), layout(R, S0), layout(S0, P)),
        (layout(S0, R), layout(R, S1), layout(S0, S1)),
        (layout(R, R), layout(R, R), layout(R, R)),
        (layout(S1, S1), layout(S0, S0), layout(P, P)),
        (layout(S0, S0), layout(R, R), layout(S0, S0)),
    ],
)
def test_each_axis_takes_its_own_row(a: Layout, b: Layout, out: Layout) -> None:
    assert infer_rows("product", PRODUCT, [a, b], [2])[0] == (out,)


def test_a_row_made_of_lists_is_a_row() -> None:
    made: list[Row] = [Row([S0, ONCE], [S0])]  # type: ignore[arg-type]
    (outputs, effects) = infer_rows("sum", made, [layout(S0, R), layout(R, R)], [2])
    assert outputs == (layout(S0, R),)
    assert effects.once == (0, 1)
    assert infer_rows("copy", [Row([S1], [S0])], [layout(R, S1)], [2])[0] == (layout(R, S0),)  # type: ignore[arg-type]


def test_the_order_of_axes_on_a_dim_is_inherited() -> None:
    turned = layout(StridedShard(0, 2), S0)
    assert turned.dim_axes == ((1, 0), ())
    ((out,), _) = infer_rows("product", PRODUCT, [turned, layout(R, R)], [2])
    assert out is turned


def test_operands_that_meet_must_be_split_in_the_same_order() -> None:
    a = layout(S1, S1)
    b = layout(StridedShard(0, 2), S0)
    with pytest.raises(RuleError) as caught:
        infer_rows("product", PRODUCT, [a, b], [2])
    assert str(caught.value) == (
        "product cannot combine its operands on mesh axis 'dp': dim 1 of operand 0 is split by (dp, tp) but dim 0 of "
        "operand 1 by (tp, dp); dims that meet must be split by the same axes in the same order"
    )


def test_the_refusal_names_the_axes_and_the_nearest_row() -> None:
    with pytest.raises(RuleError) as caught:
        infer_rows("product", PRODUCT, [layout(R, S1), layout(R, S1)], [2])
    assert caught.value.axes == (1,)
    assert str(caught.value) == (
        "product cannot combine its operands on mesh axis 'tp': its operands are S(1) S(1); "
        "the nearest it can do is R S(1) or S(1) S(0)"
    )


def test_letters_name_the_dim() -> None:
    with pytest.raises(RuleError) as caught:
        infer_rows("product", PRODUCT, [layout(R, S1), layout(R, S1)], [2], letters=lambda: ["mk", "kn"])
    assert caught.value.reason_for(["x", "w"]) == "dim k is split in x (dim 1) but not in w (dim 0)"


def test_a_refusal_is_copied_and_sent_to_another_process() -> None:
    def letters() -> list[str]:  # of no module, as what a strategy hands over
        return ["mk", "kn"]

    with pytest.raises(RuleError) as caught:
        infer_rows("product", PRODUCT, [layout(R, S1), layout(R, S1)], [2], letters=letters)
    error = caught.value
    for got in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(got) is RuleError
        assert (str(got), got.op_name, got.axes) == (str(error), "product", (1,))
        assert got.reason_for(["x", "w"]) == error.reason_for(["x", "w"])
    assert repr(error) == f"RuleError({str(error)!r})"


@pytest.mark.parametrize("dim", [-4, -3, 2])
def test_a_row_that_splits_a_dim_which_the_output_lacks(dim: int) -> None:
    assert infer_rows("copy", [Row((S0,), (Shard(-1),))], [layout(R, S0)], [2])[0] == (layout(R, S1),)
    with pytest.raises(IndexError, match=r"copy: a row makes S\(-?\d\) of an output with 2 dims"):
        infer_rows("copy", [Row((S0,), (Shard(dim),))], [layout(R, S0)], [2])


@pytest.mark.parametrize("ndims", [[], [2], [2, 2, 2]])
def test_a_row_with_another_number_of_outputs(ndims: list[int]) -> None:
    made = [Row((S0,), (S0, S0))]
    assert infer_rows("halves", made, [layout(S0, S0)], [2, 2])[0] == (layout(S0, S0),) * 2
    with pytest.raises(TypeError, match=rf"halves: has {len(ndims)} outputs, but a row makes another number"):
        infer_rows("halves", made, [layout(S0, S0)], ndims)


def test_an_output_dim_split_from_two_operands_has_no_order() -> None:
    rows = [row("S(0) R -> S(0)"), row("R S(0) -> S(0)")]
    assert infer_rows("kron", rows, [layout(S0, R), layout(R, R)], [2])[0] == (layout(S0, R),)
    with pytest.raises(
        RuleError, match=r"output dim 0 would be split by \(dp, tp\) in no order that its operands"
    ):
        infer_rows("kron", rows, [layout(S0, R), layout(R, S0)], [2])


def test_axes_that_the_implementation_cuts_come_last() -> None:
    rows = [row("S(0) -> S(0)"), row("R -> S(0)")]
    turned = layout(R, S0)
    ((out,), _) = infer_rows("cut", rows, [turned], [2])
    assert out is not None
    assert out.dim_axes == ((1, 0), ())


def test_markers_become_effects() -> None:
    rows = [row("S(1) S(1) + -> P"), row("S(0) R R -> S(0)"), row("P R R -> I")]
    outputs, effects = infer_rows("f", rows, [layout(P, S1), layout(R, S1), layout(R, R, ndim=1)], [2])
    assert outputs == (layout(R, P),)
    assert effects == Effects(invariant=(0b01,), once=(0, 0, 0b10))


def test_outputs_that_are_no_tensors_have_no_layout() -> None:
    assert infer_rows("f", [row("S(0) -> S(0) R")], [layout(S0, R)], [2, None])[0] == (layout(S0, R), None)


def test_different_meshes_are_refused() -> None:
    with pytest.raises(LayoutError, match="different meshes"):
        infer_rows("product", PRODUCT, [layout(R, R), layout(R, mesh=LINE)], [2])


def test_a_row_of_the_wrong_width_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match="one input for each of 1 operands"):
        infer_rows("f", PRODUCT, [layout(S0, R)], [2])


def test_any_number_of_axes() -> None:
    mesh = DeviceMesh("cpu", (2, 2, 2), ("a", "b", "c"))
    a = Layout(mesh, (Shard(0), Shard(1), Replicate()), 2)
    b = Layout(mesh, (Replicate(), Shard(0), Shard(1)), 2)
    assert infer_rows("product", PRODUCT, [a, b], [2])[0] == (Layout(mesh, (S0, P, S1), 2),)
