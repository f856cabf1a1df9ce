"""Ranks as threads of one process, and the rendezvous at which their collectives meet."""

from __future__ import annotations

import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["BrokenRendezvousError", "World", "current_world", "errors_of", "run_ranks"]

TIMEOUT = 30.0


class BrokenRendezvousError(RuntimeError):
    """This rank waited for others that failed, ended, or went another way."""


@dataclass
class _Meeting:
    """One collective: who is there, with what."""

    values: dict[int, Any] = field(default_factory=dict)
    doing: dict[int, str] = field(default_factory=dict)
    left: int = 0


class World:
    """The ranks of one run.

    Args:
        size: Number of ranks.
        timeout: Seconds that a rank waits for others.
    """

    def __init__(self, size: int, timeout: float = TIMEOUT) -> None:
        self.size = size
        self.timeout = timeout
        self.started: set[str] = set()
        self.state: dict[int, dict[str, Any]] = {rank: {} for rank in range(size)}
        self._changed = threading.Condition()
        self._meetings: dict[tuple[tuple[int, ...], int], _Meeting] = {}
        self._calls: Counter[tuple[int, tuple[int, ...]]] = Counter()
        self._waiting: dict[int, tuple[tuple[int, ...], str]] = {}
        self._ended: set[int] = set()
        self._broken = ""

    def exchange(self, rank: int, ranks: tuple[int, ...], doing: str, value: Any) -> list[Any]:
        """Give ``value`` to all ``ranks`` and get theirs, in their order.

        Args:
            rank: The caller.
            ranks: The group; all of its ranks call this equally often, in the same order.
            doing: The collective with its arguments; must be equal on all ranks.
            value: What the others get.

        Raises:
            BrokenRendezvousError: If a rank of the world failed, the ranks do different things, all of them
                wait, or the time is up.
        """
        if rank not in ranks:
            raise RuntimeError(f"rank {rank} is not in the group {ranks}")
        deadline = time.monotonic() + self.timeout
        with self._changed:
            call = self._calls[rank, ranks]
            self._calls[rank, ranks] += 1
            meeting = self._meetings.setdefault((ranks, call), _Meeting())
            meeting.values[rank], meeting.doing[rank] = value, doing
            if len(set(meeting.doing.values())) > 1:
                self._break(f"the ranks do different things: {meeting.doing}")
            self._changed.notify_all()
            self._waiting[rank] = (ranks, doing)
            self._find_deadlock()
            while len(meeting.values) < len(ranks):
                if self._broken:
                    break
                if not self._changed.wait(deadline - time.monotonic()):
                    self._break(f"rank {rank} waited {self.timeout} s in {doing} of ranks {ranks}")
            del self._waiting[rank]
            if len(meeting.values) < len(ranks) or len(set(meeting.doing.values())) > 1:
                raise BrokenRendezvousError(f"rank {rank} in {doing}: {self._broken}")
            meeting.left += 1
            if meeting.left == len(ranks):
                del self._meetings[ranks, call]
            return [meeting.values[other] for other in ranks]

    def end(self, rank: int, error: BaseException | None) -> None:
        """``rank`` has returned or raised; whoever waits for it is told at once."""
        with self._changed:
            self._ended.add(rank)
            if error is not None and not isinstance(error, BrokenRendezvousError):
                text = "".join(traceback.format_exception_only(error)).strip()
                self._break(f"rank {rank} raised {text}")
            self._find_deadlock()

    def _break(self, why: str) -> None:
        self._broken = self._broken or why
        self._changed.notify_all()

    def _find_deadlock(self) -> None:
        """All ranks that have not returned wait, and none of their meetings is complete."""
        if not self._waiting or len(self._waiting) + len(self._ended) < self.size:
            return
        if not any(self._is_complete(rank) for rank in self._waiting):
            waits = {rank: f"{doing} of {ranks}" for rank, (ranks, doing) in sorted(self._waiting.items())}
            ended = f", ranks {sorted(self._ended)} have ended" if self._ended else ""
            self._break(f"every rank waits for another: {waits}{ended}")

    def _is_complete(self, rank: int) -> bool:
        ranks, _ = self._waiting[rank]
        meeting = self._meetings.get((ranks, self._calls[rank, ranks] - 1))
        return meeting is None or len(meeting.values) == len(ranks)


class _Here(threading.local):
    world: World | None = None
    rank: int = 0


_here = _Here()


def current_world() -> tuple[World | None, int]:
    """The world and the rank of the calling thread; ``(None, 0)`` outside of any run."""
    return _here.world, _here.rank


def _run(size: int, function: Callable[..., Any], args: tuple[Any, ...], timeout: float) -> list[Any]:
    """What each rank returned, or the exception that it raised."""
    from tests.support.simulated.platform import simulated_platform

    world = World(size, timeout)
    results: list[Any] = [BrokenRendezvousError("the rank did not end")] * size

    def rank_main(rank: int) -> None:
        _here.world, _here.rank = world, rank
        error: BaseException | None = None
        try:
            results[rank] = function(*args)
        except BaseException as raised:
            error = results[rank] = raised
        world.end(rank, error)

    with simulated_platform():
        threads = [threading.Thread(target=rank_main, args=(rank,), daemon=True) for rank in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout + 10)
    return results


def run_ranks(size: int, function: Callable[..., Any], *args: Any, timeout: float = TIMEOUT) -> list[Any]:
    """Run ``function(*args)`` on ``size`` ranks; returns what each rank returned.

    Raises:
        BaseException: What the first rank raised that was not just waiting for another one, with its own
            traceback and a note that says which ranks raised.
    """
    results = _run(size, function, args, timeout)
    errors = {rank: value for rank, value in enumerate(results) if isinstance(value, BaseException)}
    own = {rank: error for rank, error in errors.items() if not isinstance(error, BrokenRendezvousError)}
    if errors:
        rank, error = next(iter((own or errors).items()))
        error.add_note(f"raised on rank {rank}; ranks {sorted(errors)} failed")
        raise error
    return results


def errors_of(
    size: int, function: Callable[..., Any], *args: Any, timeout: float = TIMEOUT
) -> list[BaseException | None]:
    """The exception that each rank raised, None for one that returned."""
    results = _run(size, function, args, timeout)
    return [value if isinstance(value, BaseException) else None for value in results]
