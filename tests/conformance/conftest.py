"""Marks: the conformance of a framework's platform starts processes.

Starting four ranks of MindSpore takes long, and the chapter of failures starts them once more; failures are seen on
two ranks. ``pytest --pyargs hyper_conformance --platform mindspore`` has all of it.
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
        address, size, case = parameters["conformance_case"]
        if "simulated" not in address:
            item.add_marker(pytest.mark.ranks)
        again = "hyper_platform_ms" in address and size > 2 and case.name.startswith("failures.")
        if again and not config.getoption("platform"):
            left_out.add(item)
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
