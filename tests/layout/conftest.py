"""The layout package by itself: no platform says which rank this is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hyper_layout import mesh


@pytest.fixture(autouse=True)
def without_a_platform() -> Iterator[None]:
    before = mesh._rank_source
    mesh.set_rank_source(lambda: 0)
    yield
    mesh.set_rank_source(before)
