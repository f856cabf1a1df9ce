"""What all tests of the torch adapter keep to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch.distributed as dist


@pytest.fixture(autouse=True)
def no_process_group_in_this_process() -> Iterator[None]:
    """Ranks are processes of their own: a group that a test starts here would be there for later tests."""
    yield
    assert not dist.is_initialized()
