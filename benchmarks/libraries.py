"""The three libraries that are compared, on one process group whose collectives are free.

The group says that it has eight ranks, and its collectives return at once and write nothing: what is left is
the work of the host.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.tensor as torch_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

import hyper_parallel

__all__ = ["RANKS", "Ours", "Plain", "TorchDTensor", "start"]

RANKS = 8


class _OfTorch:
    """What is made alike in all three."""

    def wrap(self, local: torch.Tensor, shard: int | None) -> Any:
        """See `Library`."""
        raise NotImplementedError

    def leaf(self, shape: tuple[int, ...], shard: int | None, *, grad: bool, weight: bool) -> Any:
        """See `Library`; a weight is a tensor like any other."""
        return self.wrap(torch.randn(shape), shard).requires_grad_(grad)

    def ids(self, shape: tuple[int, ...], high: int) -> Any:
        """See `Library`."""
        return self.wrap(torch.randint(0, high, shape), None)


class Plain(_OfTorch):
    """Local tensors alone: what the other two run underneath."""

    name = "plain"
    ranks = 1

    def wrap(self, local: torch.Tensor, shard: int | None) -> Any:
        """The local tensor itself."""
        return local


class TorchDTensor(_OfTorch):
    """``torch.distributed.tensor``."""

    name = "torch DTensor"
    ranks = RANKS

    def __init__(self) -> None:
        self.mesh = dist.device_mesh.init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))

    def wrap(self, local: torch.Tensor, shard: int | None) -> Any:
        """See `Library`."""
        placement = torch_tensor.Replicate() if shard is None else torch_tensor.Shard(shard)
        return torch_tensor.DTensor.from_local(local, self.mesh, [placement])

    def summand(self, local: torch.Tensor) -> Any:
        """The tensor that is the sum of all ranks' ``local``."""
        return torch_tensor.DTensor.from_local(local, self.mesh, [torch_tensor.Partial()])


class Ours(_OfTorch):
    """``hyper_parallel``."""

    name = "ours"
    ranks = RANKS

    def __init__(self) -> None:
        self.mesh = hyper_parallel.init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))

    def wrap(self, local: torch.Tensor, shard: int | None) -> Any:
        """See `Library`."""
        placement = hyper_parallel.Replicate() if shard is None else hyper_parallel.Shard(shard)
        return hyper_parallel.DTensor.from_local(local, self.mesh, [placement])

    def summand(self, local: torch.Tensor) -> Any:
        """The tensor that is the sum of all ranks' ``local``."""
        return hyper_parallel.DTensor.from_local(local, self.mesh, [hyper_parallel.Partial()])


def start() -> tuple[Plain, TorchDTensor, Ours]:
    """One thread, the free process group, and the three libraries on it."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # collectives leave what was in memory, and denormal numbers are slow
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    return Plain(), TorchDTensor(), Ours()
