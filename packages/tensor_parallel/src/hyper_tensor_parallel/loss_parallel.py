"""``loss_parallel``: kept for source compatibility; vocabulary-parallel losses need no switch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["loss_parallel"]


@contextmanager
def loss_parallel() -> Iterator[None]:
    """A context in which ``cross_entropy`` accepts logits split along the classes, as it does everywhere.

    In ``torch.distributed.tensor.parallel`` this context exchanges the loss; here the operator's own rule
    handles ``Shard(-1)`` logits, with the gradient of the single-device loss.
    """
    yield
