"""Fixtures and marks for all tests."""

from __future__ import annotations

import os

# Before anything starts a thread pool: tests run side by side, each on one thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.ms_ranks import MindSporeRankPool
    from tests.support.ranks import RankPool

# Set by .ci/core-tests, which runs a core package's tests where only what it declares is installed.
CORE_ONLY = os.environ.get("HYPER_PARALLEL_CORE_ONLY") == "1"
FRAMEWORKS = ("torch", "torch_npu", "mindspore")
# Packages of their own, with tests that run where they are installed: tests/workspace/test_samples.py.
collect_ignore = ["samples"]


def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuse to call a run "core only" where a framework could be imported unnoticed."""
    installed = [name for name in FRAMEWORKS if CORE_ONLY and importlib.util.find_spec(name) is not None]
    if installed:
        raise pytest.UsageError(f"HYPER_PARALLEL_CORE_ONLY=1, but {', '.join(installed)} can be imported")


@pytest.hookimpl(tryfirst=True)  # before -m selects by mark and pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what starts processes, and send all tests of one pool to one worker."""
    for item in items:
        for fixture in ("ranks4", "ranks2", "ms_ranks4", "ms_ranks2"):
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.ranks)
                item.add_marker(pytest.mark.xdist_group(fixture))
                break


@pytest.hookimpl(tryfirst=True)  # before its fixtures start anything
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test on ranks where no framework could start them: it would run in no stage of .ci/run."""
    if CORE_ONLY and item.get_closest_marker("ranks"):
        pytest.fail(
            "a test on ranks needs a framework: it belongs to the folder of an adapter", pytrace=False
        )


@pytest.fixture(scope="session")
def ranks2() -> Iterator[RankPool]:
    """Two ranks, started once."""
    from tests.support.ranks import RankPool  # on a framework, which the environments of the core lack

    with RankPool(2) as pool:
        yield pool


@pytest.fixture(scope="session")
def ranks4() -> Iterator[RankPool]:
    """Four ranks, started once."""
    from tests.support.ranks import RankPool  # on a framework, which the environments of the core lack

    with RankPool(4) as pool:
        yield pool


@pytest.fixture(scope="session")
def ms_ranks2() -> Iterator[MindSporeRankPool]:
    """Two ranks on MindSpore, started once."""
    from tests.support.ms_ranks import MindSporeRankPool  # as above

    with MindSporeRankPool(2) as pool:
        yield pool


@pytest.fixture(scope="session")
def ms_ranks4() -> Iterator[MindSporeRankPool]:
    """Four ranks on MindSpore, started once."""
    from tests.support.ms_ranks import MindSporeRankPool  # as above

    with MindSporeRankPool(4) as pool:
        yield pool
