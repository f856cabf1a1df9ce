"""Device types, backends and groups."""

from __future__ import annotations

import sys

import pytest
import torch
import torch.distributed as dist

from hyper_dtensor import DTensor, distribute_tensor, get_platform, init_device_mesh
from hyper_layout import Partial, Replicate, Shard
from hyper_platform_torch.processes import BACKENDS, TorchProcesses
from tests.platform_torch.helpers import numbers
from tests.support.ranks import RankPool, run_once


def test_backends() -> None:
    assert BACKENDS == {"cpu": "gloo", "cuda": "nccl", "npu": "hccl"}


def test_an_unknown_device_type_is_named() -> None:
    with pytest.raises(ValueError, match=r"unknown device type 'tpu'.*cpu, cuda, npu"):
        TorchProcesses().start("tpu")


def test_npu_without_torch_npu_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_npu", None)
    with pytest.raises(RuntimeError) as caught:
        TorchProcesses().start("npu")
    for word in ("torch_npu", "CANN", "pip install", "hyper-platform-torch[npu]", "2.13.0"):
        assert word in str(caught.value)


def test_a_missing_backend_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_backend_available", lambda backend: False)
    with pytest.raises(RuntimeError, match="no 'nccl' backend"):
        TorchProcesses().start("cuda")


def test_torch_npu_is_imported_for_npu_alone() -> None:
    assert "torch_npu" not in sys.modules


def test_a_group_needs_a_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_initialized", lambda: False)
    with pytest.raises(RuntimeError, match="init_device_mesh"):
        TorchProcesses().group((0,))


def started_by_the_mesh() -> tuple[str, int]:
    """No process group was there: the launcher's environment is used."""
    assert not dist.is_initialized()
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    x = distribute_tensor(numbers(4, 4), mesh, [Shard(0)])
    assert torch.equal(x.full_tensor(), numbers(4, 4))
    again = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    assert again is mesh
    return dist.get_backend(), dist.get_world_size()


def test_the_mesh_starts_the_process_group() -> None:
    assert run_once(2, started_by_the_mesh, process_group=False) == [("gloo", 2), ("gloo", 2)]


def alone() -> None:
    """Without a launcher this is a world of one."""
    import os

    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("tp",))
    x = distribute_tensor(numbers(4, 4), mesh, [Shard(0)])
    assert torch.equal(x.full_tensor(), numbers(4, 4))


def test_a_world_of_one() -> None:
    run_once(1, alone, process_group=False)


def reordered() -> None:
    """A mesh that lists its ranks in another order than the backend."""
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",), rank_list=(2, 0, 3, 1))
    whole = numbers(8, 4)
    for placement in (Shard(0), Shard(1), Replicate()):
        x = distribute_tensor(whole, mesh, [placement])
        assert torch.equal(x.full_tensor(), whole)
        for target in (Shard(0), Shard(1), Replicate()):
            assert torch.equal(x.redistribute([target]).full_tensor(), whole)
    position = (2, 0, 3, 1).index(dist.get_rank())
    assert torch.equal(x.redistribute([Shard(0)]).to_local(), whole[2 * position : 2 * position + 2])


def test_a_mesh_with_its_own_order_of_ranks(ranks4: RankPool) -> None:
    ranks4.run(reordered)


def smaller() -> list[float]:
    """A mesh smaller than the world: its block; the other ranks take no part."""
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    assert mesh.rank_list == ((0, 1) if dist.get_rank() < 2 else (2, 3))
    x = DTensor.from_local(torch.tensor([float(dist.get_rank())]), mesh, [Shard(0)])
    return list(x.full_tensor().tolist())


def test_a_mesh_smaller_than_the_world(ranks4: RankPool) -> None:
    assert ranks4.run(smaller) == [[0.0, 1.0], [0.0, 1.0], [2.0, 3.0], [2.0, 3.0]]


DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.float8_e4m3fn),
]


def every_dtype() -> None:
    """Numbers of every dtype are moved unchanged, and those that can be added are added."""
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    for dtype in DTYPES:
        whole = (numbers(4, 4) * 3).round().abs().to(dtype)
        for placement in (Shard(0), Shard(1), Replicate()):
            x = distribute_tensor(whole, mesh, [placement])
            for target in (Shard(0), Shard(1), Replicate()):
                full = x.redistribute([target]).full_tensor()
                assert full.dtype == dtype
                assert torch.equal(full.view(torch.uint8), whole.view(torch.uint8)), dtype
        if dtype in (torch.bool, torch.float8_e4m3fn):
            continue
        part = DTensor.from_local(whole, mesh, [Partial()])
        for target in (Replicate(), Shard(0), Shard(1)):
            full = part.redistribute([target]).full_tensor()
            assert full.dtype == dtype
            assert torch.equal(full, whole + whole), dtype


def test_collectives_of_every_dtype(ranks2: RankPool) -> None:
    ranks2.run(every_dtype)


def native() -> None:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    group = mesh.get_group("tp")
    x = torch.ones(1)
    dist.all_reduce(x, group=group)
    assert x.item() == 2.0
    assert get_platform().group_ranks(group) == (0, 1)


def test_the_native_group_is_handed_out(ranks2: RankPool) -> None:
    ranks2.run(native)
