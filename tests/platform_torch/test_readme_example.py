"""The README's example runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.ranks import run_once


def run_block() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    (block,) = (
        block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "import torch" in block
    )
    exec(compile(block, "README.md", "exec"), {"__name__": "__main__"})


def test_the_example_runs_on_two_ranks() -> None:
    run_once(2, run_block, process_group=False)
