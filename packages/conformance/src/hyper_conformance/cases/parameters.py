"""Parameters that become distributed tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from hyper_conformance.case import case
from hyper_conformance.cases.modules import numbers
from hyper_conformance.here import Here
from hyper_dtensor import DTensor, distribute_module, distribute_parameter
from hyper_layout import Partial, Replicate, Shard

R, S0, S1, P = Replicate(), Shard(0), Shard(1), Partial()


@case(3)
def a_parameter_is_laid_out(here: Here) -> None:
    """``set_parameter``: the module's parameter is a DTensor of the global shape and the same values."""
    mesh, weight = here.line(), numbers(here, 8, 4)
    for placement in (S0, S1, R):
        module = here.harness.linear(weight, None)
        made = distribute_parameter(module, "weight", mesh, [placement])
        held: Any = here.platform.parameters(module)["weight"]
        assert held is made
        assert isinstance(held, DTensor)
        here.equal(held.placements, (placement,))
        here.equal(tuple(held.shape), (8, 4))
        assert held.requires_grad
        here.close(held, weight)
        here.close(held.to_local(), weight[held.layout.local_slice(weight.shape)])


@case(3)
def in_place(here: Here) -> None:
    """The parameter object stays the same: an optimizer that was built before keeps it."""
    module = here.harness.linear(numbers(here, 8, 4), None)
    before = here.platform.parameters(module)["weight"]
    distribute_parameter(module, "weight", here.line(), [S0])
    assert here.platform.parameters(module)["weight"] is before
    assert isinstance(before, DTensor)


@case(3)
def a_frozen_parameter_stays_frozen(here: Here) -> None:
    """``requires_grad`` is kept."""
    module = here.harness.linear(numbers(here, 8, 4), None)
    parameter: Any = here.platform.parameters(module)["weight"]
    parameter.requires_grad = False
    assert not distribute_parameter(module, "weight", here.line(), [S0]).requires_grad


@case(3)
def ties_stay_ties(here: Here) -> None:
    """Two modules that share a parameter share the distributed one, which is converted once."""
    mesh, table = here.line(), numbers(here, 8, 4)
    embedding, head = here.harness.embedding(table), here.harness.linear(numbers(here, 8, 4, seed=1), None)
    here.harness.tie(embedding, head)
    (name,) = here.platform.parameters(embedding)
    distribute_parameter(embedding, name, mesh, [S0])
    shared = here.platform.parameters(embedding)[name]
    assert here.platform.parameters(head)["weight"] is shared
    assert isinstance(shared, DTensor)
    assert distribute_parameter(head, "weight", mesh, [S0]) is shared
    here.refused(lambda: distribute_parameter(head, "weight", mesh, [S1]), ValueError, says="shared")


@case(3)
def gradients_of_parameters(here: Here) -> None:
    """The gradient of a distributed parameter is the single-device one, in every computation."""
    mesh, f = here.line(), here.platform.ops
    weight, bias, x = numbers(here, 8, 4), numbers(here, 8, seed=1), numbers(here, 3, 4, seed=2)
    for placement in (S0, R):
        module = here.harness.linear(weight, bias)
        for name in ("weight", "bias"):
            distribute_parameter(module, name, mesh, [placement])
        parameters: list[Any] = [here.platform.parameters(module)[name] for name in ("weight", "bias")]

        def loss(module: Any = module) -> Any:
            y = module(DTensor.from_local(here.tensor(x), mesh, [R]))
            whole = y.full_tensor()
            return f.sum(whole * whole)

        expected = 2 * (x @ weight.T + bias)
        for _ in range(2):
            value, gradients = here.harness.parameter_gradients(loss, parameters)
            here.close(value, (expected**2).sum() / 4)
            for p, g, e in zip(parameters, gradients, (expected.T @ x, expected.sum(0)), strict=True):
                here.close(here.whole_gradient(p._spec, tuple(p.shape), g), e, f"{placement}")


@case(3)
def gradients_of_a_tied_parameter(here: Here) -> None:
    """Both uses of a shared parameter count."""
    mesh, f, table = here.line(), here.platform.ops, numbers(here, 8, 4)
    ids = np.asarray([1, 6, 1])
    embedding, head = here.harness.embedding(table), here.harness.linear(numbers(here, 8, 4, seed=1), None)
    here.harness.tie(embedding, head)
    (name,) = here.platform.parameters(embedding)
    parameter: Any = distribute_parameter(embedding, name, mesh, [S0])

    def loss() -> Any:
        hidden = embedding(DTensor.from_local(here.tensor(ids), mesh, [R])).redistribute([R])
        return f.sum(head(hidden).full_tensor())

    _, (gradient,) = here.harness.parameter_gradients(loss, [parameter])
    expected = np.tile(table[ids].sum(0), (8, 1))
    np.add.at(expected, ids, table.sum(0))
    here.close(here.whole_gradient(parameter._spec, table.shape, gradient), expected)


@case(3)
def a_module_is_distributed(here: Here) -> None:
    """``distribute_module``: every parameter and buffer below becomes a DTensor; once only."""
    mesh = here.line()
    inner = here.harness.two_outputs(numbers(here, 4))
    outer = here.harness.sequence({"linear": here.harness.linear(numbers(here, 4, 4), None), "inner": inner})

    def partition(name: str, module: Any, mesh: Any) -> None:
        if name == "linear":
            distribute_parameter(module, "weight", mesh, [S0])

    distribute_module(outer, mesh, partition)
    linear = here.platform.children(outer)["linear"]
    here.equal(here.platform.parameters(linear)["weight"].placements, (S0,))
    here.equal(here.platform.parameters(inner)["gain"].placements, (R,))
    here.equal(here.platform.buffers(inner)["offset"].placements, (R,))
    here.refused(lambda: distribute_module(outer, mesh), RuntimeError, says="before")


@case(3)
def what_does_not_divide_is_refused(here: Here) -> None:
    """Naming the parameter, on every rank; the module is left as it was."""
    module = here.harness.linear(numbers(here, 7, 4), None)
    here.refused(
        lambda: distribute_parameter(module, "weight", here.line(), [S0]), ValueError, says="'weight'"
    )
    assert not isinstance(here.platform.parameters(module)["weight"], DTensor)
