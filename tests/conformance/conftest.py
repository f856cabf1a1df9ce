"""Marks: the conformance of a framework's platform starts processes."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)  # before -m selects by mark
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if "conformance_case" in parameters and "simulated" not in parameters["conformance_case"][0]:
            item.add_marker(pytest.mark.ranks)
