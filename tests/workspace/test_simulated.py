"""The simulated platform itself: its tape, its ranks, its modules."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hyper_dtensor import distribute_parameter, distribute_tensor, init_device_mesh
from hyper_layout import Placement, Replicate, Shard
from tests.support import simulated as sim
from tests.support.simulated import functional as F
from tests.support.simulated import local_rules, ops, tape
from tests.support.simulated.world import TIMEOUT

R, S0, S1 = Replicate(), Shard(0), Shard(1)


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def positive(*shape: int) -> Any:
    return np.abs(values(*shape)) + 0.5


INDEX = ops.tensor([[0, 2], [1, 1]])
MASK = ops.tensor(values(3, 4) > 0)
FUNCTIONS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "add": (lambda a, b: ops.add(a, b, alpha=2.0), [values(3, 4), values(4)]),
    "sub": (lambda a, b: ops.sub(a, b, alpha=2.0), [values(4), values(3, 4)]),
    "mul": (ops.mul, [values(3, 1), values(1, 4)]),
    "div": (ops.div, [values(3, 4), positive(4)]),
    "rsub and rdiv": (lambda a: (1.0 - a) * (2.0 / a), [positive(4)]),
    "pow": (lambda a: a**3, [values(4)]),
    "exp": (ops.exp, [values(4)]),
    "log": (ops.log, [positive(4)]),
    "sqrt": (ops.sqrt, [positive(4)]),
    "rsqrt": (ops.rsqrt, [positive(4)]),
    "tanh": (ops.tanh, [values(4)]),
    "silu": (ops.silu, [values(4)]),
    "relu": (ops.relu, [values(8)]),
    "abs": (ops.abs, [values(8)]),
    "clamp": (lambda a: ops.clamp(a, -0.3, 0.4), [values(8)]),
    "where": (lambda a, b: ops.where(MASK, a, b), [values(3, 4), values(4)]),
    "masked_fill": (lambda a: ops.masked_fill(a, MASK, 2.0), [values(3, 4)]),
    "maximum": (ops.maximum, [values(4), values(3, 4)]),
    "minimum": (ops.minimum, [values(4), values(3, 4)]),
    "matmul": (ops.matmul, [values(2, 3, 4), values(4, 5)]),
    "linear": (ops.linear, [values(2, 3, 4), values(5, 4), values(5)]),
    "sum": (lambda a: ops.sum(a, [0, -1]), [values(2, 3, 4)]),
    "sum keepdim": (lambda a: ops.sum(a, 1, keepdim=True), [values(2, 3)]),
    "mean": (lambda a: ops.mean(a, 0), [values(2, 3)]),
    "amax": (lambda a: ops.amax(a, 1), [values(2, 3)]),
    "amin": (lambda a: ops.amin(a, [0, 1], keepdim=True), [values(2, 3)]),
    "log_softmax": (lambda a: ops.log_softmax(a, -1), [values(2, 3)]),
    "softmax": (lambda a: ops.softmax(a, 0), [values(2, 3)]),
    "reshape": (lambda a: ops.reshape(a, 4, -1), [values(2, 6)]),
    "flatten": (lambda a: ops.flatten(a, 1), [values(2, 3, 2)]),
    "permute": (lambda a: ops.permute(a, 2, 0, 1), [values(2, 3, 4)]),
    "transpose": (lambda a: ops.transpose(a, 0, -1), [values(2, 3, 4)]),
    "expand": (lambda a: ops.expand(a, 2, -1, 4), [values(3, 1)]),
    "unsqueeze": (lambda a: ops.squeeze(ops.unsqueeze(a, -1), -1) * a, [values(3)]),
    "narrow": (lambda a: ops.narrow(a, 1, 1, 2), [values(2, 4)]),
    "getitem": (lambda a: a[1, None, ..., ::2], [values(2, 3, 4)]),
    "cat": (lambda a, b: ops.cat([a, b], 1), [values(2, 3), values(2, 2)]),
    "stack": (lambda a, b: ops.stack([a, b, a], -1), [values(2, 3), values(2, 3)]),
    "split": (lambda a: ops.split(a, [1, 3], 1)[1], [values(2, 4)]),
    "chunk": (lambda a: ops.mul(*ops.chunk(a, 2, 1)), [values(2, 4)]),
    "unbind": (lambda a: ops.mul(*ops.unbind(a, 1)), [values(3, 2)]),
    "gather": (lambda a: ops.gather(a, 1, INDEX), [values(2, 3)]),
    "embedding": (lambda a: ops.embedding(INDEX, a), [values(3, 4)]),
    "nll_loss": (lambda a: ops.nll_loss(ops.log_softmax(a, 1), ops.tensor([0, 2])), [values(2, 3)]),
    "in place": (lambda a, b: ops.clone(a).mul_(b).add_(b, alpha=2.0), [values(4), values(4)]),
    "copy_": (lambda a: ops.zeros(4).copy_(a), [values(4)]),
    "fill_": (lambda a: ops.clone(a).fill_(2.0) * a, [values(4)]),
    "setitem": (lambda a, b: set_item(ops.clone(a), b), [values(4), values(2)]),
    "view of a base that was written": (lambda a: view_then_write(ops.clone(a)), [values(4)]),
}


def set_item(a: Any, b: Any) -> Any:
    a[1:3] = b
    return a


def view_then_write(a: Any) -> Any:
    view = ops.reshape(a, 2, 2)
    a.mul_(a * 1.0)
    return view * view


def numeric_gradient(function: Callable[..., Any], arrays: list[Any], which: int) -> Any:
    gradient, step = np.zeros_like(arrays[which]), 1e-5
    for place in np.ndindex(gradient.shape):
        sides = []
        for sign in (1, -1):
            moved = [a.copy() for a in arrays]
            moved[which][place] += sign * step
            sides.append(function(*map(ops.tensor, moved)).array)
        gradient[place] = (weigh(sides[0]) - weigh(sides[1])) / (2 * step)
    return gradient


def weigh(array: Any) -> Any:
    return (array * values(*np.shape(array), seed=5)).sum()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_and_second_derivatives(name: str) -> None:
    function, arrays = FUNCTIONS[name]

    def gradients(*tensors: sim.SimTensor) -> list[Any]:
        output = function(*tensors)
        loss = ops.sum(output * ops.tensor(values(*output.shape, seed=5)))
        return tape.grad([loss], tensors, [ops.tensor(1.0)], create_graph=True)

    leaves = [ops.tensor(a, requires_grad=True) for a in arrays]
    first = gradients(*leaves)
    for which in range(len(arrays)):
        np.testing.assert_allclose(
            first[which].array, numeric_gradient(function, arrays, which), atol=1e-7, rtol=1e-6
        )
    for which, gradient in enumerate(first):
        if not gradient.requires_grad:
            continue
        again = tape.grad(
            [gradient], leaves, [ops.tensor(values(*gradient.shape, seed=5))], retain_graph=True
        )

        def gradient_of_one(*tensors: Any, which: int = which) -> Any:
            for tensor in tensors:
                tensor.requires_grad = True
            return gradients(*tensors)[which]

        for other, found in enumerate(again):
            expected = numeric_gradient(gradient_of_one, arrays, other)
            actual = np.zeros_like(expected) if found is None else found.array
            np.testing.assert_allclose(actual, expected, atol=1e-6, rtol=1e-5)


def test_the_tape_is_strict() -> None:
    x = ops.tensor(values(4), requires_grad=True)
    with pytest.raises(RuntimeError, match="in-place operation"):
        x.add_(1.0)
    y = x * 1.0
    z = y * y
    y.add_(1.0)
    with pytest.raises(RuntimeError, match="modified in place"):
        z.sum().backward()
    with pytest.raises(RuntimeError, match="only for scalar outputs"):
        (x * 2.0).backward()
    with pytest.raises(RuntimeError, match="no history"):
        ops.tensor(1.0).backward()
    with pytest.raises(RuntimeError, match="use detach"):
        (x * 1.0).numpy()
    square = (x * x).sum()
    square.backward()
    with pytest.raises(RuntimeError, match="second time"):
        square.backward()


def test_a_backward_that_writes_into_its_gradient_raises() -> None:
    x = ops.tensor(values(4), requires_grad=True)

    def greedy(g: Any) -> Any:
        g.array[...] = 0.0
        return (g,)

    out = tape.record(ops.tensor(values(4)), "greedy", (x,), greedy)
    with pytest.raises(ValueError, match="read-only"):
        out.sum().backward()


def test_tensors_are_freed_with_their_last_user() -> None:
    x = ops.tensor(values(4), requires_grad=True)
    y = ops.exp(x * 2.0)
    gone = weakref.ref(y)
    z = y.sum()
    del y
    assert gone() is None
    z.backward()
    assert x.grad is not None


# -- ranks --------------------------------------------------------------------------------------------------
def exchange(value: Any = None) -> list[Any]:
    return sim.gather(value)


def test_results_come_in_the_order_of_the_ranks() -> None:
    assert sim.run_ranks(3, lambda: exchange(sim.rank())[::-1]) == [[2, 1, 0]] * 3
    assert sim.run_ranks(2, lambda factor: factor * sim.rank(), 5) == [0, 5]
    assert (sim.rank(), sim.world_size()) == (0, 1)


def test_a_rank_that_raises_ends_the_others_at_once() -> None:
    def body() -> None:
        if sim.rank() == 1:
            raise KeyError("only here")
        exchange()

    start = time.monotonic()
    with pytest.raises(KeyError, match="only here") as caught:
        sim.run_ranks(3, body)
    assert time.monotonic() - start < TIMEOUT, "nobody waited for what never comes"
    assert caught.value.__notes__ == ["raised on rank 1; ranks [0, 1, 2] failed"]
    errors = sim.errors_of(3, body)
    assert isinstance(errors[0], sim.BrokenRendezvousError)
    assert "rank 1 raised KeyError: 'only here'; rank 0 waits in gather" in str(errors[0])


def test_ranks_that_wait_for_ever_or_do_different_things_are_told() -> None:
    def early() -> None:
        if sim.rank():
            exchange()

    def crossed() -> None:
        platform = sim.SimulatedPlatform()
        x = ops.tensor(values(4))
        if sim.rank():
            platform.all_reduce(x, "sum", (0, 1))
        else:
            platform.all_gather(x, 0, (0, 1))

    with pytest.raises(sim.BrokenRendezvousError, match="rank 0 returned; rank 1 waits in gather"):
        sim.run_ranks(2, early)
    with pytest.raises(
        sim.BrokenRendezvousError, match=r"different things: .*all_gather\(0\).*all_reduce\(sum\)"
    ):
        sim.run_ranks(2, crossed)


def test_a_rank_that_never_ends_is_named() -> None:
    with pytest.raises(TimeoutError, match=r"(?s)rank 0 still runs after 0.2 s.*spin"):

        def spin() -> None:
            end = time.monotonic() + 2
            while time.monotonic() < end:
                pass

        sim.run_ranks(2, spin, timeout=0.2)


def test_ranks_have_generators_of_their_own() -> None:
    platform = sim.SimulatedPlatform()

    def body() -> tuple[int, int]:
        first = platform.draw_seed("cpu")
        sim.manual_seed(sim.rank())
        return first, platform.draw_seed("cpu")

    (a, b), (c, d) = sim.run_ranks(2, body)
    assert a == c
    assert b != d


# -- modules ------------------------------------------------------------------------------------------------
def test_modules() -> None:
    model = sim.SimSequential(sim.SimEmbedding(5, 4), sim.SimLinear(4, 3))
    assert [name for name, _ in model.named_modules()] == ["", "0", "1"]
    assert [name for name, _ in model.named_parameters()] == ["0.weight", "1.weight", "1.bias"]
    assert model.get_submodule("1").bias.shape == (3,)
    platform = sim.SimulatedPlatform()
    calls: list[Any] = []
    before = platform.before_forward(
        model, lambda module, args, kwargs: ((calls.append(args) or args[0],), kwargs)
    )
    platform.after_forward(model, lambda module, args, kwargs, output: (output, 1))
    with platform.watch_modules(lambda m: calls.append(type(m).__name__), lambda m: calls.append(None)):
        output, one = model(ops.tensor([1, 2]))
    assert (output.shape, one) == ((2, 3), 1)
    assert [c for c in calls if not isinstance(c, tuple)] == [
        *["SimSequential", "SimEmbedding", None, "SimLinear", None, None],
    ]
    before.remove()
    assert not model.before_hooks
    assert F.linear(ops.tensor(values(2, 4)), model.get_submodule("1").weight).shape == (2, 3)


@pytest.mark.parametrize("rows", [S0, S1, R], ids=str)
@pytest.mark.parametrize("rules", ["local rules", "hyper_dispatch"])
def test_distributed_modules_compute_what_plain_ones_do(
    rows: Placement, rules: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without hyper_dispatch a few local rules serve the tests of hyper_tensor_parallel."""
    if rules == "local rules":
        monkeypatch.setattr(F, "_run", lambda: local_rules.run)
    layouts = {"0.weight": rows, "1.weight": S0, "1.bias": S0, "2.weight": S1, "2.bias": R}

    def model() -> sim.SimSequential:
        return sim.SimSequential(
            sim.SimEmbedding(6, 4), sim.SimLinear(4, 8, seed=1), sim.SimLinear(8, 4, seed=2)
        )

    def body() -> None:
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        plain, distributed = model(), model()
        for name, placement in layouts.items():
            module, parameter = name.split(".")
            distribute_parameter(distributed.get_submodule(module), parameter, mesh, [placement])
        ids = ops.tensor([[0, 5, 3]])
        expected = plain.get_submodule("2")(F.tanh(plain.get_submodule("1")(plain.get_submodule("0")(ids))))
        hidden = distributed.get_submodule("0")(ids).redistribute([R])
        hidden = F.tanh(distributed.get_submodule("1")(hidden))
        actual = distributed.get_submodule("2")(hidden).redistribute([R]).to_local()
        np.testing.assert_allclose(actual.array, expected.array)
        (expected * expected).sum().backward()
        (actual * actual).sum().backward()
        reference = dict(plain.named_parameters())
        for name, parameter in distributed.named_parameters():
            np.testing.assert_allclose(parameter.grad.full_tensor().array, reference[name].grad.array)

    sim.run_ranks(2, body)


def test_operators_and_methods_of_distributed_tensors() -> None:
    def body() -> None:
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        a, b = values(4, 6), values(4, 6, seed=1)
        x, y = (distribute_tensor(ops.tensor(v), mesh, [S0]) for v in (a, b))
        for actual, expected in (
            (x + y, a + b),
            (2.0 - x, 2.0 - a),
            (1.0 / (x * x + 1.0), 1.0 / (a * a + 1.0)),
            (-x, -a),
            (x.exp().sum(), np.exp(a).sum()),
            (F.cat([x, y], 1), np.concatenate([a, b], 1)),
            (x.transpose(0, 1), a.T),
            (x[:, 1:3], a[:, 1:3]),
        ):
            assert isinstance(actual, sim.SimDTensor)
            np.testing.assert_allclose(actual.full_tensor().array, expected)

    sim.run_ranks(2, body)
