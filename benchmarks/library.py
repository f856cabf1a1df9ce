"""What a side of the benchmark supplies, whatever the framework, and the operands that are made of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from benchmarks.timing import Call

__all__ = ["VOCABULARY", "Library", "Maker", "Operator"]

VOCABULARY = 32


class Library(Protocol):
    """Makes tensors of one library.

    Attributes:
        name: The column of the report.
        ranks: The factor between the local and the global size of a sharded dim.
    """

    name: str
    ranks: int

    def wrap(self, local: Any, shard: int | None) -> Any:
        """The tensor whose local part is ``local``: split along the dim ``shard``, or whole on every rank."""

    def leaf(self, shape: tuple[int, ...], shard: int | None, *, grad: bool, weight: bool) -> Any:
        """A tensor of random numbers whose local part has ``shape``; a weight is one as layers hold it."""

    def ids(self, shape: tuple[int, ...], high: int) -> Any:
        """Integers below ``high``, the same on every rank."""


@dataclass(frozen=True)
class Maker:
    """Makes the operands of one call.

    Attributes:
        library: Whose tensors they are.
        rows: Local size.
        cols: Local size; a multiple of 4.
        grad: Whether floating operands need gradients.
    """

    library: Library
    rows: int = 16
    cols: int = 16
    grad: bool = False

    def tensor(self, *shape: int, shard: int | None) -> Any:
        """A leaf whose local part has ``shape``."""
        return self.library.leaf(shape, shard, grad=self.grad, weight=False)

    def weight(self, *shape: int, shard: int | None) -> Any:
        """The same as layers hold it."""
        return self.library.leaf(shape, shard, grad=self.grad, weight=True)

    def ids(self, *shape: int) -> Any:
        """Token ids, the same on every rank."""
        return self.library.ids(shape, VOCABULARY)


Operator: TypeAlias = Callable[[Maker], Call]
