"""`torch.distributed.checkpoint`: saved on one mesh, loaded on another, in other layouts or on one device."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from hyper_dtensor import DTensor
from hyper_layout import DeviceMesh
from hyper_parallel import ColwiseParallel, NoParallel, RowwiseParallel, parallelize_module
from tests.platform_torch.helpers import S0, S1, P, R, assert_equal, laid_out, line, numbers, square
from tests.platform_torch.tensor_parallel.common import on_ranks
from tests.support.ranks import RankPool

PLAN = {"0": ColwiseParallel(), "2": RowwiseParallel(), "3": NoParallel()}


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8), nn.LayerNorm(8)).double()


def trained(seed: int, steps: int, mesh: Any = None) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A network after some steps, on the last axis of ``mesh`` or on one device."""
    model = network(seed)
    if mesh is not None:
        parallelize_module(model, mesh["tp"], PLAN, src_data_rank=None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, eps=0.1)  # eps: no noise
    for _ in range(steps):
        step(model, optimizer)
    return model, optimizer


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(numbers(2, 8)).square().sum().backward()
    optimizer.step()


def assert_same(model: nn.Module, single: nn.Module) -> None:
    for ours, theirs in zip(model.parameters(), single.parameters(), strict=True):
        assert_equal(ours, theirs)


def save(folder: Path) -> None:
    model, optimizer = trained(0, 3, grid())
    states = get_state_dict(model, optimizer)
    dcp.save(dict(zip(("model", "optimizer"), states, strict=True)), checkpoint_id=folder)


def load(folder: Path, distributed: bool = True) -> None:
    """Load into a model of other numbers; then it is, and goes on as, the one that was saved."""
    model, optimizer = trained(1, 1, grid() if distributed else None)
    states = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    dcp.load(states, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=states["model"], optim_state_dict=states["optimizer"])
    single, theirs = trained(0, 3)
    assert_same(model, single)
    step(model, optimizer)
    step(single, theirs)
    assert_same(model, single)


def grid() -> Any:
    """All ranks: as a line of two, or as two by two."""
    return line() if dist.get_world_size() == 2 else square()


@pytest.mark.parametrize("saved_on", [2, 4])
def test_training_goes_on_elsewhere(
    ranks2: RankPool, ranks4: RankPool, saved_on: int, tmp_path: Path
) -> None:
    pools = {2: ranks2, 4: ranks4}
    pools[saved_on].run(save, tmp_path)
    for pool in pools.values():
        pool.run(load, tmp_path)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        load(tmp_path, distributed=False)


@on_ranks(4)
def test_every_layout_is_loaded_into_every_layout(tmp_path: Path) -> None:
    mesh, whole = square(), numbers(8, 4)
    layouts = [(R, R), (S0, R), (R, S1), (S0, S1), (S1, S0), (S0, S0)]
    saved = {str(placements): laid_out(whole, mesh, *placements) for placements in layouts}
    dcp.save(saved, checkpoint_id=tmp_path)
    for placements in layouts:
        into = {name: laid_out(torch.zeros_like(whole), mesh, *placements) for name in saved}
        views = [x[0] if placements == (R, R) else x.detach() for x in into.values()]
        dcp.load(into, checkpoint_id=tmp_path)
        for x, view in zip(into.values(), views, strict=True):
            assert_equal(x, whole)
            assert_equal(view, whole[0] if placements == (R, R) else whole)


@on_ranks(2)
def test_a_model_without_numbers_is_loaded(tmp_path: Path) -> None:
    mesh = line()
    single = network()
    dcp.save(copy.deepcopy(single).state_dict(), checkpoint_id=tmp_path)
    with torch.device("meta"):
        model = network()
    parallelize_module(model, mesh, PLAN)
    model.to_empty(device="cpu")
    states = model.state_dict()
    dcp.load(states, checkpoint_id=tmp_path)
    assert isinstance(states["0.weight"], DTensor)
    assert_same(model, single)


@on_ranks(2)
def test_a_rank_that_is_not_on_the_mesh_takes_no_part(tmp_path: Path) -> None:
    mesh = DeviceMesh("cpu", (1,), ("tp",), (1,))
    x, into = (DTensor.from_local(numbers(4, 4, seed=seed), mesh, [R], run_check=False) for seed in (1, 2))
    dcp.save({"x": x}, checkpoint_id=tmp_path)
    dcp.load({"x": into}, checkpoint_id=tmp_path)
    assert torch.equal(into._local, numbers(4, 4, seed=1 if dist.get_rank() == 1 else 2))


@on_ranks(2)
def test_what_no_checkpoint_holds_is_refused(tmp_path: Path) -> None:
    mesh = line()
    x = laid_out(numbers(4, 4), mesh, S0)
    partial = laid_out(numbers(4, 4), mesh, P)
    with pytest.raises(dcp.CheckpointException, match=r"cannot save 'x': DTensor\(f64\[4,4\] tp:P\(sum\)\)"):
        dcp.save({"x": partial}, checkpoint_id=tmp_path / "partial")
    row = x[0].redistribute([R])  # a copy, where one device has a view
    dcp.save({"x": x, "row": row}, checkpoint_id=tmp_path / "whole")
    with pytest.raises(dcp.CheckpointException, match=r"cannot load into it: .* is Partial"):
        dcp.load({"x": partial}, checkpoint_id=tmp_path / "whole")
    assert_equal(partial, numbers(4, 4))
    with pytest.raises(dcp.CheckpointException, match="Size mismatch between saved"):
        dcp.load({"x": laid_out(numbers(4, 2), mesh, S0)}, checkpoint_id=tmp_path / "whole")
    with pytest.raises(dcp.CheckpointException, match="writes in place into a tensor"):
        dcp.load({"row": row}, checkpoint_id=tmp_path / "whole")
    x.zero_()
    with pytest.raises(dcp.CheckpointException, match="was written in place since"):
        dcp.save({"row": row}, checkpoint_id=tmp_path / "late")


@on_ranks(2)
def test_a_block_is_named_by_where_it_begins() -> None:
    """Ranks that hold the same block give it the same name, so that one of them is written."""
    x = laid_out(numbers(4, 4), line(), R)
    (item,) = x.__create_write_items__("x", x)  # type: ignore[attr-defined]
    assert tuple(item.index.offset) == (0, 0)
    with pytest.raises(ValueError, match=r"holds the block of .* at \(0, 0\), not that of 'x' at \(2, 0\)"):
        x.__get_tensor_shard__(dcp.metadata.MetadataIndex("x", (2, 0)))  # type: ignore[attr-defined]
