"""Views on real ranks, against one device."""

from __future__ import annotations

import pytest

from tests.support.brute_force import brute_force
from tests.support.ranks import RankPool
from tests.support.sample import Input, Sample

PARTIALS = [f"P({op}) -> P({op})" for op in ("sum", "avg", "max", "min", "prod")]
SPLIT = ["S(0) -> S(0)", "V -> R", *PARTIALS]

SAMPLES = [
    Sample(
        "view",
        "Tensor.view",
        [(4, 6, 4)],
        [(4, 6, 2, 2), ((4, 2, 3, 4),)],
        accepts=[*SPLIT, "S(1)", "S(2)"],
        two_axes=12,
    ),
    Sample("view", "Tensor.view", [(4, 4)], [(-1,), (16, 1)], accepts=SPLIT, label="flat", two_axes=12),
    Sample(
        "view",
        "Tensor.view",
        [(2, 2, 6)],
        [(4, 6), (2, 2, 6)],
        accepts=["S(0) -> S(0)"],
        label="two in one",
        two_axes=12,
    ),
    Sample(
        "view",
        "Tensor.view",
        [(16,)],
        [(4, 4), (2, 2, 4), (2, 8)],
        accepts=SPLIT,
        label="one in two",
        two_axes=12,
    ),
    Sample(
        "reshape",
        "torch.reshape",
        [(4, 6)],
        [{"shape": (2, 2, 6)}, {"shape": (-1,)}],
        accepts=SPLIT,
        two_axes=12,
    ),
    Sample(
        "reshape",
        "Tensor.reshape",
        [(4, 6)],
        [(4, 1, 6), (1, 4, -1)],
        accepts=["S(1) -> S(2)"],
        label="ones",
        two_axes=12,
    ),
    Sample(
        "flatten",
        "torch.flatten",
        [(2, 4, 6)],
        [{}, {"start_dim": 1}, (0, 1), (1, 1)],
        accepts=SPLIT,
        two_axes=12,
    ),
    Sample("flatten", "Tensor.flatten", [()], [{}], label="0d", two_axes=4),
    Sample("ravel", "torch.ravel", [(4, 6)], accepts=SPLIT, two_axes=8),
    Sample(
        "unflatten",
        "torch.unflatten",
        [(4, 8)],
        [(1, (2, 4)), (-1, (-1, 2))],
        accepts=["S(1) -> S(1)", *SPLIT],
        two_axes=12,
    ),
    Sample(
        "view_as",
        "Tensor.view_as",
        [(8, 2), Input((4, 4), tokens=("R", "V", "S(0)", "S(1)", "P(sum)"))],
        accepts=["S(0) R -> S(0)", "S(0) S(1) -> S(0)", "R S(0) -> R", "P S(0) -> P"],
        two_axes=12,
    ),
    Sample("reshape_as", "Tensor.reshape_as", [(8, 2), Input((4, 4), tokens=("R", "S(0)"))], two_axes=6),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_one_axis(sample: Sample, ranks2: RankPool) -> None:
    brute_force(ranks2, sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_two_axes(sample: Sample, ranks4: RankPool) -> None:
    brute_force(ranks4, sample)
