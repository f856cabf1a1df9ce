"""The pool of ranks itself: what it reports, how fast, and what survives."""

from __future__ import annotations

import os
import time
import warnings
from contextvars import ContextVar
from typing import Any

import pytest

from hyper_conformance.ranks import CALL_TIMEOUT
from tests.support.processes import is_alive
from tests.support.ranks import RankError, RankPool, run_once

pytestmark = pytest.mark.ranks

current: ContextVar[str] = ContextVar("current", default="fresh")


def all_sum(value: float) -> float:
    import torch
    import torch.distributed as dist

    total = torch.tensor(value + dist.get_rank())
    dist.all_reduce(total)
    return total.item()


def raise_on_rank(rank: int) -> float:
    import torch.distributed as dist

    if dist.get_rank() == rank:
        raise KeyError("only here")
    return all_sum(0.0)


def raise_everywhere(kind: str) -> None:
    raise {"ValueError": ValueError, "IndexError": IndexError}[kind](f"refused as {kind}")


def raise_differently() -> None:
    import torch.distributed as dist

    raise [ValueError("first"), IndexError("second")][dist.get_rank()]


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def process_id() -> int:
    return os.getpid()


def end_process_of_rank(rank: int) -> float:
    import torch.distributed as dist

    if dist.get_rank() == rank:
        os._exit(7)
    return all_sum(0.0)


def leave_traces() -> tuple[str, float, str]:
    import torch

    seen = (current.get(), torch.rand(()).item(), str(torch.get_default_dtype()))
    current.set("used")
    torch.set_default_dtype(torch.float64)
    return seen


def environment_group_sum() -> float:
    """As a user's script under a launcher: nothing was started, the environment says how to."""
    import torch.distributed as dist

    assert not dist.is_initialized()
    dist.init_process_group("gloo")
    total = all_sum(1.0)
    dist.destroy_process_group()
    return total


def warn() -> None:
    warnings.warn("look", stacklevel=1)


def unpicklable() -> Any:
    return lambda: None


def test_results_come_back_by_rank(ranks2: RankPool) -> None:
    assert ranks2.run(all_sum, 10.0) == [21.0, 21.0]
    first, second = ranks2.run(process_id)
    assert (first, second) == ranks2.pids


def test_four_ranks(ranks4: RankPool) -> None:
    assert ranks4.run(all_sum, 1.0) == [10.0] * 4


def test_one_rank_raises_while_the_other_waits_in_a_collective(ranks2: RankPool) -> None:
    before = ranks2.run(process_id)
    start = time.monotonic()
    with pytest.raises(RankError) as failure:
        ranks2.run(raise_on_rank, 1)
    assert time.monotonic() - start < CALL_TIMEOUT
    text = str(failure.value)
    assert "rank 1 of 2 raised KeyError: 'only here'" in text
    assert "rank 0: still running" in text
    assert 'raise KeyError("only here")' in text, "the line of the rank's own traceback"
    assert failure.value.first is not None and failure.value.first.rank == 1
    assert not any(is_alive(pid) for pid in before)
    assert ranks2.run(all_sum, 0.0) == [1.0, 1.0], "a fresh set of ranks"


def test_pool_survives_when_all_ranks_raise_alike(ranks2: RankPool) -> None:
    before = ranks2.run(process_id)
    with pytest.raises(RankError, match=r"rank [01] of 2 raised ValueError: refused as ValueError"):
        ranks2.run(raise_everywhere, "ValueError")
    assert ranks2.run_expect(raise_everywhere, "IndexError", "IndexError") == ["refused as IndexError"] * 2
    assert ranks2.run_expect(raise_everywhere, "LookupError", "IndexError") == ["refused as IndexError"] * 2
    assert ranks2.run(process_id) == before


def test_run_expect_wants_that_exception_on_every_rank(ranks2: RankPool) -> None:
    with pytest.raises(RankError, match="not every rank raised KeyError"):
        ranks2.run_expect(raise_everywhere, "KeyError", "ValueError")
    with pytest.raises(RankError, match="not every rank raised KeyError"):
        ranks2.run_expect(all_sum, "KeyError", 0.0)
    with pytest.raises(RankError, match="not every rank raised ValueError"):
        ranks2.run_expect(raise_differently, "ValueError")


def test_ranks_out_of_step_are_replaced(ranks2: RankPool) -> None:
    before = ranks2.run(process_id)
    with pytest.raises(RankError):
        ranks2.run(raise_differently)
    assert set(ranks2.run(process_id)).isdisjoint(before)


def test_timeout_ends_the_ranks(ranks2: RankPool) -> None:
    before = ranks2.run(process_id)
    start, seconds = time.monotonic(), 100.0
    with pytest.raises(RankError, match=r"sleep: not finished after 0\.3 s"):
        ranks2.run(sleep, seconds, timeout=0.3)
    assert time.monotonic() - start < seconds
    assert not any(is_alive(pid) for pid in before)


def test_a_rank_that_dies_is_reported(ranks2: RankPool) -> None:
    with pytest.raises(RankError, match="rank 0 of 2 died with exit code 7"):
        ranks2.run(end_process_of_rank, 0)
    assert ranks2.run(all_sum, 0.0) == [1.0, 1.0]


def test_calls_do_not_see_traces_of_earlier_ones(ranks2: RankPool) -> None:
    first = ranks2.run(leave_traces)
    assert first == ranks2.run(leave_traces)
    assert first[0] == first[1], "equal seeds"
    assert first[0][0] == "fresh"


def test_warnings_are_errors_in_ranks(ranks2: RankPool) -> None:
    assert ranks2.run_expect(warn, "UserWarning") == ["look", "look"]


def test_what_cannot_be_sent_is_said(ranks2: RankPool) -> None:
    with pytest.raises(ValueError, match="define it at the top level"):
        ranks2.run(lambda: None)
    with pytest.raises(RankError, match="pickle"):
        ranks2.run(unpicklable)


def test_fresh_ranks_start_their_group_from_the_environment() -> None:
    assert run_once(2, environment_group_sum, process_group=False) == [3.0, 3.0]


def test_a_rank_that_raises_ends_a_fresh_run() -> None:
    with pytest.raises(RankError, match="rank 0 of 2 raised KeyError"):
        run_once(2, raise_on_rank, 0)


def test_close_ends_every_process() -> None:
    with RankPool(1) as pool:
        assert pool.run(all_sum, 5.0) == [5.0]
        pids = pool.pids
    assert pids and not any(is_alive(pid) for pid in pids)
    assert pool.pids == ()
