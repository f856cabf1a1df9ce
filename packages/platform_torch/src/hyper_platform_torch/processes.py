"""Processes, groups and backends of ``torch.distributed``."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

__all__ = ["BACKENDS", "TorchGroup", "TorchProcesses"]

BACKENDS = {"cpu": "gloo", "cuda": "nccl", "npu": "hccl"}
"""The communication backend of each device type."""


@dataclass(frozen=True, slots=True)
class TorchGroup:
    """A process group with the order of its ranks on the mesh.

    Attributes:
        handle: The framework's group, which orders its ranks ascending.
        ranks: Global ranks in mesh order.
        order: Per position on the mesh axis the index in ``handle``; ``None`` where both orders agree.
    """

    handle: Any
    ranks: tuple[int, ...]
    order: tuple[int, ...] | None


def _require_npu() -> None:
    try:
        importlib.import_module("torch_npu")
    except Exception as error:  # torch_npu raises many types where CANN is missing or does not fit
        raise RuntimeError(
            "device type 'npu' needs torch_npu and CANN: install the extra (pip install "
            "'hyper-platform-torch[npu]', which "
            "brings torch_npu 2.13.0), install the CANN toolkit that matches it and source its set_env.sh; "
            "importing "
            f"torch_npu failed with {type(error).__name__}: {error}"
        ) from error


def _check_known(device_type: str) -> None:
    if device_type not in BACKENDS:
        raise ValueError(
            f"unknown device type {device_type!r}; the torch platform knows {', '.join(BACKENDS)}"
        )


class TorchProcesses:
    """The process verbs of the platform."""

    def __init__(self) -> None:
        self._groups: dict[tuple[int, ...], TorchGroup] = {}
        self._world: Any = None
        self._rank = 0

    def rank(self) -> int:
        """Global rank: of the process group, else what the launcher says, else 0."""
        world = dist.distributed_c10d._world.default_pg
        if world is None:
            return int(os.environ.get("RANK", "0"))
        if world is not self._world:
            self._rank = dist.get_rank()
            self._world = world  # last: another thread that sees it reads the rank
        return self._rank

    def world_size(self) -> int:
        """Number of processes: of the process group, else what the launcher says, else 1."""
        return dist.get_world_size() if dist.is_initialized() else int(os.environ.get("WORLD_SIZE", "1"))

    def start(self, device_type: str) -> None:
        """Start the default process group with the backend of ``device_type`` if there is none.

        Without a launcher's environment (``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR``, ``MASTER_PORT``) this is
        a world of one process.

        Raises:
            ValueError: For an unknown device type.
            RuntimeError: If torch_npu, CANN or the backend is missing.
        """
        _check_known(device_type)
        if device_type == "npu":
            _require_npu()
        if dist.is_initialized():
            return
        backend = BACKENDS[device_type]
        if not dist.is_backend_available(backend):
            raise RuntimeError(
                f"this build of torch has no {backend!r} backend, which device type {device_type!r} needs; "
                "install a build "
                "for that device, or use init_device_mesh('cpu', ...)"
            )
        self._groups.clear()
        if "RANK" in os.environ:
            dist.init_process_group(backend)
        else:
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)

    def device_count(self, device_type: str) -> int:
        """Devices that this process could use; 0 where there is none, or its backend or torch_npu is missing.

        Raises:
            ValueError: For an unknown device type.
        """
        _check_known(device_type)
        if device_type == "npu":
            try:
                _require_npu()
            except RuntimeError:
                return 0
        if not dist.is_backend_available(BACKENDS[device_type]):
            return 0
        return 1 if device_type == "cpu" else int(getattr(torch, device_type).device_count())

    def group(self, ranks: tuple[int, ...]) -> TorchGroup:
        """The group of ``ranks``; made on first use by its members alone.

        Raises:
            RuntimeError: If no process group was started.
        """
        found = self._groups.get(ranks)
        # Of a world that was destroyed the framework has no group any more.
        if found is not None and found.handle in distributed_c10d._world.pg_map:
            return found
        if not dist.is_initialized():
            raise RuntimeError(
                "no process group was started: make the mesh with init_device_mesh(device_type, shape) "
                "(init_backend=True), "
                "or call torch.distributed.init_process_group first"
            )
        ascending = sorted(ranks)
        if ascending == list(range(dist.get_world_size())):
            handle = dist.group.WORLD
        else:
            handle = dist.new_group(ascending, use_local_synchronization=True)
        order = tuple(ascending.index(rank) for rank in ranks)
        made = TorchGroup(handle, ranks, None if order == tuple(range(len(ranks))) else order)
        self._groups[ranks] = made
        return made

    def native_group(self, group: TorchGroup) -> Any:
        """The ``ProcessGroup``."""
        return group.handle

    def group_ranks(self, group: Any) -> tuple[int, ...]:
        """Global ranks of a `TorchGroup` (mesh order) or of the framework's own group (ascending)."""
        return group.ranks if isinstance(group, TorchGroup) else tuple(dist.get_process_group_ranks(group))
