"""The autograd verbs."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np

from hyper_conformance.case import case
from hyper_conformance.here import Here
from hyper_dtensor import DTensor, distribute_parameter, gradients
from hyper_layout import Replicate, Shard


@case(2, ranks=(2,))
def the_gradient_of_a_linear_map(here: Here) -> None:
    """``linear(x, forward, backward)``: the value of one, and the other as gradient, whatever they are."""
    f, platform = here.platform.ops, here.platform
    value, weight = here.values(3, 4), here.values(3, 4, seed=1)
    w = here.tensor(weight)

    def loss(x: Any) -> Any:
        y = platform.linear(x, lambda x: x * 2.0, lambda g: g * 5.0)
        here.close(y, 2 * value)
        return f.sum(y * w)

    _, (gradient,) = here.harness.gradients(loss, here.tensor(value))
    here.close(gradient, 5 * weight)


@case(2, ranks=(2,))
def a_linear_map_of_other_shape(here: Here) -> None:
    """The result may have another shape; the gradient has that of ``x``."""
    f, platform = here.platform.ops, here.platform
    value, weight = here.values(3, 4), here.values(3, 2, seed=1)
    w, zeros = here.tensor(weight), here.tensor(np.zeros((3, 2)))

    def loss(x: Any) -> Any:
        y = platform.linear(x, lambda x: f.clone(f.narrow(x, 1, 0, 2)), lambda g: f.cat([g, zeros], 1))
        return f.sum(y * w)

    _, (gradient,) = here.harness.gradients(loss, here.tensor(value))
    here.close(gradient, np.concatenate([weight, np.zeros((3, 2))], 1))


@case(2, ranks=(2,))
def an_identity_is_not_its_input(here: Here) -> None:
    """A map may return its input: two consumers of the input, one through the map, both count."""
    f, platform = here.platform.ops, here.platform
    value = here.values(3, 4)

    def loss(x: Any) -> Any:
        y = platform.linear(x, lambda x: x, lambda g: g * 5.0)
        return f.sum(y) + f.sum(x)

    _, (gradient,) = here.harness.gradients(loss, here.tensor(value))
    here.close(gradient, np.full((3, 4), 6.0))


@case(2, ranks=(2,))
def second_derivatives(here: Here) -> None:
    """The backward of ``linear`` is differentiable: its gradient is the forward."""
    f, platform = here.platform.ops, here.platform
    value, direction = here.values(3, 4), here.values(3, 4, seed=1)
    v = here.tensor(direction)

    def loss(x: Any) -> Any:
        y = platform.linear(x, lambda x: x * 2.0, lambda g: g * 5.0)
        return f.sum(y * y)

    def along(x: Any) -> Any:
        _, (gradient,) = here.harness.gradients(loss, x)
        return f.sum(gradient * v)

    _, (second,) = here.harness.gradients(along, here.tensor(value))
    # The gradient is 5 * 2 * y with y = linear(x); its own is 5 * 2 * v forward, and 5 back through y.
    here.close(second, 2 * 2.0 * 5.0 * direction)


@case(2, ranks=(2,))
def a_known_value_is_not_computed_again(here: Here) -> None:
    """``linear(value=)`` returns an alias of the value, without calling ``forward``."""
    f, platform = here.platform.ops, here.platform
    known, weight = here.values(3, 4), here.values(3, 4, seed=1)
    k, w = here.tensor(known), here.tensor(weight)
    calls = []

    def forward(x: Any) -> Any:
        calls.append(x)
        return x

    def loss(x: Any) -> Any:
        y = platform.linear(x, forward, lambda g: g * 3.0, k)
        here.close(y, known)
        assert platform.shares_memory(y, k)
        return f.sum(y * w)

    _, (gradient,) = here.harness.gradients(loss, here.tensor(here.values(3, 4, seed=2)))
    here.close(gradient, 3 * weight)
    assert not calls


@case(2, ranks=(2,))
def without_gradients_a_linear_map_is_its_forward(here: Here) -> None:
    """With gradients off, or for a tensor that needs none, ``linear`` computes and tracks nothing."""
    platform, value = here.platform, here.values(3)
    y = platform.linear(here.tensor(value), lambda x: x * 2.0, lambda g: g)
    here.close(y, 2 * value)
    assert not platform.tracks_gradient(y)

    def loss(x: Any) -> Any:
        with here.harness.no_grad():
            y = platform.linear(x, lambda x: x * 2.0, lambda g: g)
            assert not platform.tracks_gradient(y)
        return platform.ops.sum(x * y)

    _, (gradient,) = here.harness.gradients(loss, here.tensor(value))
    here.close(gradient, 2 * value)


@case(2, ranks=(2,))
def whether_gradients_are_on(here: Here) -> None:
    """``grad_enabled`` and ``tracks_gradient``, inside of a gradient computation and where they are off."""
    platform = here.platform
    constant = here.tensor(here.values(3))
    seen: list[tuple[bool, ...]] = []

    def loss(x: Any) -> Any:
        seen.append((platform.grad_enabled(), platform.tracks_gradient(x), platform.tracks_gradient(x * 2.0)))
        seen.append((platform.tracks_gradient(constant), platform.tracks_gradient(x * constant)))
        with here.harness.no_grad():
            seen.append((platform.grad_enabled(), platform.tracks_gradient(x)))
        return platform.ops.sum(x)

    here.harness.gradients(loss, here.tensor(here.values(3)))
    here.equal(seen, [(True, True, True), (False, True), (False, False)])


@case(2, ranks=(2,))
def detached(here: Here) -> None:
    """``detach`` stops the gradient and keeps the value."""
    platform, value = here.platform, here.values(3)

    def loss(x: Any) -> Any:
        y = platform.detach(x)
        here.close(y, value)
        assert not platform.tracks_gradient(y)
        return platform.ops.sum(x * y)

    _, (gradient,) = here.harness.gradients(loss, here.tensor(value))
    here.close(gradient, value)


@case(2, ranks=(2,))
def the_version_counts_writes(here: Here) -> None:
    """``version`` changes when the tensor is written in place, also through an alias, and only then."""
    platform, x = here.platform, here.tensor(here.values(3))
    before = platform.version(x)
    here.equal(platform.version(x), before)
    here.array(x * 2.0)
    here.equal(platform.version(x), before)
    platform.scale_(x, here.tensor(np.asarray(2.0)))
    after = platform.version(x)
    assert after != before
    platform.scale_(platform.detach(x), here.tensor(np.asarray(2.0)))
    assert platform.version(x) != after


@case(2, ranks=(2,))
def a_gradient_stamp_holds_for_one_computation(here: Here) -> None:
    """``gradient_stamp`` of a tensor is one until its gradient computation ends; ``None`` without one."""
    stamp = here.platform.gradient_stamp
    stamps = []

    def loss(x: Any) -> Any:
        y = x * 2.0
        with here.harness.no_grad():
            assert stamp(y) is None
        stamps.append((stamp(y), stamp(y)))
        return here.platform.ops.sum(y * y)

    x = here.tensor(here.values(3))
    assert stamp(x) is None
    here.harness.gradients(loss, x)
    ((first, second),) = stamps
    assert first is not None
    here.equal(first, second)


@case(2, ranks=(2,))
def a_memo_belongs_to_one_tensor(here: Here) -> None:
    """``memo`` of a non-leaf keeps what is put into it; ``None`` is an answer, another tensor's is not."""
    platform = here.platform

    def loss(x: Any) -> Any:
        y, z = x * 2.0, x * 3.0
        memo = platform.memo(y)
        if memo is not None:
            memo["key"] = "value"
            again, other = platform.memo(y), platform.memo(z)
            assert again is not None and again["key"] == "value"
            assert other is None or "key" not in other
        return platform.ops.sum(y + z)

    here.harness.gradients(loss, here.tensor(here.values(3)))


@case(2)
def what_is_remembered_does_not_keep_its_tensor_alive(here: Here) -> None:
    """A tensor that entered varying ops is freed with its last user, without a garbage collector."""
    mesh = here.line()
    alive: list[Any] = []

    def loss(x: Any) -> Any:
        y = x * 2.0
        t = DTensor.from_local(y, mesh, [Replicate()])
        gradients.varying_view(t, 1)
        gone = [weakref.ref(y), weakref.ref(t)]
        del y, t
        alive.extend(ref() for ref in gone)
        return here.platform.ops.sum(x)

    collecting = gc.isenabled()
    gc.disable()
    try:
        here.harness.gradients(loss, here.tensor(here.values(3)))
    finally:
        if collecting:
            gc.enable()
    here.equal(alive, [None, None])


@case(2)
def a_collective_alone_carries_no_gradient(here: Here) -> None:
    """The bare collectives are constants for the gradient: ``linear`` pairs them with their backward."""
    platform, group, value = here.platform, here.everyone(), here.values(4, 4)
    weight = here.tensor(here.values(4, 4, seed=1) if here.size == 2 else here.values(4, 4, seed=2))

    def loss(x: Any) -> Any:
        total = platform.ops.sum(x * weight)
        for y in (
            platform.all_reduce(x, "sum", group),
            platform.all_gather(x, 0, group),
            platform.reduce_scatter(x, 0, "sum", group),
            platform.all_to_all(x, 0, 1, group),
            platform.broadcast(x, 0, group),
            platform.scatter(x, 0, 0, group),
        ):
            assert not platform.tracks_gradient(y)
            total = total + platform.ops.sum(y)
        return total

    _, (gradient,) = here.harness.gradients(loss, here.tensor(value))
    here.close(gradient, here.array(weight))


@case(2)
def backward_fills_grad(here: Here) -> None:
    """``backward`` runs the framework's own from a local tensor: parameters have a ``grad`` that is whole."""
    mesh, value, weight = here.line(), here.values(4, 8), here.values(4, 8, seed=1)
    for placement in (Shard(0), Shard(1), Replicate()):
        module = here.harness.linear(value.astype(np.float64 if here.precise == "f64" else np.float32), None)
        parameter = distribute_parameter(module, "weight", mesh, [placement])
        y: Any = parameter * parameter  # type: ignore[operator]  # the adapter's class has the operators
        y.backward(here.tensor(weight))
        assert parameter.grad is not None
        here.close(parameter.grad, 2 * value * weight, str(placement))


@case(2, ranks=(2,))
def built_in_functions(here: Here) -> None:
    """``python_body`` has nothing to rebuild of a built-in, and ``is_random`` tells which of them draw."""
    platform, harness = here.platform, here.harness
    assert platform.python_body(harness.plain_function()) is None
    assert platform.is_random(harness.plain_function()) is False
    assert platform.is_random(harness.random_function()) is True


@case(2, ranks=(2,))
def functions_written_in_python(here: Here) -> None:
    """``python_body`` of a function in Python computes the same; where the framework has such functions."""
    function = here.harness.python_function()
    if function is None:
        return
    body = here.platform.python_body(function)
    assert body is not None
    x = here.tensor(here.values(3))
    here.identical(body(x), here.array(function(x)))
    mesh = here.line()
    t = DTensor.from_local(x, mesh, [Replicate()])
    here.close(body(t), here.array(function(x)))
