"""Every test of hyper_dispatch runs on the simulated platform, with a registry of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hyper_dispatch import OpDispatcher, registry
from tests.support import simulated as sim


@pytest.fixture(autouse=True)
def platform() -> Iterator[sim.SimulatedPlatform]:
    with sim.simulated_platform() as platform:
        yield platform


@pytest.fixture(autouse=True)
def empty_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """No operation, no strategy, and no extension to load."""
    for table in ("_strategies", "_ops", "_local", "_origin"):
        monkeypatch.setattr(registry, table, {})
    monkeypatch.setattr(registry, "_extended", True)


@pytest.fixture
def dispatcher() -> OpDispatcher:
    """A dispatcher with an empty cache."""
    return OpDispatcher()
