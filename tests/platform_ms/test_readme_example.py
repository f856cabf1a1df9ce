"""The README's MindSpore example runs as it stands, and is the same as PyTorch's but for the framework."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.ms_ranks import MindSporeRankPool

BLOCKS = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[2] / "README.md").read_text(), re.DOTALL)


def run_block() -> None:
    (block,) = (block for block in BLOCKS if "import mindspore" in block)
    exec(compile(block, "README.md", "exec"), {"__name__": "__main__"})


def test_the_example_runs_on_two_ranks() -> None:
    # The ranks have what a launcher gives them; the example joins them itself.
    with MindSporeRankPool(2, process_group=False) as pool:
        pool.run(run_block)


def test_both_frameworks_share_the_lines_that_distribute() -> None:
    shared = set.intersection(*(set(block.splitlines()) for block in BLOCKS))
    assert 'mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))' in shared
    assert any("parallelize_module(build(), mesh" in line for line in shared)
