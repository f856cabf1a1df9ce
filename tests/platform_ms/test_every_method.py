"""No attribute of a tensor gives this rank's part for the whole."""

from __future__ import annotations

from tests.platform_ms.every_method import walk
from tests.support.ms_ranks import MindSporeRankPool


def test_no_attribute_gives_a_local_value(ms_ranks2: MindSporeRankPool) -> None:
    for leaks, counts in ms_ranks2.run(walk, timeout=100.0):
        assert not leaks, "\n".join(leaks)
        # Most have a rule, and few are answered otherwise.
        assert counts["distributed"] > 140 and counts["no call"] < 20, counts
