"""What the table of operators says of PyTorch is what the adapter and the samples say."""

from __future__ import annotations

from pathlib import Path

import hyper_platform_torch
from tests.platform_torch.operators_table import table


def test_the_file_is_not_stale() -> None:
    assert hyper_platform_torch.__file__ is not None
    path = Path(hyper_platform_torch.__file__).with_name("operators.yaml")
    command = f"uv run python -m tests.platform_torch.operators_table > {path.name}, then hyper-parallel ops --markdown"
    assert path.read_text() == table(), f"run: {command}"
