"""Entering and leaving distributed tensors, and changing their layout, under MindSpore."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, mint

from benchmarks.case import OURS, PLAIN, Case
from benchmarks.on_mindspore.libraries import RANKS, Ours
from benchmarks.timing import Call
from hyper_dtensor import get_platform
from hyper_parallel import DTensor, Partial, Replicate, Shard

__all__ = ["CONVERSION", "conversions"]

CONVERSION = "conversion"
SIZE = 16


def conversions(ours: Ours) -> Iterator[Case]:
    """All of them, with and without gradients."""
    for grad in (True, False):
        local = Tensor(np.random.default_rng(0).standard_normal((SIZE, SIZE)), mindspore.float32)
        local.requires_grad_(grad)
        for name, calls in _calls(local, ours.mesh).items():
            sides = {
                side: lambda count, call=call: itertools.repeat(call, count) for side, call in calls.items()
            }
            yield Case(CONVERSION, name if grad else f"{name}, no grad", sides, grad=grad)


def _calls(local: Tensor, mesh: Any) -> Mapping[str, Mapping[str, Call]]:
    platform, group = get_platform(), get_platform().group(tuple(range(RANKS)))
    rows, whole = [Shard(0)], [Replicate()]
    sharded, replicated, summand = (
        DTensor.from_local(local, mesh, [placement]) for placement in (Shard(0), Replicate(), Partial())
    )
    return {
        "from_local": {OURS: lambda: DTensor.from_local(local, mesh, rows)},
        "to_local": {OURS: lambda: sharded.to_local()},
        "gather: Shard(0) to Replicate": {
            PLAIN: lambda: platform.all_gather(local, 0, group),
            OURS: lambda: sharded.redistribute(whole),
        },
        "slice: Replicate to Shard(0)": {
            PLAIN: lambda: platform.ops.clone(mint.narrow(local, 0, 0, SIZE // RANKS)),
            OURS: lambda: replicated.redistribute(rows),
        },
        "reduce: Partial to Replicate": {
            PLAIN: lambda: platform.all_reduce(local, "sum", group),
            OURS: lambda: summand.redistribute(whole),
        },
    }
