"""Processes, groups and backends of MindSpore."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mindspore
from mindspore.communication import (
    GlobalComm,
    create_group,
    get_group_size,
    get_local_rank,
    get_process_group_ranks,
    get_rank,
    init,
)
from mindspore.communication._comm_helper import _is_initialized as is_initialized

__all__ = ["DEVICES", "MindSporeGroup", "MindSporeProcesses"]

DEVICES = {"cpu": "CPU", "npu": "Ascend"}
"""MindSpore's name of each device type."""


@dataclass(frozen=True, slots=True)
class MindSporeGroup:
    """A communication group of MindSpore.

    Attributes:
        handle: Its name, which is what MindSpore calls a group by.
        ranks: Global ranks in mesh order.
        index: Position of this process among them.
        order: Per position on the mesh axis the index in the framework's group, which counts its ranks in
            ascending order; ``None`` where both orders agree.
    """

    handle: str
    ranks: tuple[int, ...]
    index: int
    order: tuple[int, ...] | None

    def in_mesh_order(self, pieces: Sequence[Any]) -> list[Any]:
        """Pieces that the framework ordered by ascending rank."""
        return list(pieces) if self.order is None else [pieces[index] for index in self.order]

    def by_rank(self, pieces: Sequence[Any]) -> list[Any]:
        """Pieces in mesh order, as the framework wants them."""
        if self.order is None:
            return list(pieces)
        placed = list(pieces)
        for position, index in enumerate(self.order):
            placed[index] = pieces[position]
        return placed


def _device(device_type: str) -> str:
    if device_type not in DEVICES:
        raise ValueError(
            f"unknown device type {device_type!r}; the MindSpore platform knows {', '.join(DEVICES)}"
        )
    return DEVICES[device_type]


class MindSporeProcesses:
    """The process verbs of the platform."""

    def __init__(self) -> None:
        self._groups: dict[tuple[int, ...], MindSporeGroup] = {}

    def rank(self) -> int:
        """Global rank: of the started group, else what the launcher says, else 0."""
        return int(get_rank()) if is_initialized() else int(os.environ.get("RANK_ID", "0"))

    def world_size(self) -> int:
        """Number of processes: of the started group, else what the launcher says, else 1."""
        return int(get_group_size()) if is_initialized() else int(os.environ.get("RANK_SIZE", "1"))

    def start(self, device_type: str) -> None:
        """Choose the device and join the processes of the launcher (``msrun``, or its environment).

        Without a launcher's environment (``MS_ROLE``, or ``RANK_TABLE_FILE`` on Ascend) this is a world of
        one process, in which nothing is communicated.

        Raises:
            ValueError: For an unknown device type.
            RuntimeError: If this build of MindSpore does not have the device.
        """
        device = _device(device_type)
        if is_initialized():
            return
        try:
            mindspore.set_device(device, *(_local_rank() if device == "Ascend" else ()))
        except (RuntimeError, ValueError) as error:
            raise RuntimeError(
                f"MindSpore cannot use device type {device_type!r} ({device}) here: {error}; install the "
                "MindSpore build and the driver (for Ascend CANN) of that device, or use "
                "init_device_mesh('cpu', ...)"
            ) from error
        if device == "CPU":
            # Errors rise at the call that caused them, and on few cores real work is much faster.
            mindspore.runtime.launch_blocking()
        self._groups.clear()
        if "MS_ROLE" in os.environ or "RANK_TABLE_FILE" in os.environ:
            init()

    def device_count(self, device_type: str) -> int:
        """Devices that this process could use; 0 where this build of MindSpore or the machine has none.

        Raises:
            ValueError: For an unknown device type.
        """
        device = _device(device_type)
        return int(mindspore.hal.device_count(device)) if mindspore.hal.is_available(device) else 0

    def group(self, ranks: tuple[int, ...]) -> MindSporeGroup:
        """The group of ``ranks``; made on first use by its members alone.

        Raises:
            RuntimeError: If no processes were joined.
        """
        found = self._groups.get(ranks)
        if found is not None:
            return found
        if not is_initialized() and ranks != (0,):
            raise RuntimeError(
                "the processes were not joined: make the mesh with init_device_mesh(device_type, shape) "
                "(init_backend=True), or call mindspore.communication.init first"
            )
        ascending = sorted(ranks)
        if not is_initialized() or ascending == list(range(get_group_size())):
            handle = GlobalComm.WORLD_COMM_GROUP
        else:
            handle = "hyper_" + "_".join(map(str, ascending))
            create_group(handle, ascending)
        order = tuple(ascending.index(rank) for rank in ranks)
        made = MindSporeGroup(
            handle, ranks, ranks.index(self.rank()), None if order == tuple(range(len(ranks))) else order
        )
        self._groups[ranks] = made
        return made

    def native_group(self, group: MindSporeGroup) -> str:
        """The name of the group."""
        return group.handle

    def group_ranks(self, group: Any) -> tuple[int, ...]:
        """Global ranks of a `MindSporeGroup` (mesh order) or of a group's name (ascending)."""
        if isinstance(group, MindSporeGroup):
            return group.ranks
        return tuple(get_process_group_ranks(group))


def _local_rank() -> tuple[int, ...]:
    """The number of this process's device, where the launcher says it."""
    for name in ("DEVICE_ID", "MS_NODE_ID"):
        if name in os.environ:
            return (int(os.environ[name]),)
    return (int(get_local_rank()),) if is_initialized() else ()
