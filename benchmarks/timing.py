"""Times several sides of one case in turn, in many short rounds."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Call", "Pace", "Sample", "Side", "measure", "measure_once", "summarize"]

Call: TypeAlias = Callable[[], object]
Side: TypeAlias = Callable[[int], Iterable[Call]]
"""Returns so many calls, ready to be made; what it does itself is not timed."""


@dataclass(frozen=True)
class Pace:
    """How long to measure.

    Attributes:
        rounds: Rounds of one case.
        slice_seconds: Duration of one side in one round; it makes as many calls as fit. Shorter than the time
            slices of an operating system, so that most rounds are not interrupted.
        case_seconds: Where the rounds of a case would take longer, there are fewer of them.
    """

    rounds: int = 300
    slice_seconds: float = 300e-6
    case_seconds: float = 5.0


@dataclass(frozen=True)
class Sample:
    """Microseconds per call over the rounds: the median and the range that holds 80 percent of them."""

    median: float
    p10: float
    p90: float
    rounds: int


MIN_ROUNDS = 5
MAX_SINGLE_CALLS = 100
WARM_UP_CALLS = 6


def summarize(seconds: Sequence[float]) -> Sample:
    """The sample of these durations of one call."""
    ordered = sorted(second * 1e6 for second in seconds)
    last = len(ordered) - 1
    return Sample(
        statistics.median(ordered), ordered[round(0.1 * last)], ordered[round(0.9 * last)], len(ordered)
    )


def measure(
    sides: Mapping[str, Side], pace: Pace, *, one_call: bool = False, warm: bool = False
) -> dict[str, Sample]:
    """Times all sides in turn, beginning with another one in each round.

    Args:
        sides: What to time, by name.
        pace: How long.
        one_call: Each round makes a single call per side, because calls differ from those that follow.
        warm: Each side makes a call that is not timed first.

    Returns:
        One sample per side. The garbage collector does not run meanwhile.
    """
    names = list(sides)
    durations: dict[str, list[float]] = {name: [] for name in names}
    gc.collect()
    gc.disable()
    try:
        estimates = {name: _estimate(side) for name, side in sides.items()}
        counts = {
            name: 1 if one_call else max(1, round(pace.slice_seconds / estimates[name])) for name in names
        }
        round_seconds = sum((counts[name] + warm) * estimates[name] for name in names)
        most = min(pace.rounds, MAX_SINGLE_CALLS) if one_call else pace.rounds
        rounds = max(MIN_ROUNDS, min(most, int(pace.case_seconds / round_seconds)))
        for number in range(rounds):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                if warm:
                    _time(sides[name], 1)
                durations[name].append(_time(sides[name], counts[name]))
    finally:
        gc.enable()
    return {name: summarize(durations[name]) for name in names}


def measure_once(sides: Mapping[str, Side]) -> dict[str, Sample]:
    """Times the very first call of each side."""
    gc.collect()
    gc.disable()
    try:
        return {name: summarize([_time(side, 1)]) for name, side in sides.items()}
    finally:
        gc.enable()


def _estimate(side: Side) -> float:
    """Seconds per call, after calls that fill caches."""
    return min(_time(side, 1) for _ in range(WARM_UP_CALLS))


def _time(side: Side, count: int) -> float:
    """Seconds per call."""
    calls = side(count)
    clock = time.perf_counter
    started = clock()
    for call in calls:
        call()
    return (clock() - started) / count
