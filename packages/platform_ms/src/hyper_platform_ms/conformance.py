"""How fresh processes become ranks on MindSpore (a ``ProcessSetup`` of ``hyper_conformance``), on the CPU.

The framework's launcher notices a failed rank after half a minute and leaves its processes behind where it is
ended itself. Here the scheduler is a child of rank 0 and ends with it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys

__all__ = ["MindSporeProcesses"]


class MindSporeProcesses:
    """Ranks of MindSpore's world group on the CPU, one thread each."""

    # Importing MindSpore starts threads: a process that has done so must not be forked.
    preload: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._scheduler: subprocess.Popen[bytes] | None = None

    def rendezvous(self, world_size: int) -> int:
        """Start the scheduler; returns its port."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        environment = {**os.environ, **_launcher_environment(world_size, port), "MS_ROLE": "MS_SCHED"}
        command = [sys.executable, "-m", "hyper_platform_ms.scheduler"]
        self._scheduler = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
        return port

    def environment(self, rank: int, world_size: int, address: int) -> None:
        """What MindSpore's launcher would set."""
        os.environ.update(_launcher_environment(world_size, address))
        os.environ.update(MS_ROLE="MS_WORKER", MS_NODE_ID=str(rank), RANK_ID=str(rank))
        import hyper_platform_ms
        from hyper_dtensor import set_platform

        set_platform(hyper_platform_ms.MindSporePlatform())

    def join(self, rank: int, world_size: int, address: int) -> None:
        """Join the world group."""
        from hyper_dtensor import get_platform

        self.environment(rank, world_size, address)
        get_platform().start("cpu")

    def reset(self) -> None:
        """Seed and gradient state of a fresh process."""
        import mindspore
        from mindspore.graph.api import _pynative_executor

        mindspore.set_seed(0)
        # An error in the middle of a gradient computation leaves it open.
        _pynative_executor.clear_res()
        _pynative_executor.set_grad_flag(False)

    def leave(self) -> None:
        """End the scheduler, which would complain of the ranks that leave."""
        if self._scheduler is not None:
            self._scheduler.kill()
            self._scheduler.wait()


def _launcher_environment(size: int, port: int) -> dict[str, str]:
    """What MindSpore's launcher would set for all processes."""
    return {
        "MS_SCHED_HOST": "127.0.0.1",
        "MS_SCHED_PORT": str(port),
        "MS_WORKER_NUM": str(size),
        "RANK_SIZE": str(size),
        "MS_TOPO_TIMEOUT": "60",
        "MS_RETRY_INTERVAL_LOWER": "0",
        "MS_RETRY_INTERVAL_UPPER": "1",
        "GLOG_v": "3",
        "OMP_NUM_THREADS": "1",
    }
