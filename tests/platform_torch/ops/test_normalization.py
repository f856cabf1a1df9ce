"""layer_norm and rms_norm on real ranks, against one device."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.support.brute_force import brute_force
from tests.support.ranks import RankPool
from tests.support.sample import Input, Sample

X = (2, 4, 6)


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return F.layer_norm(x, tuple(weight.shape), weight, bias, eps)


def plain_norm(x: torch.Tensor, size: int) -> torch.Tensor:
    return F.layer_norm(x, (size,))


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return F.rms_norm(x, (6,), weight, eps=eps)


FEW = ("R", "V", "S(0)", "P(sum)")
NO_BIAS = ["S(0) R -> S(0)", "S(1) R -> S(1)", "V R -> R", "R V -> R"]

SAMPLES = [
    Sample(
        "layer_norm",
        layer_norm,
        [X, Input((6,), tokens=FEW), Input((6,), tokens=FEW)],
        [(1e-5,), (1e-2,)],
        accepts=["S(0) R R -> S(0)", "S(1) R R -> S(1)", "R R V -> R"],
    ),
    Sample(
        "layer_norm",
        layer_norm,
        [X, Input((4, 6), tokens=FEW), Input((4, 6), tokens=("R", "V"))],
        [(1e-5,)],
        label="two dims",
        accepts=["S(0) R R -> S(0)"],
        two_axes=10,
    ),
    Sample("layer_norm", plain_norm, [X], [(6,)], label="plain", accepts=["S(0) -> S(0)"]),
    Sample("rms_norm", rms_norm, [X, Input((6,), tokens=FEW)], [(1e-5,), (1e-2,)], accepts=NO_BIAS),
    Sample(
        "LayerNorm",
        "F.layer_norm",
        [X],
        [{"normalized_shape": [6]}, {"normalized_shape": [6], "eps": 0.1}],
        label="keyword",
    ),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_one_axis(sample: Sample, ranks2: RankPool) -> None:
    brute_force(ranks2, sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_two_axes(sample: Sample, ranks4: RankPool) -> None:
    brute_force(ranks4, sample)
