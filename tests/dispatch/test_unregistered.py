"""Covers unregistered.py: what is done with operations that nobody registered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hyper_dispatch import OpDispatcher, register_op
from hyper_dtensor import DTensor
from hyper_layout import LayoutError
from tests.dispatch.examples import LINE, MESH, S0, R, Recorder, Sum, caller, tensor
from tests.support import simulated as sim
from tests.support.simulated import ops


def refusal(call: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(NotImplementedError) as caught:
        call(*args, **kwargs)
    return str(caught.value)


def test_the_refusal(dispatcher: OpDispatcher) -> None:
    register_op("logarithm", Sum, signature="input")
    assert refusal(caller(dispatcher, "logarithms", ops.log), tensor([R, S0], 4, 2), tensor([R, R], 2)) == (
        "no distributed rule is registered for 'logarithms', and its operands are not Replicate on every mesh axis; "
        "the nearest known operation is 'logarithm'\n"
        "  args[0]: f64[4,2]  dp:R tp:S(0)      args[1]: f64[2]  dp:R tp:R\n"
        "  to register one: hyper_dispatch.register_op(name, strategy), a YAML file in a directory of "
        "HYPER_PARALLEL_OPS_YAML_DIR, or an entry point of group 'hyper_parallel.ops'\n"
        "  to go without:   x.redistribute([Replicate()] * mesh.ndim), or local_map for a function of locals"
    )


def test_a_name_that_is_not_near_is_not_named(dispatcher: OpDispatcher) -> None:
    register_op("conj", Sum, signature="input")
    assert "nearest" not in refusal(caller(dispatcher, "conv1d", ops.log), tensor([R, S0], 4, 2))


def test_a_built_in_of_replicate_operands_runs_locally(dispatcher: OpDispatcher) -> None:
    call = caller(dispatcher, "mystery", lambda a, values, k: [ops.exp(a), (ops.add(*values), 3), k])
    x, y = tensor([R, R], 4), tensor([R, R], 4, varying=2)
    first, (second, number), same = call(x, [x, y], k=x)
    assert isinstance(first, DTensor) and isinstance(second, DTensor)
    assert first.layout is x.layout and first._spec.varying == second._spec.varying == 2
    assert (number, same) == (3, x)
    assert (second._local.array == 2 * x._local.array).all()


def test_operands_enter_a_varying_built_in_through_their_view(dispatcher: OpDispatcher) -> None:
    function = Recorder(ops.add)
    x, y = tensor([R, R], 4, requires_grad=True), tensor([R, R], 4, varying=2)
    caller(dispatcher, "mystery", function)(x, y)
    ((first, second), _) = function.calls[0]
    assert first is not x._local and second is y._local
    out = caller(dispatcher, "mystery_", lambda a, b: ops.add_(a, b))
    assert "writing in place would change the gradient state of its target" in refusal(out, x, y)


def test_written_targets_are_returned_themselves(dispatcher: OpDispatcher) -> None:
    x = tensor([R, R], 4)
    before = x._local.array.copy()
    assert caller(dispatcher, "mystery_", ops.add_)(x, 1) is x
    np.testing.assert_array_equal(x._local.array, before + 1)


def test_a_random_built_in_is_refused(dispatcher: OpDispatcher) -> None:
    def draw(x: Any) -> Any:
        raise AssertionError("must not run")

    draw.is_random = True  # type: ignore[attr-defined]
    assert "for 'draw', and it draws random numbers\n" in refusal(
        caller(dispatcher, "draw", draw), tensor([R, R], 4)
    )


def test_a_python_function_runs_its_own_body(
    dispatcher: OpDispatcher, platform: sim.SimulatedPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_op("plus", Sum, signature="input, other")
    plus = caller(dispatcher, "plus", ops.add)

    def twice(x: Any) -> Any:
        return plus(x, x)

    monkeypatch.setattr(platform, "python_body", lambda func: func if func is twice else None)
    x = tensor([S0, R], 4)
    out = caller(dispatcher, "twice", twice)(x)
    assert out.layout is x.layout and (out._local.array == 2 * x._local.array).all()


def test_plain_tensors_and_meshes_are_checked(dispatcher: OpDispatcher) -> None:
    call = caller(dispatcher, "mystery", ops.add)
    with pytest.raises(LayoutError, match=r"mystery: argument 'args\[1\]' is a plain tensor"):
        call(tensor([R, R], 1), sim.tensor([1.0]))
    with pytest.raises(LayoutError, match="mystery got operands on different meshes"):
        call(tensor([R, R], 1), tensor([R], 1, mesh=LINE))
    with pytest.raises(LayoutError, match="found no DTensor"):
        call(sim.tensor([1.0]), 1)
    out = call(tensor([R, R], 1), sim.tensor(1.0))
    assert out.device_mesh is MESH


def test_an_operation_may_be_registered_after_its_refusal(dispatcher: OpDispatcher) -> None:
    call = caller(dispatcher, "late", ops.add)
    x = tensor([S0, R], 4)
    refusal(call, x, 1)
    register_op("late", Sum, signature="input, other")
    assert call(x, 1).layout is x.layout
