"""Strategies written as the seeds write them work, and have right gradients (RFC 8.1, 8.2, 9.2, 9.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

from hyper_dispatch import LayoutCacheKey, OpDispatcher, register_op
from hyper_dtensor import DTensor
from hyper_layout import Layout, LayoutError, Placement, StridedShard
from tests.dispatch.examples import LINE, MESH, S0, S1, P, R, caller, tensor
from tests.dispatch.rfc_examples import LinearDistributedOp, SortDistributedOp
from tests.support import simulated as sim
from tests.support.simulated import ops

x_layout = Layout(MESH, (S0, R), 2)


# -- 9.4, as printed ------------------------------------------------------------------------------------


def test_sort_preprocess_stable_routing() -> None:
    mock_tensor = MagicMock()
    mock_tensor.layout = x_layout
    mock_tensor.to_local.return_value = MagicMock()

    op_ext = SortDistributedOp("SortExt")
    local_args, local_kwargs, _ = op_ext.preprocess((mock_tensor,), {})
    assert local_kwargs == {}
    assert len(local_args) == 4  # tensor, dim, descending, stable

    op_fn = SortDistributedOp("sort")
    local_args, local_kwargs, _ = op_fn.preprocess((mock_tensor,), {})
    assert local_kwargs == {"stable": False}
    assert len(local_args) == 3  # tensor, dim, descending


# -- 9.2, the way tests call ----------------------------------------------------------------------------


def test_infer_layout_takes_cache_values() -> None:
    op = SortDistributedOp("sort")
    cache_values = [x_layout, -1]
    output_layouts, extra_info = op.infer_layout(cache_values)
    assert output_layouts == (x_layout, x_layout) and extra_info is None
    assert op.get_expand_impl(None, (output_layouts, None), cache_values) is None
    assert LayoutCacheKey.from_cache_values(cache_values) == LayoutCacheKey.from_cache_values(cache_values)


@pytest.mark.parametrize(
    ("layout", "dim", "message"),
    [
        (x_layout, 0, r"sorting along a sharded dimension \(dim 0 mapped to 1\) is not supported"),
        (Layout(MESH, (S1, S1), 2), -1, r"\(dim 1 mapped to \(1, 0\)\)"),
        (Layout(MESH, (StridedShard(1, 2), S1), 2), -1, r"\(dim 1 mapped to \(0, 1\)\)"),
        (x_layout, 2, r"dimension out of range \(expected \[-2, 1\], but got 2\)"),
        (x_layout, 1.0, "dimension should be int"),
        (Layout(MESH, (P, R), 2), 1, "For sort, operand 0 must not be Partial"),
    ],
)
def test_sort_refuses(layout: Layout, dim: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SortDistributedOp("sort").infer_layout([layout, dim])


def test_linear_impl() -> None:
    op = LinearDistributedOp("linear")
    cache_values = [Layout(MESH, (S0, S1), 2), Layout(MESH, (R, S1), 2), Layout(MESH, (R, R), 1)]
    output_layouts, _ = op.infer_layout(cache_values)
    assert output_layouts == (Layout(MESH, (S0, P), 2),)
    impl = op.get_expand_impl(lambda x, w, bias: bias, (output_layouts, None), cache_values)
    assert impl is not None and impl(0, 0, 6.0) == 3.0
    assert op.get_expand_impl(None, (output_layouts, None), [*cache_values[:2], None]) is None
    assert op.get_expand_impl(None, (output_layouts, None), [x_layout, *cache_values[1:]]) is None


# -- through the dispatcher, gradients included ---------------------------------------------------------


def local_sort(x: Any, dim: int, descending: bool, *, stable: bool) -> Any:
    order = np.argsort(x.array, axis=dim, kind="stable" if stable else None)
    indices = sim.tensor(np.flip(order, dim) if descending else order)
    return ops.gather(x, dim, indices), indices


def make(value: Any, placements: tuple[Placement, ...]) -> DTensor:
    layout = Layout(MESH, placements, value.ndim)
    local = sim.tensor(value[layout.local_slice(value.shape)].copy(), requires_grad=True)
    return DTensor.from_local(local, MESH, placements)


def gradients(loss: Any, *leaves: Any) -> list[Any]:
    loss.backward()
    with sim.no_grad():
        found = [leaf.grad for leaf in leaves]
        return [(g.full_tensor() if isinstance(g, DTensor) else g).array for g in found]


def compare(program: Callable[[], list[Any]], expected: list[Any]) -> None:
    for found in sim.run_ranks(4, program):
        for actual, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-12, atol=1e-12)


LINEAR_CASES = [
    ((S0, R), (R, S0), (R, S0)),  # columns
    ((S0, S1), (R, S1), (R, R)),  # rows: the bias is divided on every rank
    ((R, S1), (S0, S1), (S0, R)),
    ((S1, S1), (S1, S1), (R, R)),  # two axes on the contracted dim
    ((R, R), (R, R), (R, R)),
]


@pytest.mark.parametrize(("x_placements", "w_placements", "b_placements"), LINEAR_CASES)
@pytest.mark.parametrize("with_bias", [True, False])
def test_linear_gradients(
    x_placements: tuple[Placement, ...],
    w_placements: tuple[Placement, ...],
    b_placements: tuple[Placement, ...],
    with_bias: bool,
) -> None:
    dispatcher = OpDispatcher()
    register_op("linear", LinearDistributedOp("linear"))
    linear = caller(dispatcher, "linear", ops.linear)
    random = np.random.default_rng(0)
    x, w, b, factor = (random.standard_normal(shape) for shape in ((4, 8), (4, 8), (4,), (4, 4)))

    def program() -> list[Any]:
        found: list[Any] = []
        for _ in range(2):  # cold and warm
            leaves = [make(x, x_placements), make(w, w_placements), make(b, b_placements)][: 2 + with_bias]
            y = linear(*leaves).full_tensor()
            found = [y.detach().array, *gradients(ops.sum(ops.mul(y, sim.tensor(factor))), *leaves)]
        return found

    plain = [sim.tensor(value, requires_grad=True) for value in (x, w, b)][: 2 + with_bias]
    y = ops.linear(*plain)
    compare(program, [y.detach().array, *gradients(ops.sum(ops.mul(y, sim.tensor(factor))), *plain)])
    assert dispatcher.cache_info("linear")["linear"].entries == 1


@pytest.mark.parametrize("op_name", ["sort", "SortExt"])
def test_sort_gradients(op_name: str) -> None:
    dispatcher = OpDispatcher()
    register_op(op_name, SortDistributedOp(op_name))

    def run(x: Any, dim: int, descending: bool, stable: bool) -> Any:
        return local_sort(x, dim, descending, stable=stable)

    sort = caller(dispatcher, op_name, run if op_name == "SortExt" else local_sort)
    x, factor = (np.random.default_rng(seed).standard_normal((4, 8)) for seed in (1, 2))

    def program() -> list[Any]:
        leaf = make(x, (S0, R))
        values, indices = sort(leaf, descending=True)
        assert sort(leaf, 1, True)[1].layout is indices.layout is values.layout
        loss = ops.sum(ops.mul(values.full_tensor(), sim.tensor(factor)))
        return [indices.full_tensor().array, *gradients(loss, leaf)]

    plain = sim.tensor(x, requires_grad=True)
    values, indices = local_sort(plain, 1, True, stable=False)
    compare(program, [indices.array, *gradients(ops.sum(ops.mul(values, sim.tensor(factor))), plain)])
    info = dispatcher.cache_info(op_name)[op_name]
    assert info.misses <= 8  # -1 and 1 are two values of its key; ranks that are threads may both miss


def test_a_plain_bias_is_refused_here(dispatcher: OpDispatcher) -> None:
    register_op("linear", LinearDistributedOp("linear"))
    with pytest.raises(LayoutError, match=r"argument 'args\[2\]' is a plain tensor"):
        caller(dispatcher, "linear", ops.linear)(
            tensor([R], 4, 8, mesh=LINE), tensor([R], 4, 8, mesh=LINE), sim.tensor([0.0] * 4)
        )
