"""``clip_grad_norm_`` on mixtures of plain and distributed parameters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hyper_dtensor import CommDebugMode, clip_grad_norm_
from tests.dtensor.helpers import S0, S1, P, R, equal, line, make, on_ranks, square, values
from tests.support import simulated as sim


def mixture() -> tuple[list[Any], list[Any]]:
    """Parameters of every kind with gradients, and those gradients as one device has them."""
    mesh, one_axis = square(), line()
    wholes = [values(4, 8, seed=seed) for seed in range(7)]
    parameters = [
        make(values(4, 8), mesh, [S0, S1]),
        make(values(4, 8), mesh, [S0, R]),
        make(values(4, 8), mesh, [R, R]),
        make(values(4, 8), mesh, [R, S1], varying=1),
        make(values(4, 8), one_axis, [S1]),
        make(values(4, 8), mesh, [P, S0]),
    ]
    for parameter, gradient in zip(parameters, wholes, strict=False):
        parameter.backward(sim.tensor(gradient))
    plain = sim.tensor(values(4, 8), requires_grad=True)
    plain.backward(sim.tensor(wholes[6]))
    without = sim.tensor(values(4), requires_grad=True)
    return [*parameters, plain, without], wholes


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, math.inf])
@on_ranks(4)
def test_the_norm_of_one_device(norm_type: float) -> None:
    for max_norm in (0.5, 1e6):
        parameters, wholes = mixture()
        expected = np.linalg.norm(np.concatenate([g.ravel() for g in wholes]), norm_type)
        norm = clip_grad_norm_(parameters, max_norm, norm_type)
        equal(norm, expected)
        factor = min(1.0, max_norm / (expected + 1e-6))
        for parameter, gradient in zip(parameters, wholes, strict=False):
            equal(parameter.grad, gradient * factor)


@on_ranks(4)
def test_what_is_sent() -> None:
    mesh = square()
    parameters = [make(values(4, 8, seed=seed), mesh, [S0, R]) for seed in range(5)]
    parameters += [make(values(4, 8), mesh, [R, R])]
    for p in parameters:
        p.backward(sim.tensor(values(4, 8)))
    with CommDebugMode() as comm:
        clip_grad_norm_(parameters, 1.0)
    assert comm.by_axis == {("dp", "all_reduce"): 1}


@on_ranks(2)
def test_one_parameter_no_gradients_and_values_that_are_not_finite() -> None:
    mesh = line()
    p = make(values(4), mesh, [S0])
    assert float(clip_grad_norm_([p], 1.0)) == 0.0
    p.backward(sim.tensor(values(4)))
    equal(clip_grad_norm_(p, 1e6), np.linalg.norm(values(4)))
    q = make([1.0, 2.0], mesh, [R])
    q.backward(sim.tensor([np.inf, 1.0]))
    with pytest.raises(
        RuntimeError, match=r"total norm of order 2.0 .* not finite.*error_if_nonfinite=False"
    ):
        clip_grad_norm_([p, q], 1.0, error_if_nonfinite=True)
    assert q.grad is not None
    assert q.grad.tolist() == [math.inf, 1.0]
