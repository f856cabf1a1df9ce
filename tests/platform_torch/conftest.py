"""What all tests of the torch adapter keep to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch.distributed as dist

from hyper_dtensor.parts import loaded_alone


@pytest.fixture(autouse=True)
def nothing_is_left_in_this_process() -> Iterator[None]:
    """Ranks are processes of their own: a group, or a part that is loaded here, would be there for later tests."""
    yield
    assert not dist.is_initialized()
    assert not loaded_alone
