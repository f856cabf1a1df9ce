"""The framework's processes: a hub on rank 0, to which every rank is connected.

There is one way to talk: all members of a group give a value and get those of all. A real framework has collectives,
which send less.
"""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener, wait
from typing import Any, cast

__all__ = ["World", "open_hub"]

Address = tuple[Any, bytes]
Group = tuple[int, ...]


def open_hub(size: int) -> Address:
    """Start the hub in a thread of this process; returns where it listens, and the key to it."""
    key = secrets.token_bytes(16)
    listener = Listener(("127.0.0.1", 0), backlog=size, authkey=key)
    threading.Thread(target=_serve, args=(listener, size), daemon=True).start()
    return listener.address, key


def _serve(listener: Listener, size: int) -> None:
    ranks = [listener.accept() for _ in range(size)]
    meetings: dict[Group, dict[int, tuple[Connection, Any]]] = {}
    while ranks:
        for ready in wait(ranks):
            connection = cast(Connection, ready)
            try:
                group, rank, value = connection.recv()
            except (EOFError, OSError):  # it has left
                ranks.remove(connection)
                continue
            # A rank waits for the answer, so that it is in one meeting of a group at a time.
            met = meetings.setdefault(group, {})
            met[rank] = connection, value
            if len(met) == len(group):
                del meetings[group]
                for other, _ in met.values():
                    other.send([met[member][1] for member in group])
    listener.close()


@dataclass
class World:
    """This process among the others.

    Args:
        rank: Its number.
        size: How many there are.
        address: What `open_hub` returned; none for a process that is alone.
    """

    rank: int = 0
    size: int = 1
    address: Address | None = None

    def __post_init__(self) -> None:
        self._hub = None if self.address is None else Client(self.address[0], authkey=self.address[1])

    def exchange(self, value: Any, group: Group) -> list[Any]:
        """The picklable values of all members of the group, in its order; each a copy.

        Raises:
            RuntimeError: If this process is alone.
        """
        if self._hub is None:
            raise RuntimeError("this process has not joined any others")
        self._hub.send((group, self.rank, value))
        return cast(list[Any], self._hub.recv())

    def leave(self) -> None:
        """Close the connection."""
        if self._hub is not None:
            self._hub.close()
