"""Real processes as ranks: started once, then sent many calls.

Starting processes and importing a framework takes seconds, a call milliseconds. ``ProcessRanks`` therefore
keeps its processes and runs importable functions on all of them. A rank that raises fails the call within
seconds, with its own traceback, even where the other ranks wait for it in a collective.

This module knows no framework: how a process becomes a rank is a ``ProcessSetup``.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Protocol, Self

__all__ = ["ProcessRanks", "ProcessSetup", "RankError", "RankStatus"]

CALL_TIMEOUT = 60.0
START_TIMEOUT = 100.0
# How long the other ranks may take to finish after one has failed. Ranks that refuse alike do so within
# milliseconds of each other; one that is still busy after this waits in a collective for ever.
GRACE = 2.0
STOP = b""


class ProcessSetup(Protocol):
    """How a fresh process becomes a rank. An instance is pickled into each process.

    Attributes:
        preload: Modules that are imported once, in a server from which the ranks are forked: they start in a
            fraction of a second. Empty for a framework that starts threads when it is imported; then each
            rank is a fresh interpreter.
    """

    preload: tuple[str, ...]

    def rendezvous(self, world_size: int) -> Any:
        """On rank 0, before `join`: open the place where the ranks meet; returns its picklable address.

        Bind a port that the system picks, so that none can be taken meanwhile.
        """

    def join(self, rank: int, world_size: int, address: Any) -> None:
        """On every rank: the environment that a launcher would set, and the framework's process group."""

    def reset(self) -> None:
        """On every rank before each call: seeds and modes as in a fresh process."""

    def leave(self) -> None:
        """On every rank, at the end: leave the process group. The process may end in it."""


@dataclass(frozen=True)
class RankStatus:
    """What became of one rank in one call.

    Attributes:
        rank: Global rank.
        state: ``returned``, ``raised``, ``died`` or ``running`` (it had not finished when the call ended).
        value: What the function returned.
        type_names: Class names of the exception, its own first, then those of its bases.
        message: ``str()`` of the exception, or how the process ended.
        trace: The traceback as the rank itself would print it.
    """

    rank: int
    state: str
    value: Any = None
    type_names: tuple[str, ...] = ()
    message: str = ""
    trace: str = ""

    def __str__(self) -> str:
        if self.state == "raised":
            first_line = self.message.partition("\n")[0]
            return f"rank {self.rank}: raised {self.type_names[0]}: {first_line}"
        if self.state == "died":
            return f"rank {self.rank}: {self.message}"
        if self.state == "running":
            return f"rank {self.rank}: still running (in a collective that others never joined?)"
        return f"rank {self.rank}: returned"


class RankError(Exception):
    """A call in which not every rank returned; carries the first failure's traceback and all statuses."""

    def __init__(self, reason: str, statuses: tuple[RankStatus, ...], first: RankStatus | None) -> None:
        lines = [reason, *(f"  {status}" for status in statuses)]
        if first is not None and first.trace:
            lines += ["", f"traceback of rank {first.rank}:", first.trace]
        super().__init__("\n".join(lines))
        self.statuses = statuses
        self.first = first


class ProcessRanks:
    """``size`` processes, started at the first call and kept.

    Args:
        size: Number of ranks.
        setup: How a process becomes a rank.
    """

    def __init__(self, size: int, setup: ProcessSetup) -> None:
        self.size = size
        self._setup = setup
        self._processes: list[BaseProcess] = []
        self._connections: list[Connection] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the running ranks; empty before the first call and after a restart is due."""
        return tuple(process.pid for process in self._processes if process.pid is not None)

    def run(self, fn: Callable[..., Any], *args: Any, timeout: float = CALL_TIMEOUT) -> list[Any]:
        """Call ``fn(*args)`` on every rank and return the results, one per rank.

        Args:
            fn: A function at the top level of an importable module.
            *args: Picklable arguments, the same for every rank.
            timeout: Seconds after which ranks that have not finished are ended.

        Raises:
            RankError: If a rank raised or died, at most ``GRACE`` seconds after it did, or on time-out.
            ValueError: If ``fn`` cannot be found by name in another process.
        """
        statuses, first = self._call(fn, args, timeout)
        if all(status.state == "returned" for status in statuses):
            return [status.value for status in statuses]
        name = f"{fn.__module__}.{fn.__qualname__}"
        if first is None:
            raise RankError(f"{name}: not finished after {timeout:g} s", statuses, None)
        what = f"raised {first.type_names[0]}: {first.message}" if first.state == "raised" else first.message
        raise RankError(f"{name}: rank {first.rank} of {self.size} {what}", statuses, first)

    def run_expect(
        self, fn: Callable[..., Any], exception_type_name: str, *args: Any, timeout: float = CALL_TIMEOUT
    ) -> list[str]:
        """Call ``fn(*args)``, see **every** rank raise that exception, and return the messages.

        Args:
            fn: As for ``run``.
            exception_type_name: Name of the exception's class or of one of its bases.
            *args: As for ``run``.
            timeout: As for ``run``.

        Raises:
            RankError: If any rank did anything else.
        """
        statuses, first = self._call(fn, args, timeout)
        if not all(exception_type_name in status.type_names for status in statuses):
            reason = f"{fn.__module__}.{fn.__qualname__}: not every rank raised {exception_type_name}"
            raise RankError(reason, statuses, first)
        return [status.message for status in statuses]

    def close(self) -> None:
        """Let the ranks leave their process group and end; end by process id those that do not."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.send_bytes(STOP)
        deadline = time.monotonic() + GRACE
        for process in self._processes:
            process.join(max(0.0, deadline - time.monotonic()))
        self._kill()

    def _call(
        self, fn: Callable[..., Any], args: tuple[Any, ...], timeout: float
    ) -> tuple[tuple[RankStatus, ...], RankStatus | None]:
        """Run a call; return each rank's status and the first failure in time. The pool is usable after."""
        request = pickle.dumps((*_address(fn), args))
        if not all(process.is_alive() for process in self._processes):
            self._kill()
        if not self._processes:
            self._start()
        # Also for what the test runner raises from outside: its own time limit, Ctrl-C.
        with self._killed_on_error():
            for connection in self._connections:
                connection.send_bytes(request)
            finished = list(self._replies(timeout))
        by_rank = {status.rank: status for status in finished}
        statuses = tuple(by_rank.get(rank, RankStatus(rank, "running")) for rank in range(self.size))
        # Ranks that ended alike have issued the same collectives; others may be out of step for ever.
        if len({(status.state, status.type_names) for status in statuses}) != 1 or not finished:
            self._kill()
        return statuses, next((status for status in finished if status.state != "returned"), None)

    def _replies(self, timeout: float) -> Iterator[RankStatus]:
        """Yield statuses as ranks finish, until all did, time is over, or ``GRACE`` after a failure."""
        waiting = dict(zip(self._connections, range(self.size), strict=True))
        deadline = time.monotonic() + timeout
        while waiting:
            ready = wait(list(waiting), max(0.0, deadline - time.monotonic()))
            if not ready:
                return
            for connection in ready:
                assert isinstance(connection, Connection)
                status = self._reply(connection, waiting.pop(connection))
                if status.state != "returned":
                    deadline = min(deadline, time.monotonic() + GRACE)
                yield status

    def _reply(self, connection: Connection, rank: int) -> RankStatus:
        try:
            reply = connection.recv_bytes()
        except (EOFError, OSError):
            process = self._processes[rank]
            process.join(GRACE)
            return RankStatus(rank, "died", message=f"died with exit code {process.exitcode}")
        status = pickle.loads(reply)
        assert isinstance(status, RankStatus)
        return status

    def _start(self) -> None:
        context: Any = multiprocessing.get_context("forkserver" if self._setup.preload else "spawn")
        if self._setup.preload:
            # pytest: its assertion rewriting is slow to import, and cases in test files need it.
            context.set_forkserver_preload([*self._setup.preload, "pytest"])
        environment = dict(os.environ)  # the server keeps the one it was started with
        with self._killed_on_error():
            for rank in range(self.size):
                ours, theirs = context.Pipe()
                arguments = (rank, self.size, self._setup, environment, theirs)
                process = context.Process(target=_serve, args=arguments, daemon=True)
                process.start()
                theirs.close()  # else its end would not be seen when the process dies
                self._processes.append(process)
                self._connections.append(ours)
            address = self._receive(0, time.monotonic() + START_TIMEOUT)
            for connection in self._connections[1:]:
                connection.send(address)
            deadline = time.monotonic() + START_TIMEOUT
            for rank in range(self.size):
                self._receive(rank, deadline)

    def _receive(self, rank: int, deadline: float) -> Any:
        connection = self._connections[rank]
        if not connection.poll(max(0.0, deadline - time.monotonic())):
            raise RankError(f"rank {rank} did not start within {START_TIMEOUT:g} s", (), None)
        try:
            return connection.recv()
        except EOFError:
            self._processes[rank].join(GRACE)
            code = self._processes[rank].exitcode
            raise RankError(f"rank {rank} died while starting, with exit code {code}", (), None) from None

    @contextlib.contextmanager
    def _killed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._kill()
            raise

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
            process.close()
        for connection in self._connections:
            connection.close()
        self._processes, self._connections = [], []


def _address(fn: Callable[..., Any]) -> tuple[str, str]:
    """Module and qualified name of ``fn``; refuses what another process could not find."""
    found: Any = sys.modules.get(fn.__module__)
    for name in fn.__qualname__.split("."):
        found = getattr(found, name, None)
    if found is not fn:
        raise ValueError(
            f"{fn.__qualname__} of {fn.__module__} cannot be found by name in another process: "
            "define it at the top level of its module and pass what it needs as arguments"
        )
    return fn.__module__, fn.__qualname__


# ---------------------------------------------------------------------------------------------------------
# In the rank
# ---------------------------------------------------------------------------------------------------------
def _serve(
    rank: int, size: int, setup: ProcessSetup, environment: dict[str, str], connection: Connection
) -> None:
    """A rank's whole life: join the others, answer calls, leave when told to."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.clear()
    os.environ.update(environment)
    if rank == 0:
        address = setup.rendezvous(size)
        connection.send(address)
    else:
        address = connection.recv()
    setup.join(rank, size, address)
    connection.send("ready")
    while (request := connection.recv_bytes()) != STOP:
        setup.reset()  # cases must not depend on those before them
        # A fresh context: what a case sets in context variables ends with it.
        reply = contextvars.copy_context().run(_answer, rank, request)
        connection.send_bytes(reply)
    setup.leave()


def _end_with_parent() -> None:
    """End this rank when the parent is gone, whatever the rank waits for."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _answer(rank: int, request: bytes) -> bytes:
    """Run one call and pickle its status. By value: sharing memory with the parent outlives neither."""
    try:
        module, qualname, args = pickle.loads(request)
        fn: Any = importlib.import_module(module)
        for name in qualname.split("."):
            fn = getattr(fn, name)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # as in the test runner's own process
            return pickle.dumps(RankStatus(rank, "returned", value=fn(*args)))
    except BaseException as error:
        names = tuple(kind.__name__ for kind in type(error).__mro__)
        trace = traceback.format_exc()
        return pickle.dumps(RankStatus(rank, "raised", type_names=names, message=str(error), trace=trace))
