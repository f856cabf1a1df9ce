"""Running a case on a rank."""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Mapping

from hyper_conformance.case import CASES, Case
from hyper_conformance.harness import Harness, Ranks, find_harness
from hyper_conformance.here import Here
from hyper_dtensor import get_platform

__all__ = ["check", "load_cases", "run_case"]

FAILURE_SECONDS = 20.0
"""How soon a run must have failed after a rank did."""

# In the order in which an adapter is written.
CHAPTERS = (
    "processes",
    "tensors",
    "local_ops",
    "collectives",
    "creation",
    "failures",
    "autograd",
    "pairs",
    "redistribution",
    "gradient_states",
    "operators",
    "random",
    "modules",
    "hooks",
    "parameters",
    "styles",
)


@functools.cache
def load_cases() -> Mapping[str, Case]:
    """All cases by name."""
    for chapter in CHAPTERS:
        importlib.import_module(f"hyper_conformance.cases.{chapter}")
    return CASES


def check(ranks: Ranks, address: str, case: Case) -> None:
    """Run a case on running ranks and judge it.

    Args:
        ranks: The ranks of one world.
        address: ``module:Class`` of the harness.
        case: The case.

    Raises:
        Exception: If the platform does not do what the case says.
    """
    if case.fails is None:
        ranks.run(run_case, address, case.name)
        return
    start = time.monotonic()
    try:
        ranks.run(run_case, address, case.name)
    except Exception as error:
        assert case.fails in str(error), f"the error of the ranks does not say {case.fails!r}: {error}"
    else:
        raise AssertionError("the ranks raised, and the run did not fail")
    seconds = time.monotonic() - start
    assert seconds < FAILURE_SECONDS, f"the run failed {seconds:.0f} s after its ranks"
    ranks.run(run_case, address, "failures.the_next_call_is_in_step")


@functools.cache
def _harness(address: str) -> Harness:
    return find_harness(address)


def run_case(address: str, name: str) -> None:
    """Run one case on this rank.

    Args:
        address: ``module:Class`` of the harness.
        name: Name of the case.

    Raises:
        RuntimeError: If this process has chosen another platform.
        NotImplementedError: If the harness lacks a method that the case needs.
        Exception: What the case raises.
    """
    harness, platform = _harness(address), get_platform()
    if platform.name != harness.name:
        raise RuntimeError(
            f"the harness {address} describes platform {harness.name!r}, but this rank uses "
            f"{platform.name!r}: call hyper_dtensor.set_platform in join()"
        )
    found = load_cases()[name]
    try:
        found.body(Here(platform, harness), *found.arguments)
    except AttributeError as error:
        if error.obj is not harness:
            raise
        raise NotImplementedError(
            f"the harness {address} has no {error.name!r}, which {name} needs (milestone {found.milestone}): "
            "hyper_conformance.Harness says what it does"
        ) from error
