"""Covers dispatcher.py, outputs.py, white_list.py and random_path.py: the way of a call."""

from __future__ import annotations

import sys
from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hyper_dispatch import (
    DistributedOp,
    Effects,
    OpDispatcher,
    RowsOp,
    load_yaml,
    register_op,
    register_strategy,
    row,
)
from hyper_dtensor import DTensor, get_platform
from hyper_layout import DeviceMesh, Layout, LayoutError, current_rank
from tests.dispatch.examples import LINE, MESH, S0, S1, P, Product, R, Recorder, Sum, Turn, caller, tensor
from tests.support import simulated as sim
from tests.support.simulated import ops


class Both(RowsOp):
    """Two results of the layout of the operand, and a number."""

    def rows(self, cache_values: Sequence[Any]) -> Any:
        return [row("S(0) -> S(0) S(0) R")]

    def output_ndims(self, cache_values: Sequence[Any]) -> Any:
        return (1, 1, None)


def test_operands_may_be_anywhere_in_the_call(dispatcher: OpDispatcher) -> None:
    register_op("plus", Sum, signature="input, other|second, *, alpha=1")
    plus = caller(
        dispatcher,
        "plus",
        lambda input, other=None, second=None, **_: ops.add(input, second if other is None else other),
    )
    x, y = tensor([S0, R], 4), tensor([S0, R], 4)
    for out in (plus(x, y), plus(x, other=y), plus(input=x, second=y), plus(second=y, alpha=2, input=x)):
        assert out.layout is x.layout and (out._local.array == 2 * x._local.array).all()
    assert dispatcher.cache_info()["plus"].entries == 1


def test_keywords_count_in_the_order_of_the_parameters(dispatcher: OpDispatcher) -> None:
    register_op("multiply", Product, signature="x, w")
    multiply = caller(dispatcher, "multiply", lambda x, w: ops.matmul(x, w))
    x, w = tensor([S0, R], 4, 4), tensor([R, S1], 4, 4)
    assert multiply(w=w, x=x).placements == (S0, S1)
    assert multiply(x=x, w=w).placements == (S0, S1)
    assert dispatcher.cache_info()["multiply"][:2] == (1, 1)


@pytest.mark.parametrize("kind", [tuple, list, "named"])
def test_several_results(dispatcher: OpDispatcher, kind: Any) -> None:
    register_op("both", Both, signature="input")
    named = namedtuple("named", "values indices count")
    make = named._make if kind == "named" else kind
    both = caller(dispatcher, "both", lambda x: make([ops.neg(x), ops.exp(x), 3]))
    x = tensor([S0, R], 4)
    for _ in range(2):
        out = both(x)
        assert type(out) is (named if kind == "named" else kind)
        assert [t.layout for t in out[:2]] == [x.layout] * 2 and out[2] == 3
        assert out[0].shape == (4,)


def test_another_number_of_results_is_an_error(dispatcher: OpDispatcher) -> None:
    register_op("both", Both, signature="input")
    with pytest.raises(ValueError, match="the operation returned 2 results, but its rule has 3 layouts"):
        caller(dispatcher, "both", lambda x: (x, x))(tensor([S0, R], 4))


def test_global_shapes(dispatcher: OpDispatcher) -> None:
    """From the local result, or from the rule where it knows them; data may decide the shape."""

    class Known(Sum):
        def output_shapes(self, cache_values: Sequence[Any]) -> Any:
            return ((7,),)

    register_op("known", Known, signature="input")
    assert caller(dispatcher, "known", ops.neg)(tensor([S0, R], 4)).shape == (7,)
    register_op("first", Sum, signature="input, count")
    counts = iter([1, 1, 2])
    first = caller(dispatcher, "first", lambda x, count: ops.narrow(x, 0, 0, next(counts)))
    x = tensor([S0, R], 4)
    assert [first(x, None).shape for _ in range(3)] == [(2,), (2,), (4,)]


def test_a_strategy_that_wraps_itself_gets_the_gradient_states(dispatcher: OpDispatcher) -> None:
    class Wrapping(Sum):
        def wrap_output(self, py_output: Any, output_layouts: Any) -> Any:
            return super().wrap_output(py_output, output_layouts)

    register_op("wrapping", Wrapping, signature="input")
    x = tensor([S0, R], 4, varying=2)
    for _ in range(2):
        out = caller(dispatcher, "wrapping", ops.neg)(x)
        assert out.layout is x.layout and out._spec is x._spec


def test_the_white_list_runs_on_locals(dispatcher: OpDispatcher, tmp_path: Any) -> None:
    path = tmp_path / "ops.yaml"
    path.write_text("ops: {places: {local: true}}")
    load_yaml(path)
    places = caller(dispatcher, "places", lambda tensors, like: [t.shape for t in tensors] + [like.shape])
    out = places([tensor([S0, R], 4)], like=tensor([R, S0], 6))
    assert out == [(2,), (3,)]


def test_inside_preprocess_to_local_is_the_bare_local(dispatcher: OpDispatcher) -> None:
    seen: list[Any] = []

    class Asking(DistributedOp):
        def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            seen.append(args[0].to_local())
            return (args[0].to_local(),), {}, [args[0].layout]

        def infer_layout(self, cache_values: Sequence[Any]) -> Any:
            return (cache_values[0],), None

    register_op("asking", Asking("asking"))
    x = tensor([R, R], 4, requires_grad=True, varying=3)
    caller(dispatcher, "asking", ops.neg)(x)
    assert seen == [x._local] and seen[0] is x._local
    assert x.to_local() is not x._local

    class Failing(Asking):
        def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            raise KeyError("bad")

    register_op("failing", Failing("failing"))
    with pytest.raises(KeyError):
        caller(dispatcher, "failing", ops.neg)(x)
    assert x.to_local() is not x._local


def test_partial_inputs_are_checked_on_demand() -> None:
    op = DistributedOp("fussy")
    op._check_partial_inputs([tensor([S0, R], 4).layout, None])
    with pytest.raises(LayoutError) as caught:
        op._check_partial_inputs([None, tensor([S0, P], 4).layout])
    assert (
        str(caught.value)
        == "For fussy, operand 1 must not be Partial, but it is Partial(sum) on mesh axis 'tp'"
    )
    op._allow_partial_inputs = True
    op._check_partial_inputs([tensor([S0, P], 4).layout])


def test_an_untracked_operand_with_a_foreign_history_is_refused(dispatcher: OpDispatcher) -> None:
    register_op("plus", Sum, signature="input, other")
    plus = caller(dispatcher, "plus", ops.add)
    with sim.no_grad():
        y: Any = plus(tensor([S0, R], 4, requires_grad=True), 1)
        assert not plus(tensor([S0, R], 4), 1)._untracked
        again = plus(y, 1)
    assert y._untracked
    assert again._untracked
    plus(y, 1)
    y.has_foreign_history = True
    for args in ((y, 1), (tensor([S0, R], 4), y)):
        with pytest.raises(RuntimeError, match="use_reentrant=False"):
            plus(*args)
    with sim.no_grad():
        plus(y, 1)
    assert not plus(tensor([S0, R], 4, requires_grad=True), 1)._untracked


# -- random ---------------------------------------------------------------------------------------------


def noise(x: Any, *_: Any) -> Any:
    return get_platform().create("rand", x.shape, "cpu")


def test_random_pieces() -> None:
    """Replicate pieces agree, shards differ, a draw moves on, and the seed repeats it."""
    register_op("noise", Sum, signature="input, p=0.5", random=True)
    dispatcher = OpDispatcher()

    def program() -> Any:
        draw = caller(dispatcher, "noise", noise)
        x = tensor([S0, R], 4, 8)
        drawn = []
        for _ in range(2):
            sim.manual_seed(3)
            drawn += [draw(x).to_local().tolist(), draw(x).to_local().tolist()]
        return drawn

    results = sim.run_ranks(4, program)
    assert all(one[:2] == one[2:] and one[0] != one[1] for one in results)
    assert results[0] == results[1] and results[2] == results[3] and results[0] != results[2]


def test_ranks_must_be_seeded_alike() -> None:
    register_op("noise", Sum, signature="input", random=True)
    dispatcher = OpDispatcher()

    def program() -> None:
        sim.manual_seed(current_rank())
        # A mesh of its own: the seeds are compared once per mesh.
        caller(dispatcher, "noise", noise)(tensor([S0], 4, mesh=DeviceMesh("cpu", (2,), ("unseeded",))))

    errors = sim.errors_of(2, program)
    assert all("seed" in str(error) for error in errors)


def test_a_call_that_draws_nothing_leaves_the_generator_alone(dispatcher: OpDispatcher) -> None:
    class Sometimes(Sum):
        random = True

        def statics(self, bound: dict[str, Any]) -> Any:
            return (bound["p"] > 0,)

        def draws(self, cache_values: Sequence[Any]) -> bool:
            return bool(cache_values[-1])

    register_op("sometimes", Sometimes, signature="input, p")

    def program() -> Any:
        sometimes = caller(dispatcher, "sometimes", lambda x, p: ops.neg(x))
        next_numbers = []
        for p in (0.0, 0.5):
            sim.manual_seed(3)
            sometimes(tensor([R, R], 4), p)
            next_numbers.append(get_platform().create("rand", (), "cpu").tolist())
        sim.manual_seed(3)
        return next_numbers, get_platform().create("rand", (), "cpu").tolist()

    for (without, with_draw), untouched in sim.run_ranks(4, program):
        assert without == untouched != with_draw


def test_effects_of_several_outputs() -> None:
    effects = Effects(invariant=(1, 2), once=(0, 4))
    assert [effects.invariant_of(i) for i in range(2)] == [1, 2]
    assert [effects.once_of(i) for i in range(3)] == [0, 4, 0]
    assert Effects(invariant=3).invariant_of(7) == 3


# -- cost -----------------------------------------------------------------------------------------------


def python_calls(call: Callable[[], Any]) -> list[str]:
    """Names of the Python functions that a call runs, innermost implementation excluded."""
    names: list[str] = []

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            names.append(frame.f_code.co_qualname)

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return names


def test_a_cached_call_asks_nobody(dispatcher: OpDispatcher) -> None:
    """The cost of a repeated call: the strategy and the registry are not asked, and few functions run."""
    register_op("plus", Sum, signature="input, other, *, alpha=1")
    x, y = tensor([S0, R], 4), tensor([S0, R], 4)
    result = x._local
    arguments = (x, y)

    function = _constant(result)

    def again() -> Any:
        return dispatcher.dispatch("plus", function, arguments, {})

    again()
    names = [name for name in python_calls(again) if not name.startswith(("Sim", "tape", "test_"))]
    own = [name for name in names if "dispatch" in name.lower() or "plan" in name.lower() or "Sum" in name]
    assert own == ["OpDispatcher.dispatch"]
    assert len(names) <= 12, names


def _constant(result: Any) -> Callable[..., Any]:
    return lambda *_: result


def test_turned_views_are_not_needed_without_gradients(dispatcher: OpDispatcher) -> None:
    register_strategy("turn")(Turn)
    register_op("turn", "turn", signature="input")
    function = Recorder(ops.t)
    x = tensor([R, S0], 4, 4, requires_grad=True)
    with sim.no_grad():
        out: DTensor = caller(dispatcher, "turn", function)(x)
    assert out._origin is None and out._untracked
    assert caller(dispatcher, "turn", function)(x)._origin is not None
    assert caller(dispatcher, "turn", function)(tensor([R, S0], 4, 4))._origin is None
    assert [args[0] is x._local for args, _ in function.calls[:2]] == [True, True]


def test_layouts_of_another_mesh_are_other_entries(dispatcher: OpDispatcher) -> None:
    register_op("plus", Sum, signature="input, other")
    plus = caller(dispatcher, "plus", ops.add)
    assert plus(tensor([S0, R], 4), 1).layout is Layout(MESH, (S0, R), 1)
    assert plus(tensor([S0], 4, mesh=LINE), 1).layout is Layout(LINE, (S0,), 1)
