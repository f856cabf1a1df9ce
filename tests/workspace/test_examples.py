"""The examples train under tensor parallelism as on one device: in a few steps, on short texts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.ranks
@pytest.mark.timeout(300)
@pytest.mark.parametrize("example", sorted(path.name for path in ROOT.glob("examples/*.py")))
def test_the_losses_are_those_of_one_device(example: str, tmp_path: Path) -> None:
    quick = ["--steps", "3", "--batch", "2", "--seq", "16", "--out", str(tmp_path / "curves.png")]
    done = subprocess.run(
        [sys.executable, f"examples/{example}", *quick],
        cwd=ROOT, capture_output=True, text=True, timeout=280, env={**os.environ, "COLUMNS": "120"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": equal") == 2 and "reduce_scatter/step" in done.stdout
    assert (tmp_path / "curves.png").exists()
