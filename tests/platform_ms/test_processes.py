"""Processes and devices."""

from __future__ import annotations

from tests.support.ms_ranks import MindSporeRankPool


def started() -> tuple[int, int, str, str]:
    import pytest

    from hyper_dtensor import get_platform

    platform = get_platform()
    platform.start("cpu")
    with pytest.raises(ValueError, match="unknown device type 'cuda'; the MindSpore platform knows cpu, npu"):
        platform.start("cuda")
    return platform.rank(), platform.world_size(), platform.name, platform.framework


def blocks() -> tuple[int, ...]:
    from hyper_dtensor import init_device_mesh

    return init_device_mesh("cpu", (2,), mesh_dim_names=("tp",)).rank_list


def not_started() -> None:
    import pytest

    from hyper_dtensor import get_platform, init_device_mesh

    platform = get_platform()
    assert (platform.world_size(), platform.rank()) == (2, int(__import__("os").environ["RANK_ID"]))
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",), init_backend=False)
    with pytest.raises(RuntimeError, match="the processes were not joined"):
        platform.group(mesh.ranks_along(0))


def test_start_rank_and_size(ms_ranks2: MindSporeRankPool) -> None:
    assert ms_ranks2.run(started) == [(rank, 2, "mindspore", "MindSpore") for rank in range(2)]


def test_blocks_of_a_mesh_smaller_than_the_world(ms_ranks4: MindSporeRankPool) -> None:
    assert ms_ranks4.run(blocks) == [(0, 1), (0, 1), (2, 3), (2, 3)]


def test_before_the_processes_joined() -> None:
    with MindSporeRankPool(2, process_group=False) as pool:
        pool.run(not_started)
