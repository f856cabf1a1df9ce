"""Invariant and varying: how locals enter operations (design rules 1 to 4, 7 and 8).

``local_map`` plays the operations here: it lets its operands in as the dispatcher does.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hyper_dtensor import CommDebugMode, DTensor, Spec, gradients, local_map, wrap
from hyper_layout import Layout
from tests.dtensor.helpers import S0, S1, P, R, equal, line, make, on_ranks, square, values, weight_of_rank
from tests.support import simulated as sim
from tests.support.simulated import ops


def column_linear(x: DTensor, weight: DTensor) -> DTensor:
    """``x @ weight.T`` for a weight whose rows are split."""
    return local_map(ops.linear, [S1])(x, weight)


def row_linear(x: DTensor, weight: DTensor) -> DTensor:
    """``x @ weight.T`` for a weight whose columns are split."""
    return local_map(ops.linear, [P])(x, weight)


def total(t: DTensor) -> DTensor:
    """The sum of all elements, Partial where ``t`` is split."""
    placements = [P if p.is_shard() or p.is_partial() else R for p in t.placements]
    return local_map(ops.sum, placements)(t)


# -- rules 1 and 2 ------------------------------------------------------------------------------------------
@on_ranks(2, 4)
def test_leaves_and_reduced_results_are_invariant() -> None:
    mesh = line()
    assert make(values(4), mesh, [R])._spec.varying == 0
    assert DTensor.from_local(sim.tensor(values(4)), mesh, [R])._spec.varying == 0
    assert make(values(4), mesh, [P]).redistribute([R])._spec.varying == 0


@on_ranks(2, 4)
def test_an_invariant_operand_of_a_varying_op_gets_the_sum_of_the_gradients() -> None:
    mesh, x_value, w_value = line(), values(3, 8), values(4, 8, seed=1)
    x, w = make(x_value, mesh, [R]), make(w_value, mesh, [S0])
    y = column_linear(x, w)
    equal(y, x_value @ w_value.T)
    total(y).backward()
    assert x.grad is not None
    assert w.grad is not None
    equal(x.grad, np.ones((3, 4)) @ w_value)
    equal(w.grad, np.ones((4, 3)) @ x_value)


@on_ranks(2, 4)
def test_every_replicate_output_of_a_varying_op_is_varying() -> None:
    """A metadata operand, too, makes the op varying: the result is used as the split operand is."""
    mesh, value, w_value = line(), values(4), values(8, seed=1)
    x, split = make(value, mesh, [R]), make(w_value, mesh, [S0], requires_grad=False)
    y = local_map(lambda x, like: x * 2.0, [R])(x, split)
    assert y._spec.varying == 1
    z = local_map(lambda y, w: ops.sum(y) * ops.sum(w), [P])(y, split)
    z.backward()
    assert x.grad is not None
    equal(x.grad, np.full(4, 2 * w_value.sum()))


@on_ranks(2)
def test_an_op_on_invariant_operands_alone_is_invariant_and_sends_nothing() -> None:
    mesh = line()
    x, y = make(values(4), mesh, [R]), make(values(4, seed=1), mesh, [R])
    with CommDebugMode() as comm:
        z = local_map(ops.mul, [R])(x, y)
        z.backward(sim.tensor(np.ones(4)))
    assert (z._spec.varying, comm.total) == (0, 0)
    assert x.grad is not None
    equal(x.grad, values(4, seed=1))


@on_ranks(4)
def test_an_op_that_varies_on_one_axis_only() -> None:
    mesh, x_value, w_value = square(), values(4, 8), values(6, 8, seed=1)
    x, w = make(x_value, mesh, [S0, R]), make(w_value, mesh, [R, S0])
    y = local_map(ops.linear, [S0, S1])(x, w)
    equal(y, x_value @ w_value.T)
    with CommDebugMode() as comm:
        total(y).backward()
    assert comm.by_axis == {("tp", "all_reduce"): 1, ("dp", "all_reduce"): 1}
    assert x.grad is not None
    assert w.grad is not None
    equal(x.grad, np.ones((4, 6)) @ w_value)
    equal(w.grad, np.ones((6, 4)) @ x_value)
    # The gradient of x is summed over tp alone, that of w over dp alone.
    assert (x.grad.placements, w.grad.placements) == ((S0, R), (R, S0))


@on_ranks(2, 4)
def test_an_operand_that_is_added_once_enters_once_and_costs_nothing() -> None:
    mesh, x_value, w_value, b_value = line(), values(3, 8), values(4, 8, seed=1), values(4, seed=2)
    x, w, b = make(x_value, mesh, [S1]), make(w_value, mesh, [S1]), make(b_value, mesh, [R])
    for varying in (0, 1):
        b = make(b_value, mesh, [R], varying=varying)
        product = row_linear(x, w)
        with CommDebugMode() as comm:
            once = gradients.enter(b, 0, 1)
            y = wrap(product._local + once, product._spec)
            equal(y, x_value @ w_value.T + b_value)
            before = comm.total
            total(y).backward()
            assert comm.total == before
        assert b.grad is not None
        equal(b.grad, np.full(4, 3.0))


@on_ranks(3)
def test_once_is_exact_where_one_over_n_is_no_binary_fraction() -> None:
    b = make([0.1, 0.2, 0.7], line(), [R])
    summands = wrap(gradients.enter(b, 0, 1), Spec.of(Layout(b.device_mesh, (P,), 1)))
    assert summands.full_tensor().tolist() == [0.1, 0.2, 0.7]


# -- rule 3 -------------------------------------------------------------------------------------------------
def attention_input(x: DTensor, *weights: DTensor) -> DTensor:
    outputs = [total(column_linear(x, w)) for w in weights]
    return wrap(sum((y._local for y in outputs[1:]), outputs[0]._local), outputs[0]._spec)


@on_ranks(2, 4)
def test_consumers_of_one_input_share_one_backward_reduction() -> None:
    mesh, x_value = line(), values(3, 8)
    w_values = [values(4, 8, seed=seed) for seed in (1, 2, 3)]
    x, weights = make(x_value, mesh, [R]), [make(w, mesh, [S0]) for w in w_values]
    with CommDebugMode() as comm:
        attention_input(x, *weights).backward()
    assert comm.counts == {"all_reduce": 1}
    assert x.grad is not None
    equal(x.grad, np.ones((3, 4)) @ sum(w_values))


@on_ranks(2)
def test_consumers_of_one_plain_tensor_share_it_too() -> None:
    mesh, x_value = line(), values(3, 8)
    w_values = [values(4, 8, seed=seed) for seed in (1, 2)]
    leaf = sim.tensor(x_value, requires_grad=True)
    plain = leaf * 1.0
    with CommDebugMode() as comm:
        first, second = (
            total(column_linear(DTensor.from_local(plain, mesh, [R]), make(w, mesh, [S0]))) for w in w_values
        )
        wrap(first._local + second._local, first._spec).backward()
    assert comm.counts == {"all_reduce": 1}
    assert leaf.grad is not None
    equal(leaf.grad, np.ones((3, 4)) @ sum(w_values))


@on_ranks(2, 4)
def test_views_on_different_sets_of_axes_are_different_views() -> None:
    mesh = line()
    x = make(values(4), mesh, [R])
    view = gradients.varying_view(x, 1)
    assert gradients.varying_view(x, 1) is view
    y = make(values(4), square() if mesh.size() == 4 else mesh, [R] * (2 if mesh.size() == 4 else 1))
    if mesh.size() == 4:
        assert gradients.varying_view(y, 1) is not gradients.varying_view(y, 2)
        assert gradients.varying_view(y, 3) is gradients.varying_view(y, 3)


@on_ranks(2)
def test_writing_the_tensor_in_place_drops_its_view() -> None:
    mesh = line()
    x, w = make(values(3, 8), mesh, [R]), make(values(4, 8, seed=1), mesh, [S0])
    equal(column_linear(x, w), values(3, 8) @ values(4, 8, seed=1).T)
    view = gradients.varying_view(x, 1)
    with sim.no_grad():
        x._local.mul_(2.0)
    assert gradients.varying_view(x, 1) is not view
    y = column_linear(x, w)
    equal(y, 2 * values(3, 8) @ values(4, 8, seed=1).T)
    total(y).backward()
    assert x.grad is not None
    equal(x.grad, np.ones((3, 4)) @ values(4, 8, seed=1))


@on_ranks(2)
def test_exchanging_the_data_drops_the_view() -> None:
    """``.data =`` changes no version: who exchanges the local must say so."""
    mesh = line()
    x, w = make(values(3, 8), mesh, [R]), make(values(4, 8, seed=1), mesh, [S0])
    column_linear(x, w)
    version = x._local.counter.count
    x.data = make(values(3, 8, seed=5), mesh, [R], requires_grad=False)
    assert x._local.counter.count == version
    equal(column_linear(x, w), values(3, 8, seed=5) @ values(4, 8, seed=1).T)
    assert x.requires_grad
    with pytest.raises(TypeError, match="takes a DTensor, got SimTensor"):
        x.data = sim.tensor(values(3, 8))


@on_ranks(2)
def test_exchanging_the_data_drops_the_aliasing_view_of_a_gathered_tensor() -> None:
    mesh = line()
    w = make(values(4, 8, seed=1), mesh, [S0])
    gathered = make(values(4, 8), mesh, [S0]).redistribute([R])
    column_linear(gathered, w)
    gathered.data = make(values(4, 8, seed=5), mesh, [R], requires_grad=False)
    equal(column_linear(gathered, w), values(4, 8, seed=5) @ values(4, 8, seed=1).T)


@on_ranks(2)
def test_a_view_lives_as_long_as_its_stamp(platform: sim.SimulatedPlatform) -> None:
    x = make(values(4), line(), [R])
    view = gradients.varying_view(x, 1)
    x_local = x._local
    before, platform.scope = platform.scope, object()
    try:
        again = gradients.varying_view(x, 1)
        assert again is not view
        assert x._local is x_local
    finally:
        platform.scope = before


@on_ranks(2)
def test_views_are_neither_made_nor_read_without_gradients() -> None:
    x = make(values(4), line(), [R])
    with sim.no_grad():
        assert gradients.varying_view(x, 1) is x._local
        assert not x._views
    view = gradients.varying_view(x, 1)
    assert view is not x._local
    with sim.no_grad():
        assert gradients.varying_view(x, 1) is x._local
    assert gradients.varying_view(x, 1) is view
    frozen = make(values(4), line(), [R], requires_grad=False)
    assert gradients.varying_view(frozen, 1) is frozen._local
    assert not frozen._views


@on_ranks(2, 4)
def test_a_view_made_without_gradients_would_lose_the_gradient() -> None:
    """Evaluate first, then train: what evaluation leaves behind must not be used."""
    mesh = line()
    x, w = make(values(3, 8), mesh, [R]), make(values(4, 8, seed=1), mesh, [S0])
    with sim.no_grad():
        column_linear(x, w)
    total(column_linear(x, w)).backward()
    assert x.grad is not None
    equal(x.grad, np.ones((3, 4)) @ values(4, 8, seed=1))


@on_ranks(2)
def test_two_live_graphs_and_accumulation_over_micro_batches() -> None:
    mesh, w_value = line(), values(4, 8)
    batches = [values(3, 8, seed=seed) for seed in (1, 2, 3)]
    w = make(w_value, mesh, [R])
    losses = [total(local_map(ops.linear, [S0])(make(batch[:2], mesh, [S0]), w)) for batch in batches]
    losses[1].backward()
    losses[0].backward()
    losses[2].backward()
    assert w.grad is not None
    equal(w.grad, np.ones((4, 6)) @ np.concatenate([batch[:2] for batch in batches]))
    w.grad = None
    for batch in batches:
        total(local_map(ops.linear, [S0])(make(batch[:2], mesh, [S0]), w)).backward()
    assert w.grad is not None
    equal(w.grad, np.ones((4, 6)) @ np.concatenate([batch[:2] for batch in batches]))


@on_ranks(2)
def test_recomputation_builds_the_views_anew() -> None:
    """Activation checkpointing: forward without gradients, then again with them."""
    mesh, x_value, w_value = line(), values(3, 8), values(4, 8, seed=1)
    x, w = make(x_value, mesh, [R]), make(w_value, mesh, [S0])
    with sim.no_grad():
        loss = total(column_linear(x, w))
    again = total(column_linear(x, w))
    equal(again, loss)
    again.backward()
    assert x.grad is not None
    equal(x.grad, np.ones((3, 4)) @ w_value)


@on_ranks(2)
def test_views_do_not_keep_their_tensor_alive() -> None:
    mesh, collecting = line(), gc.isenabled()
    gc.disable()
    try:
        plain = sim.tensor(values(4), requires_grad=True) * 1.0
        x = DTensor.from_local(plain, mesh, [R])
        gathered = make(values(4), mesh, [S0]).redistribute([R])
        for t in (x, gathered):
            gradients.varying_view(t, 1)
        gone = [weakref.ref(t) for t in (plain, x, x._local, gathered, gathered._local)]
        del plain, x, gathered, t
        assert [ref() for ref in gone] == [None] * len(gone)
    finally:
        if collecting:
            gc.enable()


# -- rule 4 -------------------------------------------------------------------------------------------------
def gathered_input(w_seed: int = 1) -> tuple[DTensor, DTensor, DTensor, Any]:
    mesh = line()
    x = make(values(4, 8), mesh, [S0])
    return (
        x,
        x.redistribute([R]),
        make(values(4, 8, seed=w_seed), mesh, [S0]),
        np.ones((4, 4)) @ values(4, 8, seed=w_seed),
    )


@on_ranks(2, 4)
def test_the_consumer_decides_the_backward_of_a_gather() -> None:
    x, gathered, w, expected = gathered_input()
    with CommDebugMode() as comm:
        total(column_linear(gathered, w)).backward()
    assert comm.counts == {"reduce_scatter": 1}
    assert x.grad is not None
    equal(x.grad, expected)
    x, gathered, _, _ = gathered_input()
    with CommDebugMode() as comm:
        local_map(ops.sum, [R])(gathered).backward()
    assert comm.total == 0
    assert x.grad is not None
    equal(x.grad, np.ones((4, 8)))


@on_ranks(2, 4)
def test_the_varying_view_of_a_gather_aliases_its_data() -> None:
    _, gathered, _, _ = gathered_input()
    view = gradients.varying_view(gathered, 1)
    assert np.shares_memory(view.array, gathered._local.array)


@on_ranks(2, 4)
def test_both_kinds_of_consumers_of_one_gather() -> None:
    x, gathered, w, expected = gathered_input()
    alike = local_map(ops.sum, [R])(gathered).redistribute([P])
    by_rank = total(column_linear(gathered, w))
    wrap(alike._local + by_rank._local, alike._spec).backward()
    assert x.grad is not None
    equal(x.grad, expected + 1)


@on_ranks(2, 4)
def test_gradient_with_respect_to_a_gathered_tensor_adds_both_parts() -> None:
    _, gathered, w, expected = gathered_input()
    alike = local_map(ops.sum, [R])(gathered).redistribute([P])
    by_rank = total(column_linear(gathered, w))
    (found,) = sim.grad(wrap(alike._local + by_rank._local, alike._spec), [gathered])
    assert found is not None
    assert found.placements == (R,)
    equal(found, expected + 1)


@on_ranks(4)
def test_gathers_over_two_axes_with_views_on_any_of_them() -> None:
    mesh, value, weight = square(), values(4, 8), values(4, 8, seed=1)
    for source in ([S0, S1], [S0, S0], [S1, S0], [S1, S1]):
        for axes in range(4):
            x = make(value, mesh, source)
            gathered = x.redistribute([R, R])
            local = gradients.varying_view(gathered, axes) if axes else gathered._local
            equal(local.detach(), value)
            share = 1.0
            for axis, name in enumerate(("dp", "tp")):
                share *= weight_of_rank(mesh[name]) if axes >> axis & 1 else 1.0
            with CommDebugMode() as comm:
                (local * sim.tensor(weight) * share).sum().backward()
            expected = (
                {"dp": 1} if axes == 1 else {"tp": 1} if axes == 2 else {"dp": 1, "tp": 1} if axes else {}
            )
            assert {axis: n for (axis, _), n in comm.by_axis.items()} == expected
            assert x.grad is not None
            equal(x.grad, weight)


@on_ranks(2, 4)
def test_gather_then_in_place() -> None:
    x, gathered, w, expected = gathered_input()
    before = gradients.varying_view(gathered, 1)
    gathered._local.mul_(3.0)
    view = gradients.varying_view(gathered, 1)
    assert view is not before
    with CommDebugMode() as comm:
        total(column_linear(gathered, w)).backward()
    assert comm.counts == {"all_reduce": 1}  # the plain view
    assert x.grad is not None
    equal(x.grad, 3 * expected)


@on_ranks(2, 4)
def test_source_written_after_the_gather() -> None:
    """The gathered data is what it was; its view must not take the source's new history for its own."""
    x, _, w, expected = gathered_input()
    source = wrap(x._local * 1.0, x._spec, x.shape)
    gathered = source.redistribute([R])
    source._local.mul_(3.0)
    total(column_linear(gathered, w)).backward()
    assert x.grad is not None
    equal(x.grad, expected)


@pytest.mark.parametrize(
    "watch", [lambda t, seen: t.register_hook(seen.append), lambda t, seen: t.retain_grad()]
)
@on_ranks(2)
def test_a_hook_sees_the_whole_gradient(watch: Callable[..., None]) -> None:
    x, gathered, w, expected = gathered_input()
    seen: list[DTensor] = []
    watch(gathered, seen)
    total(column_linear(gathered, w)).backward()
    found = seen[0] if seen else gathered.grad
    assert found is not None
    assert found.placements == (R,)
    equal(found, expected)
    assert x.grad is not None
    equal(x.grad, expected)


@on_ranks(2)
def test_a_hook_may_replace_the_gradient() -> None:
    x, gathered, w, expected = gathered_input()
    gathered.register_hook(lambda g: wrap(g._local * 2.0, g._spec))  # type: ignore[attr-defined]
    total(column_linear(gathered, w)).backward()
    assert x.grad is not None
    equal(x.grad, 2 * expected)


@on_ranks(2)
def test_a_hook_that_comes_too_late_is_refused() -> None:
    _, gathered, w, _ = gathered_input()
    column_linear(gathered, w)
    with pytest.raises(
        RuntimeError, match="would miss the gradient of the ops that used it already; register it before"
    ):
        gathered.register_hook(print)  # type: ignore[attr-defined]


@on_ranks(2, 4)
def test_detach_of_a_gather_is_a_plain_tensor() -> None:
    x, gathered, w, _ = gathered_input()
    cut_off = gathered.data
    total(column_linear(cut_off, w)).backward()
    assert x.grad is None


@on_ranks(2, 4)
def test_view_ops_keep_aliasing_and_sharing() -> None:
    x, gathered, w, expected = gathered_input()
    transposed = wrap(ops.transpose(gathered._local, 0, 1), gathered._spec, (8, 4))
    gradients.derive_origin(transposed, gathered, lambda local: ops.transpose(local, 0, 1), None)
    view = gradients.varying_view(transposed, 1)
    assert np.shares_memory(view.array, gathered._local.array)
    back = local_map(lambda t, w: ops.linear(ops.transpose(t, 0, 1), w), [S1])
    with CommDebugMode() as comm:
        first, second = total(back(transposed, w)), total(column_linear(gathered, w))
        wrap(first._local + second._local, first._spec).backward()
    assert comm.counts == {"reduce_scatter": 1}
    assert x.grad is not None
    equal(x.grad, 2 * expected)


@on_ranks(2)
def test_pieces_of_a_split_share_the_view_of_their_source() -> None:
    mesh, value = line(), values(4, 8)
    x = make(value, mesh, [R])
    w = make(values(4, 4, seed=1), mesh, [S0])
    pieces = ops.split(x._local, 4, 1)
    outputs = []
    for index, piece in enumerate(pieces):
        t = wrap(piece, x._spec)
        gradients.derive_origin(t, x, lambda local: ops.split(local, 4, 1), index)
        outputs.append(total(column_linear(t, w)))
    with CommDebugMode() as comm:
        wrap(outputs[0]._local + outputs[1]._local, outputs[0]._spec).backward()
    assert comm.counts == {"all_reduce": 1}
    assert x.grad is not None
    equal(x.grad, np.tile(np.ones((4, 4)) @ values(4, 4, seed=1), 2))


@on_ranks(2)
def test_a_written_view_has_the_plain_view() -> None:
    """The source of a view op was written after it: only the result's own history is right."""
    x = make(values(4, 8), line(), [R])
    source = wrap(x._local * 1.0, x._spec)
    copy = wrap(ops.clone(source._local), source._spec)
    gradients.derive_origin(copy, source, ops.clone, None)
    source._local.mul_(3.0)
    w = make(values(4, 8, seed=1), line(), [S0])
    y = column_linear(copy, w)
    equal(y, values(4, 8) @ values(4, 8, seed=1).T)
    total(y).backward()
    assert x.grad is not None
    equal(x.grad, np.ones((4, 4)) @ values(4, 8, seed=1))


# -- rule 7 -------------------------------------------------------------------------------------------------
@on_ranks(2)
def test_untracked_results_with_a_foreign_history_are_refused() -> None:
    mesh = line()
    x = make(values(4, 8), mesh, [S0])
    with sim.no_grad():
        results = [x.redistribute([R]), local_map(lambda x: x * 2.0, [S0])(x)]
        results.append(results[1].redistribute([R]))
    plain = make(values(4, 8), mesh, [S0], requires_grad=False)
    with sim.no_grad():
        assert not plain.redistribute([R])._untracked
    for t in results:
        assert t._untracked
        t.to_local()  # a result of evaluation may be used
        t.has_foreign_history = True  # type: ignore[attr-defined]
        for use in (t.to_local, t.full_tensor, lambda t=t: t.redistribute([S1]), lambda t=t: t.backward(t)):
            with pytest.raises(RuntimeError, match=r"use_reentrant=False.*local_map"):
                use()
        with pytest.raises(RuntimeError, match=r"use_reentrant=False"):
            local_map(lambda t: t, [R])(t)
        with sim.no_grad():
            t.to_local()


# -- rules 5 and 8: nothing shared is written, every rank does the same -----------------------------------
@on_ranks(2, 4)
def test_a_shared_incoming_gradient_is_not_written() -> None:
    """The tape hands out read-only gradients: y gets the same one through both branches of the sum."""
    mesh, value = line(), values(4, 8)
    x = make(value, mesh, [P])
    for target in (R, S0, P):
        y = x.redistribute([target])
        both = wrap(y._local + y._local, y._spec)
        both.backward(sim.tensor(np.ones((4, 8))))
    assert x.grad is not None
    equal(x.grad, np.full((4, 8), 6.0))
    shared = sim.tensor(np.ones((4, 8)))
    for placement, varying in ((R, 0), (R, 1), (P, 0), (S0, 0)):
        t = make(value, mesh, [placement], varying=varying)
        t.redistribute([R if placement is not R else S0]).backward(shared)
    equal(shared, np.ones((4, 8)))


@on_ranks(2, 4)
def test_every_rank_has_the_same_requires_grad() -> None:
    """Also where a rank contributes zeros only: it still takes part in what the backward sends."""
    mesh = line()
    x = make(values(4, 8), mesh, [S0])
    y = x.redistribute([R])
    once = gradients.enter(y, 0, 1)
    assert once.requires_grad
    total(wrap(once, Spec.of(Layout(mesh, (P,), 2)))).backward()
    assert x.grad is not None
    equal(x.grad, np.ones((4, 8)))


# -- all together -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("sequence_parallel", [False, True])
@on_ranks(2, 4)
def test_three_steps_of_a_block_equal_one_device(sequence_parallel: bool) -> None:
    """Norm scale, shared q/k input, gate, row-parallel output with bias, residual; SGD on float64."""
    mesh, rate = line(), 0.1
    shapes = {"scale": (8,), "q": (8, 8), "k": (8, 8), "o": (8, 8), "bias": (8,)}
    split = {"scale": R, "q": S0, "k": S0, "o": S1, "bias": R}
    start = {name: values(*shape, seed=seed) * 0.3 for seed, (name, shape) in enumerate(shapes.items())}
    x_value = values(4, 8, seed=9)

    def one_device(p: dict[str, sim.SimTensor]) -> sim.SimTensor:
        h = ops.tensor(x_value) * p["scale"]
        mixed = ops.tanh(ops.linear(h, p["q"])) * ops.linear(h, p["k"])
        return ops.mean((h + ops.linear(mixed, p["o"], p["bias"])) ** 2)

    def distributed(p: dict[str, DTensor]) -> DTensor:
        x = make(x_value, mesh, [S0 if sequence_parallel else R], requires_grad=False)
        h = local_map(ops.mul, [x.placements[0]])(x, p["scale"])
        whole_h = h.redistribute([R])
        q, k = column_linear(whole_h, p["q"]), column_linear(whole_h, p["k"])
        mixed = local_map(lambda q, k: ops.tanh(q) * k, [S1])(q, k)
        product = row_linear(mixed, p["o"])
        out = wrap(product._local + gradients.enter(p["bias"], 0, 1), product._spec)
        out = out.redistribute([x.placements[0]])
        y = local_map(lambda h, o: (h + o) ** 2, [x.placements[0]])(h, out)
        mean = local_map(lambda y: ops.sum(y) / x_value.size, [P if sequence_parallel else R])
        return mean(y)

    reference = {name: sim.tensor(value, requires_grad=True) for name, value in start.items()}
    parameters = {name: make(value, mesh, [split[name]]) for name, value in start.items()}
    for _ in range(3):
        expected = one_device(reference)
        expected.backward()
        with CommDebugMode() as comm:
            loss = distributed(parameters)
            loss.backward()
        equal(loss, expected)
        hand_written = (
            {"all_gather": 2, "reduce_scatter": 2, "all_reduce": 1}
            if sequence_parallel
            else {"all_reduce": 2}
        )
        assert comm.counts == hand_written
        for name, p in parameters.items():
            assert p.grad is not None
            equal(p.grad, reference[name].grad)
            with sim.no_grad():
                p._local.add_(p.grad.redistribute(p.placements)._local, alpha=-rate)
                reference[name].add_(reference[name].grad, alpha=-rate)
            p.grad = reference[name].grad = None
