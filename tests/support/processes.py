"""What tests ask of processes."""

from __future__ import annotations

import os

__all__ = ["is_alive"]


def is_alive(pid: int) -> bool:
    """Whether there is a process of this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
