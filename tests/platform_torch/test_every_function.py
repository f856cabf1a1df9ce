"""Every function that PyTorch lets a tensor class override: equal to one device, or refused."""

from __future__ import annotations

import pytest

from tests.platform_torch.every_function import Tally, walk
from tests.support.ranks import RankPool

LAYOUTS = [
    ("S(0)", "S(0)"),
    ("S(0)", "R"),
    ("R", "S(0)"),
    ("S(1)", "S(1)"),
    ("P", "P"),
    ("P", "R"),
    ("R", "R"),
]


@pytest.mark.timeout(600)
def test_equal_or_refused(ranks2: RankPool) -> None:
    tallies: list[Tally] = ranks2.run(walk, LAYOUTS, False, timeout=500)
    assert not tallies[0].wrong, "\n".join(tallies[0].wrong)
    assert tallies[1] == tallies[0]
    # Refusing is no way out.
    assert len(tallies[0].equal) >= 700
