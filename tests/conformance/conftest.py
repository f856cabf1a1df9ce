"""Marks: the conformance of a framework's platform starts processes. Here MindSpore runs a part of it on four ranks.

Left out are the chapter of failures, which would start the ranks once more and is seen on two, and three of five
sources of redistributions on two axes, which take half of the time.
``pytest --pyargs hyper_conformance --platform mindspore`` has all of it.
"""

from __future__ import annotations

import pytest

ON_TWO_AXES = "redistribution.on_two_axes["


@pytest.hookimpl(tryfirst=True)  # before -m selects by mark
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = set()
    sources = 0
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if "conformance_case" not in parameters:
            continue
        address, size, case = parameters["conformance_case"]
        if "simulated" not in address:
            item.add_marker(pytest.mark.ranks)
        if "hyper_platform_ms" not in address or size != 4 or config.getoption("platform"):
            continue
        if case.name.startswith("failures."):
            left_out.add(item)
        elif case.name.startswith(ON_TWO_AXES):
            if sources % 5 > 1:  # what stays has each placement on each axis
                left_out.add(item)
            sources += 1
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
