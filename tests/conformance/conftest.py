"""Marks: the conformance of a framework's platform starts processes. Here MindSpore runs on two ranks only.

Four ranks of MindSpore on two cores take minutes: ``pytest --pyargs hyper_conformance --platform mindspore`` has them.
"""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)  # before -m selects by mark
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = set()
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if "conformance_case" not in parameters:
            continue
        address, size, _ = parameters["conformance_case"]
        if "simulated" not in address:
            item.add_marker(pytest.mark.ranks)
        if "hyper_platform_ms" in address and size > 2 and not config.getoption("platform"):
            left_out.add(item)
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
