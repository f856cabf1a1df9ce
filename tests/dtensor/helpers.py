"""What the tests of hyper_dtensor share: ranks, meshes, and distributed tensors of a known whole."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from hyper_dtensor import DTensor, Spec, init_device_mesh, wrap
from hyper_dtensor import gradients as states
from hyper_layout import DeviceMesh, Layout, Partial, Placement, Replicate, Shard, current_rank
from tests.support import simulated as sim
from tests.support.simulated import tape

R, S0, S1, P = Replicate(), Shard(0), Shard(1), Partial()
AVG = Partial("avg")


def on_ranks(*sizes: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run the body of a test on every rank of a world of each size."""

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(body)
        def test(ranks: int, **fixtures: Any) -> None:
            sim.run_ranks(ranks, functools.partial(body, **fixtures))

        own = list(inspect.signature(body).parameters.values())
        ranks = inspect.Parameter("ranks", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        test.__signature__ = inspect.Signature([ranks, *own])  # type: ignore[attr-defined]
        return pytest.mark.parametrize("ranks", sizes)(test)

    return decorate


def line(name: str = "tp") -> DeviceMesh:
    """All ranks along one axis."""
    return init_device_mesh("cpu", (sim.world_size(),), mesh_dim_names=(name,))


def square() -> DeviceMesh:
    """Four ranks as 2 x 2."""
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))


def values(*shape: int, seed: int = 0) -> Any:
    """Numbers that are the same on every rank."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def part(value: Any, layout: Layout, rank: int | None = None, seed: int = 7) -> Any:
    """What ``rank`` holds of ``value``. Partial axes get uneven addends of mixed signs."""
    coordinate = layout.mesh.get_coordinate(rank)
    assert coordinate is not None
    before: list[int] = []
    for axis, op in enumerate(layout.partial):
        size, place = layout.mesh_shape[axis], coordinate[axis]
        if op is not None:
            noise = np.random.default_rng([seed, axis, *before]).standard_normal((size, *value.shape))
            if op in ("sum", "avg"):
                noise[-1] = value - noise[:-1].sum(0)
                value = noise[place] * (size if op == "avg" else 1)
            elif op == "prod":
                noise[-1] = value / noise[:-1].prod(0)
                value = noise[place]
            else:
                sign = -1 if op == "max" else 1
                value = value + (0 if place == size - 1 else sign * np.abs(noise[place]))
            before.append(place)
    return value[layout.local_slice(value.shape, rank)].copy()


def make(
    value: Any,
    mesh: DeviceMesh,
    placements: Sequence[Placement],
    *,
    varying: int = 0,
    requires_grad: bool = True,
) -> DTensor:
    """A leaf that is ``value`` in the given placements and gradient state."""
    value = np.asarray(value, dtype=float)
    layout = Layout(mesh, tuple(placements), value.ndim)
    local = sim.tensor(part(value, layout), requires_grad=requires_grad)
    return wrap(local, Spec.of(layout, varying), value.shape)


def whole(t: DTensor) -> Any:
    """The value of ``t`` as every rank sees it."""
    with sim.no_grad():
        return t.full_tensor().detach().array


def equal(actual: Any, expected: Any) -> None:
    """Equal within rounding; tensors of all kinds."""
    actual, expected = (whole(t) if isinstance(t, DTensor) else t for t in (actual, expected))
    actual, expected = getattr(actual, "array", actual), getattr(expected, "array", expected)
    assert np.shape(actual) == np.shape(expected), (np.shape(actual), np.shape(expected))
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


def plain_grad(loss: Any, leaf: DTensor, *, create_graph: bool = False) -> DTensor:
    """The gradient of ``leaf`` where every rank goes backward from its own plain ``loss``."""
    (found,) = tape.grad([loss], [leaf._local], [sim.tensor(1.0)], create_graph=create_graph)
    assert found is not None
    return wrap(found, states.gradient_spec(leaf._spec), leaf._shape)


def weight_of_rank(mesh: DeviceMesh) -> float:
    """A number of this rank; those of all ranks of the mesh sum to one."""
    numbers = np.random.default_rng(3).standard_normal(mesh.size())
    numbers[-1] = 1 - numbers[:-1].sum()
    return float(numbers[mesh.rank_list.index(current_rank())])
