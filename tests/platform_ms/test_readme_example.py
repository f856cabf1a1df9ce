"""The READMEs' examples in MindSpore run as they stand; the root's is PyTorch's but for the framework."""

from __future__ import annotations

import pytest

from tests.support.ms_ranks import MindSporeRankPool
from tests.support.readmes import Example, examples_of, run_example


@pytest.mark.ranks
@pytest.mark.parametrize("example", examples_of("mindspore"), ids=lambda example: example.readme)
def test_the_example_runs_on_two_ranks(example: Example) -> None:
    # The ranks have what a launcher gives them; the example joins them itself.
    with MindSporeRankPool(2, process_group=False) as pool:
        pool.run(run_example, example)


def test_both_frameworks_share_the_lines_that_distribute() -> None:
    blocks = [
        example.code
        for framework in ("torch", "mindspore")
        for example in examples_of(framework)
        if example.readme == "root"
    ]
    assert len(blocks) == 2
    shared = set.intersection(*(set(block.splitlines()) for block in blocks))
    assert 'mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))' in shared
    assert any("parallelize_module(build(), mesh" in line for line in shared)
