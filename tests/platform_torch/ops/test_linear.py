"""The linear layer on real ranks, against one device."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.brute_force import brute_force
from tests.support.ranks import RankPool
from tests.support.sample import Input, Sample


def by_keyword(x: Any, weight: Any, bias: Any) -> Any:
    import torch

    return torch.nn.functional.linear(weight=weight, bias=bias, input=x)


def few(*shape: int) -> Input:
    """An input whose Partials are those that linear operations know."""
    dims = tuple(f"S({dim})" for dim, size in enumerate(shape) if size > 1)
    return Input(shape, tokens=("R", "V", *dims, "P(sum)", "P(avg)"))


WITH_BIAS = [
    "S(0) R R -> S(0)", "S(1) R R -> S(1)", "R S(0) S(0) -> S(2)", "S(2) S(1) R -> P", "S(2) S(1) P -> P", "S(2) S(1) V -> P",
    "P R R -> P", "R P R -> P", "P R P -> P", "R R P -> P", "P(avg) R R -> P(avg)", "R R P(avg) -> P(avg)", "V R R -> R",
]  # fmt: skip
SAMPLES = [
    Sample("linear", "F.linear", [few(2, 4, 2), few(4, 2), few(4)], accepts=WITH_BIAS, two_axes=50),
    Sample(
        "linear",
        "F.linear",
        [(2, 4, 2), (4, 2)],
        accepts=["S(1) R -> S(1)", "R S(0) -> S(2)", "S(2) S(1) -> P", "P R -> P"],
    ),
    Sample(
        "linear",
        "F.linear",
        [few(2), few(4, 2), few(4)],
        accepts=["R S(0) S(0) -> S(0)", "S(0) S(1) R -> P"],
        two_axes=12,
    ),
    Sample(
        "linear", "F.linear", [few(4, 2), few(2)], accepts=["S(0) R -> S(0)", "S(1) S(0) -> P"], two_axes=12
    ),
    Sample(
        "linear",
        by_keyword,
        [few(4, 2), few(4, 2), few(4)],
        accepts=["S(1) S(1) R -> P", "R R P -> P"],
        two_axes=12,
        label="keywords",
    ),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_one_axis(sample: Sample, ranks2: RankPool) -> None:
    brute_force(ranks2, sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_two_axes(sample: Sample, ranks4: RankPool) -> None:
    brute_force(ranks4, sample)
