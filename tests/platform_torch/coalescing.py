"""Parameters on one device and distributed, for the tests of gradients that are reduced together."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from hyper_dtensor import CommDebugMode, DTensor
from tests.platform_torch.helpers import S0, R, assert_equal, laid_out, line, numbers

ON_AND_OFF = pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
COUNT = {True: 1, False: 2}
"""All-reduces of the gradients of two parameters, with and without coalescing."""


@contextlib.contextmanager
def coalescing(on: bool) -> Iterator[None]:
    os.environ["HYPER_PARALLEL_COALESCE"] = str(int(on))
    try:
        yield
    finally:
        del os.environ["HYPER_PARALLEL_COALESCE"]


class Twins:
    """Two parameters and an input, on one device and distributed: the input by rows, the parameters whole."""

    def __init__(self, mesh: Any = None, *, dtype: torch.dtype = torch.float64) -> None:
        mesh = mesh or line()
        whole = [numbers(4, seed=seed).to(dtype) for seed in (1, 2)]
        x = numbers(8, 4).to(dtype)
        everywhere = [R] * mesh.ndim
        self.single = Side([nn.Parameter(w.clone()) for w in whole], x, x)
        self.ours = Side(
            [nn.Parameter(laid_out(w, mesh, *everywhere)) for w in whole],
            laid_out(x, mesh, *[S0] * mesh.ndim),
            laid_out(x, mesh, *everywhere),
        )

    def each(self) -> tuple[Side, Side]:
        return self.single, self.ours

    def check(self, what: str = "", tolerance: float = 1e-12) -> None:
        for index, (ours, theirs) in enumerate(zip(self.ours.params, self.single.params, strict=True)):
            assert (ours.grad is None) == (theirs.grad is None), f"{what}: parameter {index}"
            if theirs.grad is not None:
                assert_equal(ours.grad, theirs.grad, f"{what}: parameter {index}", tolerance)
                assert ours.grad.placements == ours.placements


class Side:
    def __init__(self, params: Sequence[Any], x: Any, whole: Any) -> None:
        self.params, self.x, self.whole = params, x, whole

    def varying(self) -> Any:
        """A loss in which every rank uses the parameters on its rows."""
        a, b = self.params
        return ((self.x * a).sin() * b + self.x * b).square().sum()

    def alike(self) -> Any:
        """A loss in which all ranks use the parameters alike."""
        a, b = self.params
        return (a * b).cos().sum() + (self.whole * a).sin().sum()

    def mixed(self) -> Any:
        return self.varying() + self.alike()

    def clear(self) -> None:
        for p in self.params:
            p.grad = None


def counted(run: Callable[[], Any]) -> dict[str, int]:
    with CommDebugMode() as comm:
        run()
    return comm.counts


def record_hooks(side: Side, seen: list[Any], kinds: str) -> list[Any]:
    handles = []
    for p in side.params:
        if "t" in kinds:
            handles.append(p.register_hook(lambda g: seen.append(full_copy(g))))
            handles.append(p.register_hook(lambda g: g * 2))
        if "p" in kinds:
            handles.append(p.register_post_accumulate_grad_hook(lambda p: seen.append(full_copy(p.grad))))
        if "T" in kinds:
            handles.append(p.register_hook(lambda g: g + 1))
    return handles


def full_copy(g: Any) -> torch.Tensor:
    return (g.full_tensor() if isinstance(g, DTensor) else g).detach().clone()
