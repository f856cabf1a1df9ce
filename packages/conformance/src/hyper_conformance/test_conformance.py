"""The test that pytest collects: one case, on the ranks of one world of one platform."""

from __future__ import annotations

from typing import Any

from hyper_conformance.case import Case
from hyper_conformance.run import check


def test_conformance(conformance_case: tuple[str, int, Case], conformance_ranks: Any) -> None:
    """The platform does what the case says."""
    address, size, case = conformance_case
    check(conformance_ranks(address, size), address, case)
