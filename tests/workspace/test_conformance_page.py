"""The page of all cases, with the table of what each platform leaves out, is the generated one."""

from __future__ import annotations

from pathlib import Path

from hyper_conformance import find_harness
from hyper_conformance.report import page

PLATFORMS = ["torch", "mindspore", "tests.support.simulated.harness:SimulatedHarness"]


def test_the_page_is_not_stale() -> None:
    documented = Path(__file__).parents[2] / "docs" / "conformance.md"
    command = f"python -m hyper_conformance {' '.join(PLATFORMS)} > docs/conformance.md"
    assert documented.read_text() == page([find_harness(name) for name in PLATFORMS]), f"run: {command}"
