"""Covers refusal.py, cures.py, admission.py and writes.py: what is refused, and the exact words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hyper_dispatch import DistributedOp, OpDispatcher, register_op
from hyper_dispatch.cures import Operand, find_cures
from hyper_dtensor import DTensor, implicit_replication
from hyper_layout import DeviceMesh, Layout, LayoutError, Partial, Shard, StridedShard
from tests.dispatch.examples import LINE, MESH, S0, S1, Join, P, Product, R, Sum, Turn, caller, tensor
from tests.support import simulated as sim
from tests.support.simulated import ops


@pytest.fixture
def multiply(dispatcher: OpDispatcher) -> Callable[..., Any]:
    register_op("multiply", Product, signature="x, w")
    return caller(dispatcher, "multiply", ops.matmul)


def message(call: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    with pytest.raises(LayoutError) as caught:
        call(*args, **kwargs)
    return str(caught.value)


def test_the_message_of_the_design(multiply: Callable[..., Any]) -> None:
    mesh = DeviceMesh("cpu", (2, 4), ("dp", "tp"))
    x, w = tensor([S0, S1], 8, 16, mesh=mesh), tensor([R, S1], 16, 4, mesh=mesh)
    assert message(multiply, x, w) == (
        "multiply cannot combine its operands on mesh axis 'tp' (size 4)\n"
        "  x: f64[8,16]  dp:S(0) tp:S(1)      w: f64[16,4]  dp:R tp:S(1)\n"
        "  dim k is split in x (dim 1) but not in w (dim 0)\n"
        "  either  w.redistribute(tp=S(0))  1 all_to_all     or  x.redistribute(tp=R)  1 all_gather"
    )


def test_cures_work_when_they_are_made(multiply: Callable[..., Any]) -> None:
    """What the message says is accepted by the dispatcher."""
    x, w = tensor([R, R], 8, 16), tensor([R, S0], 16, 4)
    assert "either  x.redistribute(tp=S(1))  free" in message(multiply, x, w)
    cured = multiply(x.redistribute(tp=Shard(1)), w)
    assert cured.placements == (R, P)


def test_one_operand(dispatcher: OpDispatcher) -> None:
    register_op("turn", Turn, signature="input")
    turn = caller(dispatcher, "turn", ops.t)
    x = tensor([Partial("max"), R], 4, 4)
    assert message(turn, x) == (
        "turn cannot take its operand on mesh axis 'dp' (size 2)\n"
        "  input: f64[4,4]  dp:P(max) tp:R\n"
        "  its operands are P(max); the nearest it can do is S(0) or S(1) or P(sum)\n"
        "  either  input.redistribute(dp=S(0))  1 reduce_scatter     or  input.redistribute(dp=S(1))  1 reduce_scatter"
    )


def test_two_operands_may_have_to_move(multiply: Callable[..., Any]) -> None:
    text = message(multiply, tensor([R, P], 8, 16), tensor([R, P], 16, 4))
    assert text.splitlines()[-1] == (
        "  either  w.redistribute(tp=R)  1 all_reduce     or  x.redistribute(tp=S(1)) and w.redistribute(tp=S(0))  "
        "2 reduce_scatter"
    )


def test_an_order_of_axes_can_be_cured(multiply: Callable[..., Any]) -> None:
    x, w = tensor([S1, S1], 8, 16), tensor([StridedShard(0, 2), S0], 16, 4)
    text = message(multiply, x, w)
    assert "dim 1 of x is split by (dp, tp) but dim 0 of w by (tp, dp)" in text
    assert "w.redistribute(dp=S(0))" in text


def test_lists_are_named_item_by_item(dispatcher: OpDispatcher) -> None:
    register_op("join", Join, signature="tensors, dim=0")
    join = caller(dispatcher, "join", ops.cat)
    parts = [tensor([S1, R], 2, 4) for _ in range(5)] + [tensor([R, R], 2, 4)]
    lines = message(join, parts).splitlines()
    assert lines[1].startswith("  tensors[0]: f64[2,4]  dp:S(1) tp:R      tensors[1]: ")
    assert lines[1].endswith("      ... and 2 more")
    assert lines[-1] == (
        "  either  tensors[5].redistribute(dp=S(1))  free     or  tensors[0].redistribute(dp=R) and "
        "tensors[1].redistribute(dp=R) and 3 more alike  5 all_gather"
    )


class Fussy(DistributedOp):
    """Raises its own words, as the seeds' strategies do."""

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return (args[0].to_local(),), {}, [args[0].layout]

    def infer_layout(self, cache_values: Sequence[Any]) -> Any:
        if cache_values[0].alias_tensor_map[0] != "None":
            raise ValueError(f"For {self.op_name}, dim 0 must not be sharded.")
        return (cache_values[0],), None


def test_the_words_of_a_strategy_are_kept(dispatcher: OpDispatcher) -> None:
    register_op("fussy", Fussy("fussy"))
    fussy = caller(dispatcher, "fussy", ops.neg)
    assert message(fussy, tensor([S0, R], 4, 4)) == (
        "For fussy, dim 0 must not be sharded.\n"
        "  args[0]: f64[4,4]  dp:S(0) tp:R\n"
        "  either  args[0].redistribute(dp=S(1))  1 all_to_all     or  args[0].redistribute(dp=R)  1 all_gather"
    )


def test_a_cure_divides_the_dim() -> None:
    odd = Operand("x", "f32", (3, 8), 4, Layout(LINE, (S1,), 2))
    cures = find_cures([odd], [0], lambda layouts: layouts[0] is not odd.layout)
    assert [str(cure) for cure in cures] == ["x.redistribute(tp=R)  1 all_gather"]


def test_at_most_two_cures_fewest_bytes_first() -> None:
    big = Operand("big", "f32", (8, 8), 4, Layout(LINE, (S0,), 2))
    small = Operand("small", "f32", (4, 4), 4, Layout(LINE, (S1,), 2))
    cures = find_cures([big, small], [0], lambda layouts: layouts != [big.layout, small.layout])
    assert [cure.bytes for cure in cures] == sorted(cure.bytes for cure in cures)
    assert len(cures) == 2 and str(cures[0]) == "small.redistribute(tp=S(0))  1 all_to_all"
    assert find_cures([big, small], [0], lambda layouts: False) == []


def test_two_meshes(multiply: Callable[..., Any]) -> None:
    x, w = tensor([R, R], 4, 4), tensor([R], 4, 4, mesh=LINE)
    assert message(multiply, x, w) == (
        "multiply got operands on different meshes\n"
        f"  x is on {MESH!r}\n"
        f"  w is on {LINE!r}\n"
        "  distribute all operands of one operation on the same mesh"
    )


def test_a_plain_tensor(multiply: Callable[..., Any]) -> None:
    assert message(multiply, tensor([R, R], 4, 4), sim.tensor([[1.0, 2.0]])) == (
        "multiply: argument 'w' is a plain tensor f64[1,2] among distributed ones\n"
        "  if it is this rank's part:  DTensor.from_local(w, mesh, placements)\n"
        "  if it is the whole tensor:  distribute_tensor(w, mesh, placements)\n"
        "  if all ranks hold the same values:  with implicit_replication(): ...\n"
        "  if it left a tensor-parallel style:  give that style use_local_output=False"
    )
    assert "argument 'x' is a plain" in message(multiply, w=tensor([R, R], 4, 4), x=sim.tensor([[1.0, 2.0]]))


def test_a_plain_tensor_in_a_list(dispatcher: OpDispatcher) -> None:
    register_op("join", Join, signature="tensors, dim=0")
    join = caller(dispatcher, "join", ops.cat)
    assert "argument 'tensors[1]' is a plain" in message(
        join, [tensor([R, R], 2, 4), sim.tensor([[1.0] * 4])]
    )


def test_plain_tensors_that_are_let_in(dispatcher: OpDispatcher) -> None:
    register_op("plus", Sum, signature="input, other")
    register_op("join", Join, signature="tensors, dim=0")
    register_op("ids", Sum, signature="input, other", plain=["other"])
    x = tensor([R, R], 2)
    whole = sim.tensor([1.0, 2.0])
    assert caller(dispatcher, "ids", ops.add)(x, whole).layout is x.layout
    with implicit_replication():
        out = caller(dispatcher, "join", ops.cat)([x, whole])
        assert caller(dispatcher, "plus", ops.add)(whole, x).layout is x.layout
    assert isinstance(out, DTensor) and out.shape == (4,)
    # 0-d tensors are numbers.
    zero = Layout(MESH, (R, R), 0)
    out = caller(dispatcher, "plus", ops.add)(DTensor.from_local(sim.tensor(1.0), MESH), sim.tensor(2.0))
    assert out.layout is zero and out._local.array == 3


def test_a_plain_target_is_not_written(dispatcher: OpDispatcher) -> None:
    register_op("plus_", Sum, signature="input, other", inplace=True)
    with implicit_replication():
        assert message(caller(dispatcher, "plus_", ops.add_), sim.tensor([1.0]), tensor([R, R], 1)) == (
            "plus_ would write a distributed result into the plain tensor 'input'; use the out-of-place form, "
            "or wrap the tensor with DTensor.from_local first. If it is the state of an optimizer: build the "
            "optimizer after the plan is applied"
        )
    # A whole 0-d tensor is a number: the plain tensor is the same afterwards on all ranks.
    target = sim.tensor([1.0, 2.0])
    assert caller(dispatcher, "plus_", ops.add_)(target, tensor([R, R])) is target
    assert "would write" in message(caller(dispatcher, "plus_", ops.add_), target, tensor([R, P]))


def test_tensors_deep_in_lists_are_not_found(multiply: Callable[..., Any]) -> None:
    assert message(multiply, [[tensor([R, R], 2, 2)]], 1) == (
        "multiply: found no DTensor among the arguments or in lists among them"
    )
    assert "found no DTensor" in message(multiply, sim.tensor([1.0]), 1)


# -- writing --------------------------------------------------------------------------------------------


@pytest.fixture
def plus_(dispatcher: OpDispatcher) -> Callable[..., Any]:
    register_op("plus_", Sum, signature="input, other, *, alpha=1", inplace=True)
    return caller(dispatcher, "plus_", ops.add_)


def test_in_place_returns_the_target(plus_: Callable[..., Any]) -> None:
    x = tensor([S0, R], 4, 4)
    before = x._local.array.copy()
    assert plus_(x, tensor([S0, R], 4, 4)) is x
    assert plus_(x, x, alpha=1) is x
    assert (x._local.array == 4 * before).all()


def test_in_place_keeps_the_layout(plus_: Callable[..., Any]) -> None:
    assert message(plus_, tensor([R, R], 4), tensor([P, R], 4)) == (
        "plus_ cannot combine its operands on mesh axis 'dp' (size 2)\n"
        "  input: f64[4]  dp:R tp:R      other: f64[4]  dp:P(sum) tp:R\n"
        "  its operands are R P(sum); the nearest it can do is P(sum) P(sum)\n"
        "  use  other.redistribute(dp=R)  1 all_reduce"
    )


def test_in_place_that_would_change_the_layout(dispatcher: OpDispatcher) -> None:
    register_op("turn_", Turn, signature="input", inplace=True)
    lines = message(caller(dispatcher, "turn_", ops.t), tensor([S0, R], 4, 4)).splitlines()
    assert lines == [
        "turn_ writes in place, and its result would be dp:S(1) tp:R where its target is dp:S(0) tp:R; "
        "use the out-of-place form",
        "  input: f64[4,4]  dp:S(0) tp:R",
    ]


def test_in_place_that_would_change_the_gradient_state(plus_: Callable[..., Any]) -> None:
    x, y = tensor([R, R], 4), tensor([R, R], 4, varying=1, requires_grad=True)
    assert message(plus_, x, y) == (
        "plus_ writes in place, and the gradient state of its target would become "
        "Spec(dp:R tp:R, varying on dp) instead of Spec(dp:R tp:R), which aliases of the target could not follow; "
        "use the out-of-place form"
    )
    with sim.no_grad():
        assert plus_(x, y) is x
    assert plus_(x, tensor([R, R], 4, varying=1)) is x


def test_out(dispatcher: OpDispatcher) -> None:
    register_op("plus", Sum, signature="input, other")
    plus = caller(dispatcher, "plus", ops.add)
    x, out = tensor([S0, R], 4), tensor([S0, R], 4)
    expected = x._local.array + 1
    assert plus(x, 1, out=out) is out
    assert (out._local.array == expected).all()
    assert isinstance(plus(x, 1, out=None), DTensor)
    assert message(plus, x, 1, out=tensor([R, S0], 4)) == (
        "plus: out= is dp:R tp:S(0), the result dp:S(0) tp:R; use the out-of-place form"
    )
    assert message(plus, x, 1, out=tensor([S0, R], 8)) == (
        "plus: out= has shape (8,), the result (4,); use the out-of-place form"
    )
    assert "out= must be one DTensor, got SimTensor" in message(plus, x, 1, out=sim.tensor([1.0]))
    assert "out= carries no gradient" in message(plus, tensor([S0, R], 4, requires_grad=True), 1, out=out)


def test_refusals_come_on_all_ranks_alike() -> None:
    """No rank waits in a collective."""
    dispatcher = OpDispatcher()
    register_op("multiply", Product, signature="x, w")

    def program() -> None:
        caller(dispatcher, "multiply", ops.matmul)(tensor([S0, S1], 4, 4), tensor([R, S1], 4, 4))

    errors = sim.errors_of(4, program)
    assert len({str(error) for error in errors}) == 1 and all(type(error) is LayoutError for error in errors)
