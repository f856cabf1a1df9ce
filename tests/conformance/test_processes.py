"""A process becomes a rank as its setup says, without any framework."""

from __future__ import annotations

import os

from hyper_conformance import ProcessRanks


class Alone:
    """Ranks without a process group, as fresh interpreters."""

    preload: tuple[str, ...] = ()

    def rendezvous(self, world_size: int) -> str:
        return f"a place for {world_size}"

    def join(self, rank: int, world_size: int, address: str) -> None:
        os.environ.update(RANK=str(rank), ADDRESS=address)

    def reset(self) -> None:
        os.environ["CALLS"] = str(int(os.environ.get("CALLS", "0")) + 1)

    def leave(self) -> None:
        pass


def where_am_i() -> tuple[str, str, str]:
    return os.environ["RANK"], os.environ["ADDRESS"], os.environ["CALLS"]


def test_a_setup_says_how_a_process_becomes_a_rank() -> None:
    with ProcessRanks(2, Alone()) as ranks:
        for call in ("1", "2"):
            places = [(str(rank), "a place for 2", call) for rank in range(2)]
            assert ranks.run(where_am_i) == places
