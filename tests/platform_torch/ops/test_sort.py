"""Operations along one dim that need all of it, on real ranks, against one device."""

from __future__ import annotations

import pytest

from tests.support.brute_force import brute_force
from tests.support.ranks import RankPool
from tests.support.sample import Input, Sample

X = (4, 6)

SAMPLES = [
    Sample(
        "sort",
        "torch.sort",
        [X],
        [{}, {"dim": -1, "descending": True}],
        accepts=["S(0) -> S(0) S(0)", "V -> R R"],
        two_axes=8,
    ),
    Sample(
        "sort",
        "Tensor.sort",
        [X],
        [(0,), (0, True)],
        accepts=["S(1) -> S(1) S(1)"],
        label="method",
        two_axes=6,
    ),
    Sample(
        "sort",
        "torch.sort",
        [Input(X, "tied")],
        [{"stable": True, "dim": 0}],
        accepts=["S(1) -> S(1) S(1)"],
        label="stable",
        two_axes=6,
    ),
    Sample(
        "argsort",
        "torch.argsort",
        [X],
        [{}, {"dim": 0, "descending": True}],
        accepts=["S(0) -> S(0)", "S(1)"],
        two_axes=8,
    ),
    Sample("msort", "torch.msort", [X], accepts=["S(1) -> S(1)"], two_axes=6),
    Sample(
        "topk",
        "torch.topk",
        [X],
        [(2,), (3, 1, False)],
        accepts=["S(0) -> S(0) S(0)", "V -> R R"],
        two_axes=8,
    ),
    Sample(
        "topk", "Tensor.topk", [X], [(2, 0), (3, 0)], accepts=["S(1) -> S(1) S(1)"], label="dim", two_axes=6
    ),
    Sample(
        "cumsum",
        "torch.cumsum",
        [X],
        [(1,), {"dim": -1}],
        accepts=["S(0) -> S(0)", "P -> P", "P(avg) -> P(avg)", "V -> R"],
        two_axes=8,
    ),
    Sample(
        "cumsum",
        "Tensor.cumsum",
        [Input(X, "integers")],
        [(0,)],
        accepts=["S(1) -> S(1)", "P -> P"],
        label="integers",
        two_axes=6,
    ),
    Sample("cumprod", "torch.cumprod", [X], [(1,)], accepts=["S(0) -> S(0)"], two_axes=6),
    Sample("logcumsumexp", "torch.logcumsumexp", [X], [(0,)], accepts=["S(1) -> S(1)"], two_axes=6),
    Sample("cummax", "torch.cummax", [X], [(0,)], accepts=["S(1) -> S(1) S(1)"], two_axes=6),
    Sample("cummin", "Tensor.cummin", [X], [(1,)], accepts=["S(0) -> S(0) S(0)"], two_axes=6),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_one_axis(sample: Sample, ranks2: RankPool) -> None:
    brute_force(ranks2, sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_two_axes(sample: Sample, ranks4: RankPool) -> None:
    brute_force(ranks4, sample)
