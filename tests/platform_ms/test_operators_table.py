"""What the table of operators says of MindSpore is what the adapter's names and the samples say."""

from __future__ import annotations

from tests.platform_ms.operators_table import FILE, table


def test_the_file_is_not_stale() -> None:
    command = "uv run python -m tests.platform_ms.operators_table, then uv run hyper-parallel ops --markdown > docs/operators.md"
    assert FILE.read_text() == table(), f"run: {command}"
