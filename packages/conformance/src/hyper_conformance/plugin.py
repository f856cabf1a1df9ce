"""The pytest plugin: ``pytest --pyargs hyper_conformance --platform NAME [--milestone N]``."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import pytest

from hyper_conformance.case import MILESTONES, Case
from hyper_conformance.harness import Harness, Ranks, find_harness, harness_address, launch
from hyper_conformance.report import PROPERTY, Outcome, summary
from hyper_conformance.run import load_cases

__all__ = ["cases_of", "skip_of"]

NEEDS_PLATFORM = "conformance_case"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The two options."""
    group = parser.getgroup("hyper_conformance", "conformance of platform adapters")
    group.addoption(
        "--platform",
        action="append",
        default=[],
        metavar="NAME",
        help="the platform to test: the name of an installed harness, or module:Class of one. Repeatable.",
    )
    group.addoption(
        "--milestone",
        type=int,
        choices=sorted(MILESTONES),
        help="only the cases of this milestone: "
        + "; ".join(f"{number} = {what}" for number, what in MILESTONES.items()),
    )


def cases_of(harness: Harness, milestone: int | None = None) -> list[Case]:
    """The cases that apply to a platform."""
    return [
        case
        for case in load_cases().values()
        if case.milestone == (milestone or case.milestone)
        and (case.dtype is None or case.dtype in harness.dtypes)
    ]


def skip_of(harness: Harness, case: Case) -> tuple[str, str] | None:
    """Kind and reason, if the platform's table leaves the case out."""
    for pattern, entry in harness.skips.items():
        if fnmatchcase(case.name, _literal_brackets(pattern)):
            return entry
    return None


def _literal_brackets(pattern: str) -> str:
    """The variant of a case stands in brackets, which ``fnmatch`` would read as a set of characters."""
    return pattern.replace("[", "[[]")


def check_skips(harness: Harness) -> None:
    """Refuse a table of skips that names no case.

    Raises:
        pytest.UsageError: Names the patterns.
    """
    names = [case.name for case in cases_of(harness)]
    idle = [p for p in harness.skips if not any(fnmatchcase(name, _literal_brackets(p)) for name in names)]
    if idle:
        raise pytest.UsageError(f"skips of {harness.name} that name no case of it: {', '.join(idle)}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per platform, world size and case.

    The platforms are those of the command line, or those that the test's module lists as ``PLATFORMS``.
    """
    if NEEDS_PLATFORM not in metafunc.fixturenames:
        return
    platforms = metafunc.config.getoption("platform") or getattr(metafunc.module, "PLATFORMS", [])
    if not platforms:
        raise pytest.UsageError(
            "which platform? pytest --pyargs hyper_conformance --platform NAME (an installed harness, or "
            "module:Class of one)"
        )
    parameters = []
    for platform in platforms:
        try:
            address = harness_address(platform)
            harness = find_harness(address)
        except (ValueError, ImportError, AttributeError) as error:
            raise pytest.UsageError(f"--platform {platform}: {error}") from error
        check_skips(harness)
        for case in cases_of(harness, metafunc.config.getoption("milestone")):
            skip = skip_of(harness, case)
            marks = [pytest.mark.skip(reason=": ".join(skip))] if skip else []
            if metafunc.config.pluginmanager.hasplugin("xdist"):
                # One worker runs all cases of a platform, so that its ranks are started once.
                marks.append(pytest.mark.xdist_group(f"conformance of {harness.name}"))
            for size in case.ranks:
                name = f"{harness.name}-{size}-{case.name}"
                parameters.append(pytest.param((address, size, case), id=name, marks=marks))
    metafunc.parametrize(NEEDS_PLATFORM, parameters, scope="function")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Note platform, case and reason where the report finds them, on whichever process it is written."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    if NEEDS_PLATFORM in parameters:
        address, size, case = parameters[NEEDS_PLATFORM]
        harness = _harness(address)
        skip = skip_of(harness, case) or ("", "")
        outcome = Outcome(harness.name, case.milestone, case.name, size, *skip)
        item.user_properties.append((PROPERTY, outcome.as_list()))


@functools.cache
def _harness(address: str) -> Harness:
    return find_harness(address)


@pytest.fixture(scope="session")
def conformance_ranks() -> Iterator[Any]:
    """``ranks(address, size)``: started at the first call, kept until the end of the session."""
    running: dict[tuple[str, int], Ranks] = {}

    def ranks(address: str, size: int) -> Ranks:
        if (address, size) not in running:
            running[address, size] = launch(_harness(address), size)
        return running[address, size]

    yield ranks
    for started in running.values():
        started.close()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What passed per milestone, and the table of skips."""
    outcomes = [
        (kind, Outcome(*value))
        for kind in ("passed", "failed", "error", "skipped")
        for report in terminalreporter.stats.get(kind, [])
        for name, value in getattr(report, "user_properties", [])
        if name == PROPERTY
    ]
    if outcomes:
        terminalreporter.section("conformance")
        for line in summary(outcomes):
            terminalreporter.write_line(line)
