"""``implicit_replication``: inside it every plain tensor counts as Replicate (design section 3)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["implicit_replication", "is_implicit"]


class _State(threading.local):
    depth = 0


_state = _State()


@contextmanager
def implicit_replication() -> Iterator[None]:
    """Let plain tensors of any rank meet DTensors; each counts as Replicate on the operands' mesh.

    For masks, rotary tables and the like, which every rank computes alike. With ``HYPER_PARALLEL_DEBUG=1``
    the ranks compare the values.
    """
    _state.depth += 1
    try:
        yield
    finally:
        _state.depth -= 1


def is_implicit() -> bool:
    """Whether the calling thread is inside `implicit_replication`."""
    return _state.depth > 0
