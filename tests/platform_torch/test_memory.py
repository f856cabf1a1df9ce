"""What stays in memory: nothing of a training step, no copy of anybody's data, and caches up to their bounds."""

from __future__ import annotations

import gc
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore

from hyper_dispatch import OpDispatcher, dispatcher
from hyper_dtensor import DTensor, Spec, clip_grad_norm_, distribute_tensor
from hyper_layout.layout import _INTERNED
from hyper_parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from hyper_platform_torch import second_leaves
from tests.platform_torch.helpers import S0, S1, P, R, line, numbers
from tests.platform_torch.tensor_parallel.common import on_ranks
from tests.support.ranks import run_once

WARM, STEPS = 300, 1000


class Model(nn.Module):
    """A norm of a part of the sequence, a column-wise and a row-wise linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x: Any) -> Any:
        return x + self.mlp(self.norm(x))


def plan() -> dict[str, Any]:
    by_sequence = S1
    return {
        "norm": SequenceParallel(),
        "mlp": PrepareModuleInput(input_layouts=(by_sequence,), desired_input_layouts=(R,)),
        "mlp.0": ColwiseParallel(),
        "mlp.2": RowwiseParallel(output_layouts=by_sequence, use_local_output=False),
    }


def sizes() -> dict[str, int]:
    """How much there is of everything that could grow."""
    tables = dispatcher._tables.values()
    tracked = gc.get_objects()
    counts = {
        "objects": len(tracked),
        "tensors": sum(issubclass(type(each), torch.Tensor) for each in tracked),
    }
    del tracked
    gc.collect()  # also empties the interpreter's lists of blocks for reuse, up to 2000 of a size
    # Attribute names that extensions look up are kept by address, in up to 4096 entries that fill for long.
    sys._clear_type_cache()
    return {
        **counts,
        "memory blocks": sys.getallocatedblocks(),
        "layout cache": sum(info.entries for info in dispatcher.cache_info().values()),
        "plans": sum(len(table.plans) for table in tables),
        "misses": sum(info.misses for info in dispatcher.cache_info().values()),
        "layouts": len(_INTERNED),
        "specs": len(Spec._interned),
        "second leaves": len(second_leaves._known),
        "backwards": len(second_leaves._tasks),
    }


def train() -> tuple[dict[str, int], dict[str, int]]:
    """The sizes after `WARM` and after `STEPS` steps; the garbage collector is off all the time."""
    dispatcher._limit = 8  # reached soon: AdamW passes numbers that change with every step
    # One of two ranks, with collectives that send nothing: what they compute does not matter here.
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    mesh = line()
    torch.manual_seed(0)
    model = parallelize_module(Model(), mesh, plan(), src_data_rank=None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = distribute_tensor(torch.randn(2, 4, 8), mesh, [S1], src_data_rank=None)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    gc.collect()
    gc.disable()
    try:
        for _ in range(WARM):
            step()
        for _ in range(3):  # tuples are untracked from the inside out, one layer at a time
            gc.collect()  # what the first steps left would make room for objects of the later ones
        before = sizes()
        for _ in range(STEPS - WARM):
            step()
        return before, sizes()
    finally:
        gc.enable()
        dist.destroy_process_group()


def test_a_training_loop_does_not_grow() -> None:
    ((before, after),) = run_once(1, train, process_group=False)
    # What the measurement itself takes; one per step would be 700.
    slack = {"memory blocks": 30, "objects": 10}
    grown = {name: after[name] - before[name] for name in before}
    assert all(size <= slack.get(name, 0) for name, size in grown.items()), grown
    assert after["second leaves"] > 0


@on_ranks(2)
def test_a_dtensor_is_no_copy() -> None:
    """The local tensor is the user's; a parameter, its second leaf and what aliases it share the storage."""
    mesh = line()
    for placement in (S0, R, P):
        local = numbers(4, 4)
        x = DTensor.from_local(local, mesh, [placement])
        assert x.to_local() is local
        for alias in (x.detach(), x.data, x.t(), x.view(-1) if placement is not S0 else x, nn.Parameter(x)):
            assert alias.to_local().data_ptr() == local.data_ptr()
    p = nn.Parameter(DTensor.from_local(local, mesh, [R]))
    rows = distribute_tensor(numbers(4, 4), mesh, [S0], src_data_rank=None)
    (rows * p[0]).sum().backward()
    (rows @ p).sum().backward()
    for second in second_leaves.of(p.to_local()).alive():
        assert second.data_ptr() == local.data_ptr()
    assert p.grad.to_local().untyped_storage().nbytes() == local.nbytes


@on_ranks(2)
def test_the_caches_are_bounded() -> None:
    mesh, limit = line(), 8
    mine = OpDispatcher(entries_per_op=limit)
    x = distribute_tensor(numbers(4, 4), mesh, [S0], src_data_rank=None)
    for number in range(5 * limit):
        mine.dispatch("unsqueeze", torch.unsqueeze, (x, number % 3), {})
        mine.dispatch(
            "view", torch.Tensor.view, (distribute_tensor(numbers(4, 2 + number), mesh, [S0]), -1), {}
        )
    for name in ("unsqueeze", "view"):
        info, table = mine.cache_info(name)[name], mine._tables[name]
        assert info.limit == limit
        assert info.entries <= limit
        assert len(table.plans) <= limit
    assert mine.cache_info("view")["view"].misses == 5 * limit
    assert len(mine._tables["view"].plans) == limit
    mine.clear_cache()
    assert mine.cache_info("view")["view"].entries == 0
