"""Real processes for tests on MindSpore: a ``RankPool`` whose ranks join through MindSpore's scheduler.

The framework's launcher notices a failed rank after half a minute and leaves its processes behind where it is
ended itself. Here the ranks and the scheduler are started directly; they are sent many cases, fail within
seconds with their own traceback, and are ended by process id.
"""

from __future__ import annotations

import contextvars
import multiprocessing
import os
import signal
import socket
import threading
import time
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from tests.support.ranks import START_TIMEOUT, STOP, RankPool, answer, end_with_parent

__all__ = ["MindSporeRankPool"]


class MindSporeRankPool(RankPool):
    """``size`` processes in MindSpore's world group on CPU, started at the first call and kept.

    Args:
        size: Number of ranks.
        process_group: Whether the ranks join. Without it they only have what a launcher gives them.
    """

    def __init__(self, size: int, *, process_group: bool = True) -> None:
        super().__init__(size, process_group=process_group)
        self._scheduler: BaseProcess | None = None

    def _start(self) -> None:
        # Not forked from a server that has imported MindSpore: importing it starts threads.
        context = multiprocessing.get_context("spawn")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        common = {**os.environ, **_launcher_environment(self.size, port)}
        with self._killed_on_error():
            scheduler = context.Process(target=_schedule, args=(common,), daemon=True)
            scheduler.start()
            self._scheduler = scheduler
            for rank in range(self.size):
                own = {"MS_ROLE": "MS_WORKER", "MS_NODE_ID": str(rank), "RANK_ID": str(rank)}
                self._launch(context, _serve, rank, self._process_group, {**common, **own})
            deadline = time.monotonic() + START_TIMEOUT
            for rank in range(self.size):
                self._receive(rank, deadline)

    def _kill(self) -> None:
        super()._kill()
        if self._scheduler is not None:
            self._scheduler.kill()
            self._scheduler.join()
            self._scheduler.close()
            self._scheduler = None


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


# ---------------------------------------------------------------------------------------------------------
# In the processes
# ---------------------------------------------------------------------------------------------------------
def _enter(environment: dict[str, str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=end_with_parent, daemon=True).start()
    os.environ.clear()
    os.environ.update(environment)


def _schedule(environment: dict[str, str]) -> None:
    """The scheduler's whole life is inside of ``init``."""
    _enter({**environment, "MS_ROLE": "MS_SCHED"})
    import mindspore
    from mindspore.communication import init

    mindspore.set_device("CPU")
    init()


def _serve(rank: int, process_group: bool, environment: dict[str, str], connection: Connection) -> None:
    """A rank's whole life: join the others, answer calls, end when told to."""
    _enter(environment)
    import hyper_platform_ms
    from hyper_dtensor import set_platform

    platform = set_platform(hyper_platform_ms.MindSporePlatform())
    if process_group:
        platform.start("cpu")
    connection.send("ready")
    while (request := connection.recv_bytes()) != STOP:
        # A fresh context: what a case sets in context variables ends with it.
        connection.send_bytes(contextvars.copy_context().run(answer, rank, request, _reset))


def _reset() -> None:
    """Undo what a case may have left behind: cases must not depend on those before them."""
    import mindspore
    from mindspore.graph.api import _pynative_executor

    mindspore.set_seed(0)
    # An error in the middle of a gradient computation leaves it open.
    _pynative_executor.clear_res()
    _pynative_executor.set_grad_flag(False)
