"""Losses of element by element on real ranks, against one device."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F

from tests.support.brute_force import brute_force
from tests.support.ranks import RankPool
from tests.support.sample import Input, Sample

X = (4, 6)
TOKENS = ("R", "V", "S(0)", "S(1)", "P(sum)")
SUM = ["S(0) S(0) -> P(sum)", "S(1) S(1) -> P(sum)", "S(0) R -> P(sum)", "R V -> R"]
KEPT = ["S(0) S(0) -> S(0)", "S(1) S(1) -> S(1)", "S(1) R -> S(1)"]
WEIGHTED = ["S(0) S(0) R -> P(sum)", "S(1) S(1) S(1) -> P(sum)", "S(1) R R -> P(sum)", "R R V -> R"]


def weighted_mse(x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor, reduction: str) -> torch.Tensor:
    return F.mse_loss(x, target, reduction=reduction, weight=weight)


def weighted_huber(
    x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor, reduction: str
) -> torch.Tensor:
    return F.huber_loss(x, target, reduction, 0.3, weight)


def bce(x: torch.Tensor, target: torch.Tensor, reduction: str) -> torch.Tensor:
    return F.binary_cross_entropy(torch.sigmoid(x), torch.sigmoid(target), reduction=reduction)


def weighted_bce(x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor, reduction: str) -> torch.Tensor:
    return F.binary_cross_entropy(torch.sigmoid(x), target, weight, reduction=reduction)


def bce_with_logits(
    x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor, positive: torch.Tensor, reduction: str
) -> torch.Tensor:
    return F.binary_cross_entropy_with_logits(x, target, weight, reduction=reduction, pos_weight=positive)


def deprecated_mse(x: torch.Tensor, target: torch.Tensor, **options: bool) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return F.mse_loss(x, target, **options)


def kl_div(x: torch.Tensor, target: torch.Tensor, **options: object) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "reduction: 'mean' divides")
        return F.kl_div(x, target, **options)  # type: ignore[arg-type]


def pair(op: str, *variants: dict[str, object], second: str = "normal") -> list[Sample]:
    """A loss of two inputs, reduced and not."""
    inputs = [Input(X, tokens=TOKENS), Input(X, second, tokens=TOKENS)]
    more = [{}, {"reduction": "sum"}, *variants]
    none = [{"reduction": "none"}]
    return [
        Sample(op, f"F.{op}", inputs, more, accepts=SUM, two_axes=10),
        Sample(op, f"F.{op}", inputs, none, accepts=KEPT, two_axes=5, label="none"),
    ]


def weight(shape: tuple[int, ...] = X) -> Input:
    """A weight with fewer placements to try than an input."""
    return Input(
        shape, "positive", grad=False, tokens=("R", "V", *(f"S({d})" for d, n in enumerate(shape) if n > 1))
    )


SAMPLES = [
    *pair("mse_loss"),
    *pair("l1_loss"),
    *pair("smooth_l1_loss", {"beta": 0.3}),
    *pair("huber_loss", {"delta": 0.3}),
    *pair("binary_cross_entropy_with_logits", second="unit"),
    Sample(
        "kl_div",
        kl_div,
        [Input(X, tokens=TOKENS), Input(X, "positive", tokens=TOKENS)],
        [{"reduction": "batchmean"}, {"reduction": "mean"}, {"reduction": "sum", "log_target": True}],
        accepts=SUM,
        two_axes=10,
    ),
    Sample(
        "mse_loss",
        deprecated_mse,
        [Input(X, tokens=("R", "S(0)")), Input(X, tokens=("R",))],
        [{"size_average": False}, {"reduce": True}],
        two_axes=2,
        label="deprecated",
    ),
    Sample(
        "mse_loss",
        deprecated_mse,
        [Input(X, tokens=("R", "S(0)")), Input(X, tokens=("R",))],
        [{"reduce": False}],
        two_axes=2,
        label="deprecated none",
    ),
    Sample(
        "binary_cross_entropy",
        bce,
        [Input(X, tokens=TOKENS), Input(X, grad=False, tokens=TOKENS)],
        [("mean",), ("sum",)],
        accepts=SUM,
        two_axes=8,
    ),
    Sample(
        "mse_loss",
        weighted_mse,
        [Input(X, tokens=TOKENS), Input(X, tokens=TOKENS[:4]), Input(X, "positive", tokens=TOKENS[:4])],
        [("mean",), ("sum",)],
        label="weighted",
        accepts=WEIGHTED,
        two_axes=12,
    ),
    Sample(
        "huber_loss",
        weighted_huber,
        [Input(X, tokens=TOKENS), Input(X, tokens=("R", "S(0)")), weight()],
        [("mean",)],
        label="weighted",
        accepts=WEIGHTED[:1],
        two_axes=6,
    ),
    Sample(
        "binary_cross_entropy",
        weighted_bce,
        [
            Input(X, tokens=TOKENS),
            Input(X, "booleans", dtype="float64", grad=False, tokens=TOKENS[2:4]),
            weight((4, 1)),
        ],
        [("mean",)],
        accepts=["S(0) S(0) S(0) -> P(sum)", "S(1) S(1) R -> P(sum)"],
        label="weighted",
        two_axes=6,
    ),
    Sample(
        "binary_cross_entropy_with_logits",
        bce_with_logits,
        [
            Input(X, tokens=("R", "S(0)", "S(1)")),
            Input(X, "unit", tokens=("R", "S(0)", "S(1)")),
            weight((4, 1)),
            weight((6,)),
        ],
        [("mean",)],
        accepts=["S(1) S(1) R S(0) -> P(sum)", "S(0) S(0) R R -> P(sum)"],
        label="weighted",
        two_axes=6,
    ),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_one_axis(sample: Sample, ranks2: RankPool) -> None:
    brute_force(ranks2, sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_two_axes(sample: Sample, ranks4: RankPool) -> None:
    brute_force(ranks4, sample)
