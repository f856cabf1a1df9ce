"""Runs functions in processes of their own, and ends all of them as soon as one fails."""

import multiprocessing
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Lock
from typing import Any

Say = Callable[[Any], None]


@dataclass(frozen=True)
class Job:
    """A function for a process of its own.

    Attributes:
        name: What the process is called in messages and errors.
        function: Picklable; is given a function that sends a message to the process that started the job.
        environment: Variables to set before.
        background: Whether it says nothing, and is ended when the others have ended.
    """

    name: str
    function: Callable[[Say], None]
    environment: Mapping[str, str] = field(default_factory=dict)
    background: bool = False


class JobFailedError(RuntimeError):
    """A job raised, its traceback is the text; or its process was killed."""


def rank_environments(ranks: int) -> list[dict[str, str]]:
    """Returns for each rank the variables that `torchrun` would set on one machine, with a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    return [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]


def run_jobs(jobs: Sequence[Job]) -> Iterator[tuple[str, Any]]:
    """Runs all jobs at the same time, and yields (name of the job, message) until all have ended.

    Raises:
        JobFailedError: When the first job fails; the others, which may be waiting for it, are killed.
    """
    spawn = multiprocessing.get_context("spawn")
    reader, writer = spawn.Pipe(duplex=False)
    lock = spawn.Lock()
    processes = {
        job.name: spawn.Process(
            target=_work, args=(job, None if job.background else writer, lock), daemon=True
        )
        for job in jobs
    }
    started = []
    try:
        for process in processes.values():
            process.start()
            started.append(process)
        writer.close()  # the jobs hold the other copies: the stream ends with the last job
        yield from _listen(reader, processes)
    finally:
        for process in started:
            process.kill()
            process.join()


@dataclass(frozen=True)
class _Failure:
    text: str


def _work(job: Job, writer: Connection | None, lock: Lock) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then kills this process
    os.environ.update(job.environment)

    def say(message: Any) -> None:
        if writer is None:
            return
        with lock:
            writer.send((job.name, message))

    try:
        job.function(say)
    except BaseException:
        # Said before this process lets go of its connections, so before any rank that misses it can fail.
        say(_Failure(traceback.format_exc()))
        sys.exit(1)


def _listen(reader: Connection, processes: Mapping[str, SpawnProcess]) -> Iterator[tuple[str, Any]]:
    while True:
        arrived = reader.poll(0.1)
        for name, process in processes.items():
            if process.exitcode is not None and process.exitcode < 0:  # it could not say why
                raise JobFailedError(f"{name} was killed by signal {-process.exitcode}")
        if not arrived:
            continue
        try:
            name, message = reader.recv()
        except EOFError:
            return
        if isinstance(message, _Failure):
            raise JobFailedError(f"{name} failed:\n{message.text}")
        yield name, message
