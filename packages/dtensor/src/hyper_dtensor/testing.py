"""For tests of what knows no framework: they may exchange the platform of their process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hyper_dtensor import platform as registry
from hyper_dtensor.platform import Platform

__all__ = ["platform_of_a_test"]


@contextmanager
def platform_of_a_test(platform: Platform | None) -> Iterator[None]:
    """Inside of the block this process uses ``platform``; afterwards, what it used before.

    A program cannot do this (see `hyper_dtensor.set_platform`): what was made on one platform, layouts
    that were cached included, must not meet another one. A test makes all that it uses inside of the block.

    Args:
        platform: The platform; None for a process that has not chosen yet.
    """
    before = registry._chosen, registry._since
    registry._chosen, registry._since = platform, "a test"
    try:
        yield
    finally:
        registry._chosen, registry._since = before
