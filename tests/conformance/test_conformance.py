"""The conformance suite on the simulated platform and on every adapter that is installed with a harness.

The cases and their judgement are those of the package, which the suite's own command runs as well:
``pytest --pyargs hyper_conformance --platform torch``.
"""

from __future__ import annotations

from importlib.metadata import entry_points

from hyper_conformance.harness import ENTRY_POINT_GROUP
from hyper_conformance.test_conformance import test_conformance as test_conformance

SIMULATED = "tests.support.simulated.harness:SimulatedHarness"
PLATFORMS = [SIMULATED, *sorted(point.name for point in entry_points(group=ENTRY_POINT_GROUP))]
