"""Gradient states (design section 3): invariant and varying tensors, their views, and what these cost."""

from __future__ import annotations

from typing import Any

import numpy as np

from hyper_conformance.case import case
from hyper_conformance.here import Here
from hyper_dtensor import CommDebugMode, DTensor, Spec, gradients, local_map, wrap
from hyper_layout import Layout, Partial, Placement, Replicate, Shard

R, S0, S1, P, AVG = Replicate(), Shard(0), Shard(1), Partial(), Partial("avg")

# The placement, whether it varies, the gradient that the local tensor is said to have, and the collective of
# the backward (rule 5).
TO_LOCAL: dict[str, tuple[Placement, int, Placement, dict[str, int]]] = {
    "invariant,R": (R, 0, R, {}),
    "invariant,P": (R, 0, P, {"all_reduce": 1}),
    "varying,R": (R, 1, R, {}),
    "varying,P": (R, 1, P, {}),
    "P(sum),R": (P, 0, R, {}),
    "P(sum),P": (P, 0, P, {"all_reduce": 1}),
    "P(avg),R": (AVG, 0, R, {}),
    "P(avg),P": (AVG, 0, P, {"all_reduce": 1}),
    "S(0),S(0)": (S0, 0, S0, {}),
}


@case(2, over=TO_LOCAL)
def to_local(here: Here, placement: Placement, varying: int, grad: Placement, sent: dict[str, int]) -> None:
    """``to_local(grad_placements=)``: every line of the table, and what its backward sends."""
    mesh, f = here.line(), here.platform.ops
    value, weight = here.values(4, 8), here.values(4, 8, seed=1)
    layout = Layout(mesh, (placement,), 2)
    spec = Spec.of(layout, varying)
    share = here.share() if grad.is_partial() else 1.0
    mine = here.tensor((weight[layout.local_slice(weight.shape)] if placement.is_shard() else weight) * share)
    local_value = here.part(value, layout)

    def loss(local: Any) -> Any:
        out = wrap(local, spec, value.shape).to_local(grad_placements=[grad])
        here.close(out, local_value)
        return f.sum(out * mine)

    with CommDebugMode() as comm:
        _, (gradient,) = here.harness.gradients(loss, here.tensor(local_value))
    here.equal(comm.counts, sent)
    here.close(here.whole_gradient(spec, value.shape, gradient), weight)


@case(2)
def from_local(here: Here) -> None:
    """A local tensor enters as invariant, or, with ``grad_placements=[Partial()]``, as varying."""
    mesh, f = here.line(), here.platform.ops
    value, weight = here.values(4, 8), here.values(4, 8, seed=1)
    share = here.share()
    # Not multiplied by a number in the loss: some frameworks round numbers to float32.
    mine = here.tensor(weight * share)

    def invariant(x: Any) -> Any:
        t = DTensor.from_local(x * 2.0, mesh, [R])
        here.equal(t._spec.varying, 0)
        return f.sum(t.to_local(grad_placements=[P]) * mine)

    _, (gradient,) = here.harness.gradients(invariant, here.tensor(value))
    here.close(gradient, 2 * weight)

    def varying(x: Any) -> Any:
        t = DTensor.from_local(x * 2.0, mesh, [R], grad_placements=[P])
        here.equal(t._spec.varying, 1)
        return f.sum(t.to_local(grad_placements=[P]) * mine)

    with CommDebugMode() as comm:
        _, (gradient,) = here.harness.gradients(varying, here.tensor(value))
    here.equal(comm.total, 0)
    here.close(gradient, 2 * weight * share)


def _column(x: DTensor, w: DTensor) -> DTensor:
    """``x @ w`` for a ``w`` whose columns are split."""
    made: DTensor = local_map(lambda x, w: x @ w, [S1])(x, w)
    return made


def _plain_sum(here: Here, t: DTensor) -> Any:
    """The sum of a tensor that is split by columns, plain and whole on every rank."""
    partial: DTensor = local_map(here.platform.ops.sum, [P])(t)
    return partial.full_tensor()


@case(2)
def an_invariant_operand_of_a_varying_op(here: Here) -> None:
    """Its gradient is the sum over the ranks: one all_reduce backward."""
    mesh, x, w = here.line(), here.values(3, 8), here.values(8, 4, seed=1)
    split = Layout(mesh, (S1,), 2)

    def loss(a: Any, b: Any) -> Any:
        return _plain_sum(here, _column(DTensor.from_local(a, mesh, [R]), DTensor.from_local(b, mesh, [S1])))

    with CommDebugMode() as comm:
        value, (of_x, of_w) = here.harness.gradients(loss, here.tensor(x), here.tensor(here.part(w, split)))
    here.equal(comm.backward_counts, {"all_reduce": 1})
    here.close(value, (x @ w).sum())
    here.close(of_x, np.ones((3, 4)) @ w.T)
    here.close(here.whole_gradient(Spec.of(split), w.shape, of_w), x.T @ np.ones((3, 4)))


@case(2)
def consumers_share_one_view(here: Here) -> None:
    """Three projections of one input cost one backward reduction, also where each wraps the plain input."""
    mesh, x = here.line(), here.values(3, 8)
    weights = [here.values(8, 4, seed=seed) for seed in (1, 2, 3)]
    split = [here.distributed(w, mesh, [S1]) for w in weights]

    def one_tensor(a: Any) -> Any:
        t = DTensor.from_local(a * 1.0, mesh, [R])
        first, second, third = (_plain_sum(here, _column(t, w)) for w in split)
        return first + second + third

    def one_plain_tensor(a: Any) -> Any:
        y = a * 1.0
        first, second, third = (_plain_sum(here, _column(DTensor.from_local(y, mesh, [R]), w)) for w in split)
        return first + second + third

    for loss in (one_tensor, one_plain_tensor):
        with CommDebugMode() as comm:
            _, (gradient,) = here.harness.gradients(loss, here.tensor(x))
        here.close(gradient, np.ones((3, 4)) @ np.sum(weights, 0).T)
        here.equal(comm.backward_counts, {"all_reduce": 1}, loss.__name__)


@case(2)
def the_consumer_decides_the_backward_of_a_gather(here: Here) -> None:
    """A gathered tensor: a varying op costs a reduce_scatter backward, an op alike on all ranks nothing."""
    mesh, x, w = here.line(), here.values(4, 8), here.values(8, 4, seed=1)
    layout = Layout(mesh, (S0,), 2)
    weight = here.distributed(w, mesh, [S1])
    f = here.platform.ops

    def by_rank(a: Any) -> Any:
        return _plain_sum(here, _column(DTensor.from_local(a, mesh, [S0]).redistribute([R]), weight))

    def alike(a: Any) -> Any:
        whole = DTensor.from_local(a, mesh, [S0]).redistribute([R]).to_local()
        return f.sum(whole * whole)

    expected = {by_rank: np.ones((4, 4)) @ w.T, alike: 2 * x}
    for loss, sent in ((by_rank, {"reduce_scatter": 1}), (alike, {})):
        with CommDebugMode() as comm:
            _, (gradient,) = here.harness.gradients(loss, here.tensor(here.part(x, layout)))
        here.equal(comm.backward_counts, sent, loss.__name__)
        here.close(here.whole_gradient(Spec.of(layout), x.shape, gradient), expected[loss], loss.__name__)


@case(2)
def both_consumers_of_a_gather_count(here: Here) -> None:
    """One consumer alike on all ranks and one by rank: the gradient is the sum of both."""
    mesh, x, w = here.line(), here.values(4, 8), here.values(8, 4, seed=1)
    layout = Layout(mesh, (S0,), 2)
    weight, f = here.distributed(w, mesh, [S1]), here.platform.ops

    def loss(a: Any) -> Any:
        whole = DTensor.from_local(a, mesh, [S0]).redistribute([R])
        local = whole.to_local()
        return _plain_sum(here, _column(whole, weight)) + f.sum(local * local)

    _, (gradient,) = here.harness.gradients(loss, here.tensor(here.part(x, layout)))
    here.close(here.whole_gradient(Spec.of(layout), x.shape, gradient), np.ones((4, 4)) @ w.T + 2 * x)


@case(2)
def what_is_added_once_costs_nothing(here: Here) -> None:
    """A bias enters a Partial output on one rank: exact, and no collective in either direction."""
    mesh, f = here.line(), here.platform.ops
    value, weight = here.values(4), here.tensor(here.values(4, seed=1))
    for varying in (0, 1):
        spec = Spec.of(Layout(mesh, (R,), 1), varying)

        def loss(local: Any, spec: Spec = spec) -> Any:
            once = gradients.enter(wrap(local, spec, value.shape), 0, 1)
            return f.sum(once * weight)

        with CommDebugMode() as comm:
            _, (gradient,) = here.harness.gradients(loss, here.tensor(value))
        here.equal(comm.total, 0)
        first = here.rank == 0
        expected = here.array(weight) * (1 if first or not varying else 0)
        here.close(gradient, expected, f"varying={varying}")


@case(2)
def every_computation_is_as_right_as_the_first(here: Here) -> None:
    """A distributed tensor that lives longer than one gradient computation: its views do not go stale."""
    mesh, x, w = here.line(), here.values(3, 8), here.values(8, 4, seed=1)
    weight = here.distributed(w, mesh, [S1])
    constant = DTensor.from_local(here.tensor(x), mesh, [R])

    def loss(a: Any) -> Any:
        t = DTensor.from_local(a, mesh, [R])
        return _plain_sum(here, _column(t, weight)) + _plain_sum(here, _column(constant, weight))

    leaf = here.tensor(x)
    with here.harness.no_grad():
        loss(leaf)  # evaluate first, then train
    for _ in range(3):
        _, (gradient,) = here.harness.gradients(loss, leaf)
        here.close(gradient, np.ones((3, 4)) @ w.T)


@case(2)
def writing_in_place_drops_the_view(here: Here) -> None:
    """The varying view of a tensor that was written since is made anew."""
    mesh, x, w = here.line(), here.values(3, 8), here.values(8, 4, seed=1)
    weight, half = here.distributed(w, mesh, [S1]), here.tensor(np.asarray(0.5))

    def loss(a: Any) -> Any:
        t = DTensor.from_local(a * 1.0, mesh, [R])
        first = gradients.varying_view(t, 1)
        assert gradients.varying_view(t, 1) is first
        here.platform.scale_(t._local, half)
        assert gradients.varying_view(t, 1) is not first
        return _plain_sum(here, _column(t, weight))

    value, _ = here.harness.gradients(loss, here.tensor(x))
    here.close(value, (0.5 * x @ w).sum())


@case(2)
def views_are_not_made_where_gradients_are_off(here: Here) -> None:
    """With gradients off, or for a tensor that needs none, the bare local enters."""
    t = DTensor.from_local(here.tensor(here.values(4)), here.line(), [R])
    assert gradients.varying_view(t, 1) is t._local
    assert not t._views


@case(2, ranks=(4,))
def on_one_of_two_axes(here: Here) -> None:
    """A gradient is reduced over the axes on which its op varies, and over no other."""
    mesh, x, w = here.square(), here.values(4, 8), here.values(8, 6, seed=1)
    of_x, of_w = Layout(mesh, (S0, R), 2), Layout(mesh, (R, S1), 2)
    f = here.platform.ops

    def loss(a: Any, b: Any) -> Any:
        y = local_map(lambda x, w: x @ w, [S0, S1])(
            DTensor.from_local(a, mesh, [S0, R]), DTensor.from_local(b, mesh, [R, S1])
        )
        return local_map(f.sum, [P, P])(y).full_tensor()

    inputs = [here.tensor(here.part(x, of_x)), here.tensor(here.part(w, of_w))]
    with CommDebugMode() as comm:
        _, (grad_x, grad_w) = here.harness.gradients(loss, *inputs)
    sent = {(e.axis, e.kind): n for e, n in comm.records.items() if e.backward}
    here.equal(sent, {("tp", "all_reduce"): 1, ("dp", "all_reduce"): 1})
    here.close(here.whole_gradient(Spec.of(of_x), x.shape, grad_x), np.ones((4, 6)) @ w.T)
    here.close(here.whole_gradient(Spec.of(of_w), w.shape, grad_w), x.T @ np.ones((4, 6)))
