"""Real processes for tests on MindSpore: started once, then sent many cases, as `tests.support.ranks` does."""

from __future__ import annotations

from hyper_conformance.ranks import ProcessRanks
from hyper_platform_ms.conformance import MindSporeProcesses

__all__ = ["MindSporeRankPool"]


class _EnvironmentOnly(MindSporeProcesses):
    """Ranks as a launcher leaves them: nothing was started, the environment says how to."""

    join = MindSporeProcesses.environment


class MindSporeRankPool(ProcessRanks):
    """``size`` processes in MindSpore's world group on CPU, started at the first call and kept.

    Args:
        size: Number of ranks.
        process_group: Whether the ranks join. Without it they only have what a launcher gives them.
    """

    def __init__(self, size: int, *, process_group: bool = True) -> None:
        super().__init__(size, MindSporeProcesses() if process_group else _EnvironmentOnly())
