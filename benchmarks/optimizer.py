"""A step of AdamW over many parameters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import nn

from benchmarks.case import Bound, Case, Quantity
from benchmarks.library import Library
from benchmarks.timing import Side

__all__ = ["OPTIMIZER", "adamw"]

OPTIMIZER = "optimizer"
PARAMETERS, SIZE = 100, 64


def adamw(libraries: Sequence[Library]) -> Case:
    """``AdamW(foreach=True).step()`` over 100 parameters whose local parts are 64 x 64."""
    name = f"AdamW foreach, {PARAMETERS} of {SIZE} x {SIZE}"
    sides = {library.name: _steps(library) for library in libraries}
    return Case(OPTIMIZER, name, sides, Bound(Quantity.OVER_PLAIN, 1.4), warm=True)


def _steps(library: Library) -> Side:
    def sharded() -> torch.Tensor:
        made: torch.Tensor = library.wrap(torch.randn(SIZE, SIZE), 0)
        return made

    parameters = [nn.Parameter(sharded()) for _ in range(PARAMETERS)]
    for parameter in parameters:
        parameter.grad = sharded()
    optimizer = torch.optim.AdamW(parameters, foreach=True)
    return lambda count: itertools.repeat(optimizer.step, count)
