"""Entering and leaving distributed tensors, and changing their layout."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.tensor as torch_tensor

import hyper_parallel
from benchmarks.case import OURS, PLAIN, TORCH, Bound, Case, Quantity
from benchmarks.libraries import RANKS, Ours, TorchDTensor
from benchmarks.timing import Call, Side

__all__ = ["CONVERSION", "conversions"]

CONVERSION = "conversion"
SIZE = 16
FIFTH = Bound(Quantity.OVER_TORCH, 0.2)
QUARTER = Bound(Quantity.OVERHEAD, 0.25)


def conversions(theirs: TorchDTensor, ours: Ours) -> Iterator[Case]:
    """All of them, with and without gradients."""
    for grad, make in itertools.product((True, False), (_from_local, _to_local, _gather, _slice, _reduce)):
        name, bound, calls = make(theirs, ours, grad)
        sides: dict[str, Side] = {library: _repeat(call) for library, call in calls.items()}
        yield Case(CONVERSION, name if grad else f"{name}, no grad", sides, bound, grad)


def _repeat(call: Call) -> Side:
    return lambda count: itertools.repeat(call, count)


Made = tuple[str, Bound | None, Mapping[str, Call]]


def _local(grad: bool) -> torch.Tensor:
    return torch.randn(SIZE, SIZE, requires_grad=grad)


def _from_local(theirs: TorchDTensor, ours: Ours, grad: bool) -> Made:
    local, torch_placements, placements = _local(grad), [torch_tensor.Shard(0)], [hyper_parallel.Shard(0)]
    return (
        "from_local",
        FIFTH,
        {
            TORCH: lambda: torch_tensor.DTensor.from_local(local, theirs.mesh, torch_placements),
            OURS: lambda: hyper_parallel.DTensor.from_local(local, ours.mesh, placements),
        },
    )


def _to_local(theirs: TorchDTensor, ours: Ours, grad: bool) -> Made:
    local = _local(grad)
    x, y = theirs.wrap(local, 0), ours.wrap(local, 0)
    return "to_local", None, {TORCH: lambda: x.to_local(), OURS: lambda: y.to_local()}


def _gather(theirs: TorchDTensor, ours: Ours, grad: bool) -> Made:
    local = _local(grad)

    def plain() -> torch.Tensor:
        pieces = [torch.empty_like(local) for _ in range(RANKS)]
        dist.all_gather(pieces, local.detach())
        return torch.cat(pieces, 0)

    whole = _to_whole(theirs.wrap(local, 0), ours.wrap(local, 0))
    return "gather: Shard(0) to Replicate", QUARTER, {PLAIN: plain, **whole}


def _slice(theirs: TorchDTensor, ours: Ours, grad: bool) -> Made:
    local = _local(grad)
    x, y = theirs.wrap(local, None), ours.wrap(local, None)
    torch_placements, placements = [torch_tensor.Shard(0)], [hyper_parallel.Shard(0)]
    return (
        "slice: Replicate to Shard(0)",
        FIFTH,
        {
            PLAIN: lambda: local.narrow(0, 0, SIZE // RANKS).contiguous(),
            TORCH: lambda: x.redistribute(placements=torch_placements),
            OURS: lambda: y.redistribute(placements),
        },
    )


def _reduce(theirs: TorchDTensor, ours: Ours, grad: bool) -> Made:
    local = _local(grad)

    def plain() -> torch.Tensor:
        total = local.detach().clone()
        dist.all_reduce(total)
        return total

    whole = _to_whole(theirs.summand(local), ours.summand(local))
    return "reduce: Partial to Replicate", QUARTER, {PLAIN: plain, **whole}


def _to_whole(x: Any, y: Any) -> Mapping[str, Callable[[], Any]]:
    torch_placements, placements = [torch_tensor.Replicate()], [hyper_parallel.Replicate()]
    return {
        TORCH: lambda: x.redistribute(placements=torch_placements),
        OURS: lambda: y.redistribute(placements),
    }
