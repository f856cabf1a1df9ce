"""Where a backward begins, and how gradients are shown (design rule 6 and the table of gradient states)."""

from __future__ import annotations

import numpy as np
import pytest

from hyper_dtensor import CommDebugMode, DTensor, Spec, wrap
from hyper_dtensor.gradients import gradient_spec
from hyper_layout import Layout, LayoutError, Placement
from tests.dtensor.helpers import AVG, S0, S1, P, R, equal, line, make, on_ranks, square, values, whole
from tests.support import simulated as sim

STATES = [(R, 0), (R, 1), (S0, 0), (S1, 0), (P, 0), (AVG, 0)]


@on_ranks(2)
def test_how_the_gradient_of_each_state_is_shown() -> None:
    mesh = line()
    shown = {(R, 0): R, (R, 1): P, (S0, 0): S0, (P, 0): R, (AVG, 0): P}
    for (placement, varying), gradient in shown.items():
        spec = gradient_spec(Spec.of(Layout(mesh, (placement,), 2), varying))
        assert spec.layout.placements == (gradient,)
        # The gradient of a gradient flows the other way through the same maps: Partial and varying swap.
        assert spec.varying == (1 if placement is P else 0)


@on_ranks(4)
def test_grad_is_a_dtensor_of_the_global_shape() -> None:
    x = make(values(4, 8), square(), [S0, R], varying=2)
    assert x.grad is None
    x.backward(sim.tensor(values(4, 8, seed=1)))
    assert isinstance(x.grad, DTensor)
    assert (x.grad.shape, x.grad.placements) == ((4, 8), (S0, P))
    equal(x.grad, values(4, 8, seed=1))
    x.grad = None
    assert x.grad is None
    other = make(values(4, 8), square(), [S0, R], requires_grad=False)
    with pytest.raises(
        LayoutError, match=r"laid out as dp:S\(0\) tp:P\(sum\), got DTensor\(f64\[4,8\] dp:S\(0\) tp:R\)"
    ):
        x.grad = other
    x.grad = other.redistribute(tp=P)
    equal(x.grad, values(4, 8))


@pytest.mark.parametrize(("placement", "varying"), STATES)
@on_ranks(2, 4)
def test_sensitivities(placement: Placement, varying: int) -> None:
    mesh, weight = line(), values(4, 8, seed=1)
    gradients = [sim.tensor(weight)]
    gradients += [make(weight, mesh, [p], varying=v, requires_grad=False) for p, v in STATES]
    for gradient in gradients:
        x = make(values(4, 8), mesh, [placement], varying=varying)
        x.backward(gradient)
        assert x.grad is not None
        equal(x.grad, weight)


@pytest.mark.parametrize(("placement", "varying"), [(R, 0), (R, 1), (P, 0), (AVG, 0)])
@on_ranks(2, 4)
def test_a_scalar_of_any_state_starts_from_ones(placement: Placement, varying: int) -> None:
    for shape in ((), (1,), (1, 1)):
        x = make(np.full(shape, 3.0), line(), [placement], varying=varying)
        with CommDebugMode() as comm:
            x.backward()
            assert comm.total == 0  # a Partial loss needs no reduction first
        assert x.grad is not None
        equal(x.grad, np.ones(shape))


@on_ranks(4)
def test_a_partial_loss_through_a_graph() -> None:
    """The mean over a split batch is the local mean times the local share."""
    mesh, value = square(), values(4, 8)
    x = make(value, mesh, [S0, S1])
    local = (x.to_local() ** 2).mean() * (1 / mesh.size())
    loss = wrap(local, Spec.of(Layout(mesh, (P, P), 0)))
    equal(loss, np.mean(value**2))
    loss.backward()
    assert x.grad is not None
    equal(x.grad, 2 * value / value.size)


@pytest.mark.parametrize(("placement", "varying"), STATES)
@on_ranks(2, 4)
def test_gradient_with_respect_to_the_sensitivity(placement: Placement, varying: int) -> None:
    """The gradient is linear in the sensitivity s: d sum(v * s) / ds = v."""
    mesh, direction = line(), values(4, 8, seed=2)
    x = make(values(4, 8), mesh, [placement], varying=varying)
    gradient = make(values(4, 8, seed=1), mesh, [R])
    (found,) = sim.grad(x, [x], gradient, create_graph=True)
    assert found is not None
    (found.full_tensor() * sim.tensor(direction)).sum().backward()
    assert gradient.grad is not None
    equal(gradient.grad, direction)


@on_ranks(2)
def test_refusals() -> None:
    mesh = line()
    x = make(values(4, 8), mesh, [R])
    with pytest.raises(
        RuntimeError, match=r"one element, got shape \(4, 8\): reduce it .*sum\(\).* or pass gradient="
    ):
        x.backward()
    with pytest.raises(ValueError, match=r"the gradient has shape \(8,\), the tensor \(4, 8\)"):
        x.backward(sim.tensor(values(8)))
    with pytest.raises(TypeError, match="gradient must be a tensor of NumPy or a DTensor, got float"):
        x.backward(1.0)
    assert x.grad is None


@on_ranks(2)
def test_retain_graph() -> None:
    x = make(values(4), line(), [S0])
    y = x.redistribute([R])
    squared = wrap(y._local * y._local, y._spec)
    squared.backward(sim.tensor(np.ones(4)), retain_graph=True)
    squared.backward(sim.tensor(np.ones(4)))
    assert x.grad is not None
    equal(x.grad, 4 * values(4))
    with pytest.raises(RuntimeError, match="second time"):
        squared.backward(sim.tensor(np.ones(4)))


@on_ranks(2)
def test_zero_dimensional_parameters() -> None:
    mesh, value = line(), values(4, 8)
    scale, x = make(3.0, mesh, [R]), make(value, mesh, [S0], requires_grad=False)
    from hyper_dtensor import local_map

    loss = local_map(lambda s, x: (s * x).sum(), [P])(scale, x)
    loss.backward()
    assert scale.grad is not None
    assert scale.grad.shape == ()
    equal(scale.grad, value.sum())
    assert float(whole(scale)) == 3.0
