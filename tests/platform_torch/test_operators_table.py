"""What the table of operators says of PyTorch is what the adapter and the samples say."""

from __future__ import annotations

from tests.platform_torch.operators_table import FILE, table


def test_the_file_is_not_stale() -> None:
    command = "uv run python -m tests.platform_torch.operators_table, then uv run hyper-parallel ops --markdown > docs/operators.md"
    assert FILE.read_text() == table(), f"run: {command}"
