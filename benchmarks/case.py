"""A case of the benchmark, and what came out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.timing import Sample, Side

__all__ = ["Bound", "Case", "Quantity", "Result"]

PLAIN, TORCH, OURS = "plain", "torch DTensor", "ours"


class Quantity(StrEnum):
    """What a bound is about."""

    OVERHEAD = "overhead"
    OVER_TORCH = "ours/torch"
    OVER_PLAIN = "ours/plain"


@dataclass(frozen=True)
class Bound:
    """The most that a quantity may be."""

    quantity: Quantity
    most: float


@dataclass(frozen=True)
class Case:
    """Something to time.

    Attributes:
        group: The part of the report.
        name: The row.
        sides: What to time, by library.
        bound: What is promised, if anything.
        grad: Whether gradients are on.
        one_call: Calls are timed one by one, because each needs a preparation that is not timed.
        warm: Before each timed slice the same side makes a call that is not timed, as the step before does in
            a training loop: what another library pushed out of the processor's caches is back.
        once: Only the very first call is timed.
        note: What to know about the row.
    """

    group: str
    name: str
    sides: Mapping[str, Side]
    bound: Bound | None = None
    grad: bool = True
    one_call: bool = False
    warm: bool = False
    once: bool = False
    note: str = ""


@dataclass(frozen=True)
class Result:
    """The samples of a case, by library."""

    group: str
    name: str
    samples: Mapping[str, Sample]
    bound: Bound | None = None
    note: str = ""

    @property
    def overhead(self) -> float | None:
        """Our overhead over plain tensors, as a part of that of torch DTensor."""
        if not {PLAIN, TORCH, OURS} <= self.samples.keys():
            return None
        plain, torch, ours = (self.samples[name].median for name in (PLAIN, TORCH, OURS))
        return (ours - plain) / (torch - plain) if torch > plain else None

    def value(self, quantity: Quantity) -> float | None:
        """A quantity of this result; ``None`` if a side is missing."""
        if quantity is Quantity.OVERHEAD:
            return self.overhead
        over = self.samples.get(TORCH if quantity is Quantity.OVER_TORCH else PLAIN)
        ours = self.samples.get(OURS)
        return None if over is None or ours is None else ours.median / over.median

    @property
    def met(self) -> bool | None:
        """Whether the bound holds; ``None`` without a bound."""
        if self.bound is None:
            return None
        value = self.value(self.bound.quantity)
        return value is not None and value <= self.bound.most
