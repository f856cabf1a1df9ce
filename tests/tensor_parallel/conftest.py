"""Every test of hyper_tensor_parallel runs on the simulated platform."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import simulated as sim


@pytest.fixture(autouse=True)
def platform() -> Iterator[sim.SimulatedPlatform]:
    with sim.simulated_platform() as platform:
        yield platform
