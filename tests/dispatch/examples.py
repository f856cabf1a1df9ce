"""Small strategies and tensors for the tests of the dispatcher."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hyper_dispatch import OpDispatcher, RowsOp, layouts_of, row
from hyper_dtensor import DTensor, Spec, wrap
from hyper_layout import DeviceMesh, Layout, Partial, Placement, Replicate, Shard
from tests.support import simulated as sim
from tests.support.simulated import ops

R, S0, S1, P = Replicate(), Shard(0), Shard(1), Partial()

MESH = DeviceMesh("cpu", (2, 2), ("dp", "tp"))
LINE = DeviceMesh("cpu", (4,), ("tp",))


class Product(RowsOp):
    """A matrix product."""

    def rows(self, cache_values: Sequence[Any]) -> Any:
        return [row("S(0) R -> S(0)"), row("R S(1) -> S(1)"), row("S(1) S(0) -> P"), row("P R -> P")]

    def output_ndims(self, cache_values: Sequence[Any]) -> Any:
        return (2,)

    def letters(self, cache_values: Sequence[Any]) -> Any:
        return ["mk", "kn"]


class Sum(RowsOp):
    """The sum of tensors of one shape, or of a tensor and a number; Partial takes a Replicate addend once."""

    def statics(self, bound: dict[str, Any]) -> Any:
        return ()

    def rows(self, cache_values: Sequence[Any]) -> Any:
        first = layouts_of(cache_values)[0]
        if len(layouts_of(cache_values)) == 1:
            return [row(f"S({dim}) -> S({dim})") for dim in range(first.ndim)]
        alike = [row(f"S({dim}) S({dim}) -> S({dim})") for dim in range(first.ndim)]
        return [*alike, row("P P -> P"), row("P + -> P")]

    def output_ndims(self, cache_values: Sequence[Any]) -> Any:
        return (cache_values[0].ndim,)


class Turn(RowsOp):
    """A matrix transposed: a view."""

    view_like = True

    def rows(self, cache_values: Sequence[Any]) -> Any:
        return [row("S(0) -> S(1)"), row("S(1) -> S(0)"), row("P -> P")]

    def output_ndims(self, cache_values: Sequence[Any]) -> Any:
        return (2,)


class Join(RowsOp):
    """Tensors of a list, concatenated along a dim."""

    def rows(self, cache_values: Sequence[Any]) -> Any:
        *layouts, dim = cache_values
        kept = [d for d in range(layouts[0].ndim) if d != dim % layouts[0].ndim]
        return [row(" ".join([f"S({d})"] * len(layouts)) + f" -> S({d})") for d in kept]

    def output_ndims(self, cache_values: Sequence[Any]) -> Any:
        return (cache_values[0].ndim,)


def tensor(
    placements: Sequence[Placement],
    *shape: int,
    mesh: DeviceMesh = MESH,
    requires_grad: bool = False,
    varying: int = 0,
) -> DTensor:
    """A distributed tensor of a global shape, with the same numbers on every rank where it is Replicate."""
    layout = Layout(mesh, tuple(placements), len(shape))
    value = np.arange(np.prod(shape), dtype=float).reshape(shape) / 7 + 1
    local = sim.tensor(value[layout.local_slice(shape)].copy(), requires_grad=requires_grad)
    return wrap(local, Spec.of(layout, varying), shape)


class Recorder:
    """A function that remembers what it was called with."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((args, kwargs))
        return self.function(*args, **kwargs)


def caller(dispatcher: OpDispatcher, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Call an operation through the dispatcher as if the platform had intercepted it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return dispatcher.dispatch(name, function, args, kwargs)

    return call


def product(a: Any, b: Any) -> Any:
    return ops.matmul(a, b)
