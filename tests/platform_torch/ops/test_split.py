"""Cutting tensors on real ranks, against one device."""

from __future__ import annotations

import pytest

from tests.support.brute_force import brute_force
from tests.support.ranks import RankPool
from tests.support.sample import Sample

X = (4, 6)
PARTIALS = [f"P({op}) -> P({op}) P({op})" for op in ("sum", "avg", "max", "min", "prod")]
ROWS = ["S(1) -> S(1) S(1)", "V -> R R", *PARTIALS]

SAMPLES = [
    Sample(
        "split",
        "torch.split",
        [X],
        [(2,), {"split_size_or_sections": 2, "dim": 0}, ([1, 3], 0), ([4, 2], 1)],
        accepts=[*ROWS, "S(0)"],
        two_axes=10,
    ),
    Sample(
        "split",
        "Tensor.split",
        [X],
        [(3, 1), (4, -1)],
        accepts=["S(0) -> S(0) S(0)"],
        label="method",
        two_axes=8,
    ),
    Sample(
        "split_with_sizes",
        "Tensor.split_with_sizes",
        [X],
        [([1, 5], 1)],
        accepts=["S(0) -> S(0) S(0)"],
        two_axes=4,
    ),
    Sample(
        "chunk",
        "torch.chunk",
        [X],
        [(2,), (4, 1), {"chunks": 2, "dim": -1}],
        accepts=[*ROWS, "S(0)"],
        two_axes=10,
    ),
    Sample(
        "chunk", "Tensor.chunk", [(3, 4)], [(2, 0)], accepts=["S(1) -> S(1) S(1)"], label="uneven", two_axes=4
    ),
    Sample("tensor_split", "torch.tensor_split", [X], [(2,), ((1, 4), 1)], accepts=ROWS, two_axes=10),
    Sample(
        "unbind",
        "torch.unbind",
        [(2, 4)],
        [{}, {"dim": 0}],
        accepts=["S(1) -> S(0) S(0)", "V -> R R", *PARTIALS],
        two_axes=10,
    ),
    Sample(
        "unbind",
        "Tensor.unbind",
        [(4, 2)],
        [(-1,)],
        accepts=["S(0) -> S(0) S(0)"],
        label="method",
        two_axes=6,
    ),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_one_axis(sample: Sample, ranks2: RankPool) -> None:
    brute_force(ranks2, sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_two_axes(sample: Sample, ranks4: RankPool) -> None:
    brute_force(ranks4, sample)
