"""Ranks as threads of one process, and the rendezvous at which their collectives meet.

One rank runs at a time, until it must wait for another: runs are deterministic, and a collective that can
never be complete is noticed the moment nobody can go on.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["BrokenRendezvousError", "World", "current_world", "errors_of", "rank", "run_ranks", "world_size"]

TIMEOUT = 60.0


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
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.started: set[str] = set()
        self.state: dict[int, dict[str, Any]] = {rank: {} for rank in range(size)}
        self.running = 0
        self._turns = [threading.Lock() for _ in range(size)]
        self._ready = deque(range(size))
        self._waiting: dict[int, str] = {}
        self._meetings: dict[tuple[tuple[int, ...], int], _Meeting] = {}
        self._calls: Counter[tuple[int, tuple[int, ...]]] = Counter()
        self._ended: dict[int, str] = {}
        self._broken = ""
        for turn in self._turns:
            turn.acquire()

    def exchange(self, rank: int, ranks: tuple[int, ...], doing: str, value: Any) -> list[Any]:
        """Give ``value`` to all ``ranks`` and get theirs, in their order.

        Args:
            rank: The caller.
            ranks: The group; all of its ranks call this equally often, in the same order.
            doing: The collective with its arguments; must be equal on all ranks.
            value: What the others get.

        Raises:
            BrokenRendezvousError: If a rank of the world failed, the ranks of the group do different things,
                or every rank waits for another.
        """
        if rank not in ranks:
            raise RuntimeError(f"rank {rank} is not in the group {ranks}")
        call = self._calls[rank, ranks]
        self._calls[rank, ranks] += 1
        meeting = self._meetings.setdefault((ranks, call), _Meeting())
        meeting.values[rank], meeting.doing[rank] = value, doing
        if len(set(meeting.doing.values())) > 1:
            self._break(f"the ranks do different things: {meeting.doing}")
        elif len(meeting.values) == len(ranks):
            for other in ranks:
                if self._waiting.pop(other, None) is not None:
                    self._ready.append(other)
        elif not self._broken:
            self._waiting[rank] = f"{doing} of ranks {ranks}"
            self._next_turn()
            self.wait_for_turn(rank)
        if len(meeting.values) < len(ranks) or len(set(meeting.doing.values())) > 1:
            raise BrokenRendezvousError(f"rank {rank} in {doing}: {self._broken}")
        meeting.left += 1
        if meeting.left == len(ranks):
            del self._meetings[ranks, call]
        return [meeting.values[other] for other in ranks]

    def start(self) -> None:
        """Let the first rank run."""
        self._next_turn()

    def wait_for_turn(self, rank: int) -> None:
        """Block the calling thread until ``rank`` may run."""
        self._turns[rank].acquire()
        self.running = rank

    def end(self, rank: int, error: BaseException | None) -> None:
        """``rank`` has returned or raised. Whoever waits for it is told once nobody else can come."""
        if error is None:
            self._ended[rank] = "returned"
        elif not isinstance(error, BrokenRendezvousError):
            self._ended[rank] = "raised " + "".join(traceback.format_exception_only(error)).strip()
        self._next_turn()

    def _next_turn(self) -> None:
        if not self._ready and self._waiting:
            waiting = [f"rank {rank} waits in {doing}" for rank, doing in sorted(self._waiting.items())]
            ended = [f"rank {rank} {how}" for rank, how in sorted(self._ended.items())]
            self._break("; ".join([*ended, *waiting]))
        if self._ready:
            self._turns[self._ready.popleft()].release()

    def _break(self, why: str) -> None:
        """No collective that is not complete by now will ever be."""
        self._broken = self._broken or why
        self._ready.extend(self._waiting)
        self._waiting.clear()


class _Here(threading.local):
    world: World | None = None
    rank: int = 0


_here = _Here()


def current_world() -> tuple[World | None, int]:
    """The world and the rank of the calling thread; ``(None, 0)`` outside of any run."""
    return _here.world, _here.rank


def rank() -> int:
    """The rank of the calling thread; 0 outside of any run."""
    return _here.rank


def world_size() -> int:
    """The number of ranks of this run; 1 outside of any."""
    return 1 if _here.world is None else _here.world.size


def _run(size: int, function: Callable[..., Any], args: tuple[Any, ...], timeout: float) -> list[Any]:
    """What each rank returned, or the exception that it raised."""
    from tests.support.simulated.platform import simulated_platform

    world = World(size)
    results: list[Any] = [None] * size

    def rank_main(rank: int) -> None:
        _here.world, _here.rank = world, rank
        world.wait_for_turn(rank)
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
        world.start()
        deadline = time.monotonic() + timeout
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            frame = sys._current_frames().get(threads[world.running].ident or 0)
            where = "".join(traceback.format_stack(frame)[-3:]) if frame else ""
            raise TimeoutError(f"rank {world.running} still runs after {timeout} s, in\n{where}")
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
