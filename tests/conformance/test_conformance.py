"""The conformance suite on the platforms at hand.

The cases and their judgement are those of the package, which the suite's own command runs as well:
``pytest --pyargs hyper_conformance --platform torch``.
"""

from __future__ import annotations

import importlib.util

from hyper_conformance.test_conformance import test_conformance as test_conformance

SIMULATED = "tests.support.simulated.harness:SimulatedHarness"
PLATFORMS = [SIMULATED]
if importlib.util.find_spec("hyper_platform_torch") is not None:
    PLATFORMS.append("torch")
