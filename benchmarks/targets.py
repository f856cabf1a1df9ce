"""What the library promises, checked on the results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.case import Bound, Quantity, Result
from benchmarks.operator_cases import OPERATOR

__all__ = ["Target", "no_framework", "targets"]


@dataclass(frozen=True)
class Target:
    """A promise.

    Attributes:
        name: What is promised.
        value: What was measured.
        most: What it may be.
        worst: Where it was measured.
    """

    name: str
    value: float
    most: float
    worst: str

    @property
    def met(self) -> bool:
        """Whether it is kept."""
        return self.value <= self.most


def targets(results: Sequence[Result]) -> Iterator[Target]:
    """The promises that these results are about."""
    operators = [r for r in results if r.group == OPERATOR]
    if operators:
        # An overhead that noise made negative counts as a very small one.
        overheads = [max(_value(r, Quantity.OVERHEAD), 1e-3) for r in operators]
        mean = math.exp(math.fsum(map(math.log, overheads)) / len(overheads))
        yield Target(f"{OPERATOR}: overhead, geometric mean", mean, 0.5, f"{len(operators)} cases")
    bounded: dict[tuple[str, Bound], list[Result]] = {}
    for result in results:
        if result.bound is not None:
            bounded.setdefault((result.group, result.bound), []).append(result)
    for (group, bound), of_bound in bounded.items():
        yield _worst(f"{group}: {bound.quantity}, the largest", bound, of_bound)


def no_framework(frameworks: Sequence[str]) -> Target:
    """``import hyper_parallel`` imports no framework."""
    return Target(
        "import hyper_parallel: frameworks imported", len(frameworks), 0, ", ".join(frameworks) or "none"
    )


def _worst(name: str, bound: Bound, results: Sequence[Result]) -> Target:
    worst = max(results, key=lambda result: _value(result, bound.quantity))
    return Target(name, _value(worst, bound.quantity), bound.most, worst.name)


def _value(result: Result, quantity: Quantity) -> float:
    """The quantity; what could not be measured keeps no promise."""
    value = result.value(quantity)
    return math.inf if value is None else value
