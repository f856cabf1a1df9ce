"""The MindSpore rank pool: ranks fail fast and alone, and nothing is left behind."""

from __future__ import annotations

import os
import time

import pytest

from hyper_conformance.ranks import CALL_TIMEOUT, RankError
from tests.support.ms_ranks import MindSporeRankPool
from tests.support.processes import is_alive

pytestmark = pytest.mark.ranks


def rank() -> int:
    from hyper_dtensor import get_platform

    return get_platform().rank()


def sum_of_ranks(start: int) -> float:
    from mindspore import Tensor

    from hyper_dtensor import get_platform

    platform = get_platform()
    total = platform.all_reduce(Tensor([float(start + platform.rank())]), "sum", platform.group((0, 1)))
    return float(total)


def one_fails() -> None:
    if rank() == 1:
        raise ZeroDivisionError("on rank 1 alone")
    sum_of_ranks(0)  # waits for rank 1


def one_dies() -> None:
    if rank() == 1:
        os._exit(3)
    sum_of_ranks(0)


def test_a_call_gives_the_results_of_all_ranks() -> None:
    with MindSporeRankPool(2) as pool:
        assert pool.run(sum_of_ranks, 10) == [21.0, 21.0]
        pids = pool.pids
        assert pool.run(sum_of_ranks, 0) == [1.0, 1.0] and pool.pids == pids, "the ranks are started once"
        began = time.monotonic()
        with pytest.raises(RankError, match=r"rank 1 of 2 raised ZeroDivisionError") as info:
            pool.run(one_fails)
        assert time.monotonic() - began < CALL_TIMEOUT and "in one_fails" in str(info.value)
        assert "rank 0: still running" in str(info.value)
        assert pool.run(sum_of_ranks, 10) == [21.0, 21.0], "the next call starts new ranks"
        with pytest.raises(RankError, match="died with exit code 3"):
            pool.run(one_dies)
        pids += pool.pids
    assert not any(is_alive(pid) for pid in pids)
