"""Real PyTorch processes for distributed tests: started once, then sent many cases::

def sum_of_ranks(start: int) -> float:
    x = torch.tensor(float(start + torch.distributed.get_rank()))
    torch.distributed.all_reduce(x)
    return x.item()

def test_sum(ranks2):
    assert ranks2.run(sum_of_ranks, 10) == [21.0, 21.0]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hyper_conformance.ranks import CALL_TIMEOUT, ProcessRanks
from hyper_conformance.ranks import RankError as RankError
from hyper_platform_torch.conformance import TorchHarness

__all__ = ["RankError", "RankPool", "run_once"]


class _EnvironmentOnly(TorchHarness):
    """Ranks as a launcher leaves them: nothing was started, the environment says how to."""

    join = TorchHarness.environment


class RankPool(ProcessRanks):
    """``size`` processes in one gloo group, started at the first call and kept.

    Args:
        size: Number of ranks.
        process_group: Whether the ranks start ``torch.distributed``. Without it they only have what a
            launcher gives them (``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR``, ``MASTER_PORT`` ...).
    """

    def __init__(self, size: int, *, process_group: bool = True) -> None:
        super().__init__(size, TorchHarness() if process_group else _EnvironmentOnly())


def run_once(
    size: int,
    fn: Callable[..., Any],
    *args: Any,
    timeout: float = CALL_TIMEOUT,
    process_group: bool = True,
) -> list[Any]:
    """As ``RankPool(size).run(fn, *args)``, in processes that nothing ran in before and that end with it."""
    with RankPool(size, process_group=process_group) as pool:
        return pool.run(fn, *args, timeout=timeout)
