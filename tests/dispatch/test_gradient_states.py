"""Covers record.py and call_plan.py: which operand enters how (design section 3, rules 2 and 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from hyper_dispatch import OpDispatcher, RowsOp, register_op, row
from hyper_dispatch.call_plan import Place, find_places, replaced
from hyper_dispatch.record import Entrance, Record
from hyper_dtensor import CommDebugMode, DTensor
from hyper_layout import Layout, Shard
from tests.dispatch.examples import (
    LINE,
    MESH,
    S0,
    S1,
    Join,
    P,
    Product,
    R,
    Recorder,
    Sum,
    Turn,
    caller,
    tensor,
)
from tests.support import simulated as sim
from tests.support.simulated import ops


def record(op: RowsOp, *operands: DTensor, statics: Sequence[Any] = ()) -> Record:
    values = [*[operand.layout for operand in operands], *statics]
    return Record(op, [operand._spec for operand in operands], values, op.infer_layout(values))


def test_an_operand_is_viewed_where_the_operation_varies() -> None:
    made = record(Product("f"), tensor([S0, R], 4, 4), tensor([R, S1], 4, 4))
    assert made.entrances == (Entrance(0, 0b10, 0), Entrance(1, 0b01, 0))
    assert made.specs[0] is not None and made.specs[0].varying == 0


def test_a_varying_operand_makes_the_operation_vary() -> None:
    made = record(Product("f"), tensor([R, R], 4, 4, varying=1), tensor([R, R], 4, 4))
    assert made.entrances == (Entrance(1, 0b01, 0),)
    assert made.specs[0] is not None and made.specs[0].varying == 0b01


def test_nothing_is_viewed_where_all_is_invariant() -> None:
    made = record(Product("f"), tensor([R, R], 4, 4), tensor([R, R], 4, 4))
    assert made.entrances == () and made.specs[0] is not None and made.specs[0].varying == 0


def test_an_operand_added_once_is_not_viewed() -> None:
    made = record(Sum("f"), tensor([P, R], 4), tensor([R, R], 4))
    assert made.entrances == (Entrance(1, 0, 0b01),)


def test_an_output_is_invariant_where_the_implementation_reduced() -> None:
    class Reduced(Sum):
        def rows(self, cache_values: Sequence[Any]) -> Any:
            return [row("S(0) -> I")]

    assert record(Reduced("f"), tensor([S0, R], 4, varying=2)).specs[0].varying == 0b10  # type: ignore[union-attr]


def test_a_replicate_output_of_a_sharded_operand_is_varying() -> None:
    class Metadata(Sum):
        def rows(self, cache_values: Sequence[Any]) -> Any:
            return [row("R S(0) -> R")]

    made = record(Metadata("f"), tensor([R, R], 4), tensor([R, S0], 4))
    assert made.specs[0] is not None and made.specs[0].varying == 0b10
    assert made.entrances == (Entrance(0, 0b10, 0),)


def test_the_target_of_an_in_place_operation_is_not_viewed() -> None:
    op = Sum("f")
    op.inplace = True
    made = record(op, tensor([R, R], 4), tensor([R, R], 4, varying=3))
    assert made.entrances == () and made.state_change is not None


def test_effects_of_a_seed_are_none() -> None:
    class Seed(Sum):
        def infer_layout(self, cache_values: Sequence[Any]) -> Any:
            return (cache_values[0],), ("what", "ever")

    assert record(Seed("f"), tensor([S0, R], 4)).entrances == ()


# -- places ---------------------------------------------------------------------------------------------


def test_places_are_found_by_identity() -> None:
    a, b, c = object(), object(), object()
    assert find_places([a, b, a, c], [a, 1, (a, 2)], {"k": [b], "n": None}) == [
        Place(False, 0, -1),
        Place(True, "k", 0),
        Place(False, 2, 0),
        None,
    ]


def test_replacing_leaves_the_call_alone() -> None:
    args, kwargs = [1, [2, 3]], {"k": (4, 5), "n": 6}
    changed = replaced(
        args, kwargs, [(Place(False, 1, 0), "x"), (Place(True, "k", 1), "y"), (Place(False, 0, -1), "z")]
    )
    assert changed == (("z", ["x", 3]), {"k": (4, "y"), "n": 6})
    assert (args, kwargs) == ([1, [2, 3]], {"k": (4, 5), "n": 6})


# -- what runs ------------------------------------------------------------------------------------------


@pytest.fixture
def sent(dispatcher: OpDispatcher) -> Callable[..., Any]:
    """The locals that an operation was called with, in all forms of a call and from both caches."""
    register_op("plus", Sum, signature="input, other")

    def call(*args: Any, **kwargs: Any) -> Any:
        function = Recorder(lambda input, other: ops.add(input, other))
        caller(dispatcher, "plus", function)(*args, **kwargs)
        caller(dispatcher, "plus", function)(*args, **kwargs)
        return [(*sent_args, *sent_kwargs.values()) for sent_args, sent_kwargs in function.calls]

    return call


def test_views_are_sent_only_where_a_gradient_needs_them(sent: Callable[..., Any]) -> None:
    x = tensor([R, R], 4, varying=1)
    for y, bare in [(tensor([R, R], 4), True), (tensor([R, R], 4, requires_grad=True), False)]:
        assert [call[1] is y._local for call in sent(x, y)] == [bare] * 2
        assert [call[1] is y._local for call in sent(x, other=y)] == [bare] * 2
        with sim.no_grad():
            assert [call[1] is y._local for call in sent(x, y)] == [True] * 2


def test_what_enters_once_is_zero_elsewhere() -> None:
    register_op("plus", Sum, signature="input, other")
    dispatcher = OpDispatcher()

    def program() -> Any:
        x, y = tensor([P], 4, mesh=LINE), tensor([R], 4, mesh=LINE)
        plus = caller(dispatcher, "plus", lambda input, other: ops.add(input, other))
        with sim.no_grad():
            outs = [plus(x, y), plus(x, y), plus(x, other=y), plus(other=y, input=x)]
        return [(out._local.array - x._local.array == y._local.array).all() for out in outs]

    assert sim.run_ranks(4, program) == [[True] * 4] + [[False] * 4] * 3


def test_views_in_lists(dispatcher: OpDispatcher) -> None:
    register_op("join", Join, signature="tensors, dim=0")
    function = Recorder(ops.cat)
    join = caller(dispatcher, "join", function)
    x, y = tensor([R, R], 2, 4, varying=1), tensor([R, R], 2, 4, requires_grad=True)
    parts = [x, y]
    for _ in range(2):
        join(parts)
    for args, _ in function.calls:
        assert args[0][0] is x._local and args[0][1] is not y._local
    assert parts[0] is x and parts[1] is y


def gradients_of(program: Callable[[], Any], ranks: int = 4) -> list[Any]:
    return sim.run_ranks(ranks, program)


def test_gradients_are_the_single_device_ones() -> None:
    """A product over a split dim, a bias added once, and a shared operand, on both caches."""
    register_op("multiply", Product, signature="x, w")
    register_op("plus", Sum, signature="input, other")
    register_op("turn", Turn, signature="input")
    dispatcher = OpDispatcher()
    values = np.random.default_rng(0).standard_normal((3, 4, 4))

    def reference() -> Any:
        x, w, b = (sim.tensor(value, requires_grad=True) for value in values)
        y = ops.add(ops.matmul(x, w), b)
        ops.sum(ops.mul(y, ops.matmul(ops.t(w), x))).backward()
        return [t.grad.array for t in (x, w, b) if t.grad is not None]

    def program() -> Any:
        multiply = caller(dispatcher, "multiply", ops.matmul)
        plus = caller(dispatcher, "plus", ops.add)
        turn = caller(dispatcher, "turn", ops.t)

        def make(value: Any, *placements: Any) -> DTensor:
            layout = Layout(MESH, placements, 2)
            local = sim.tensor(value[layout.local_slice(value.shape)].copy(), requires_grad=True)
            return DTensor.from_local(local, MESH, placements)

        found = []
        for _ in range(2):
            x, w, b = make(values[0], R, S1), make(values[1], R, S0), make(values[2], R, R)
            y = plus(multiply(x, w), b).redistribute(tp=R)
            # w turned is split along its columns, x along its columns: gathered, they meet once more.
            z = multiply(turn(w).redistribute(tp=R), x.redistribute(tp=Shard(1)))
            loss = ops.sum(ops.mul(y.full_tensor(), z.full_tensor()))
            loss.backward()
            with sim.no_grad():
                found.append([t.grad.full_tensor().array for t in (x, w, b) if t.grad is not None])
        return found

    expected = reference()
    for rank in gradients_of(program):
        for found in rank:
            for actual, wanted in zip(found, expected, strict=True):
                np.testing.assert_allclose(actual, wanted, rtol=1e-12)


def test_a_view_shares_the_varying_view_of_its_source() -> None:
    """Two users of a turned tensor and two of the tensor itself cost one backward reduction (rule 4)."""
    register_op("multiply", Product, signature="x, w")
    register_op("turn", Turn, signature="input")
    dispatcher = OpDispatcher()

    def program() -> Any:
        multiply, turn = caller(dispatcher, "multiply", ops.matmul), caller(dispatcher, "turn", ops.t)
        x = tensor([R], 4, 4, mesh=LINE, requires_grad=True)
        w = tensor([S1], 4, 4, mesh=LINE)
        turned = turn(x)
        parts = [multiply(t, w).to_local() for t in (turned, x, turned, x, turn(x))]
        with CommDebugMode() as mode:
            ops.sum(
                ops.add(ops.add(parts[0], parts[1]), ops.add(ops.add(parts[2], parts[3]), parts[4]))
            ).backward()
        whole, piece = ops.ones(4, 4), w.redistribute(tp=R)._local
        both = ops.add(
            ops.mul(ops.matmul(whole, ops.t(piece)), 2), ops.mul(ops.t(ops.matmul(whole, ops.t(piece))), 3)
        )
        assert x.grad is not None
        return mode.backward_counts, bool(np.allclose(x.grad._local.array, both.array))

    assert gradients_of(program) == [({"all_reduce": 1}, True)] * 4
