"""scaled_dot_product_attention on real ranks, against one device."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.support.brute_force import brute_force
from tests.support.ranks import RankPool
from tests.support.sample import Input, Sample

QUERY = ("R", "V", "S(0)", "S(1)", "S(2)", "S(3)")
KEY = ("R", "S(0)", "S(1)", "S(2)")
VALUE = ("R", "V", "S(0)", "S(1)", "S(3)", "P(sum)")


def attended(query: int, key: int, features: int = 6, length: int = 6) -> list[Input]:
    """Query, key and value with these numbers of heads."""
    return [
        Input((2, query, length, 2), tokens=QUERY),
        Input((2, key, 4, 2), tokens=KEY),
        Input((2, key, 4, features), tokens=VALUE),
    ]


def masked(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, **options: object
) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)  # type: ignore[arg-type]


SDPA = "F.scaled_dot_product_attention"
ALIKE = ["S(0) S(0) S(0) -> S(0)", "S(1) S(1) S(1) -> S(1)", "R R S(3) -> S(3)", "R R P -> P", "V R R -> R"]
CUT = ["S(1) R R -> S(1)", "S(1) S(1) R -> S(1)", "S(0) R R -> S(0)"]
QKV, GROUPED, ONE_GROUP = attended(4, 4), attended(4, 2), attended(4, 1)
FEW = [Input(x.shape, tokens=("R", "S(0)", "S(1)", "S(2)")) for x in QKV]


def mask(shape: tuple[int, ...]) -> Input:
    return Input(shape, tokens=("R", "V", *(f"S({d})" for d, n in enumerate(shape) if n > 1)))


SAMPLES = [
    Sample(
        "attention", SDPA, QKV, [{}, {"scale": 0.5}], accepts=[*ALIKE, *CUT, "S(2) R R -> S(2)"], two_axes=16
    ),
    Sample("attention", SDPA, QKV, [{"is_causal": True}], accepts=[*ALIKE, *CUT], label="causal", two_axes=8),
    Sample(
        "attention",
        SDPA,
        GROUPED,
        [{"enable_gqa": True}],
        accepts=[*ALIKE, *CUT],
        label="grouped",
        two_axes=24,
    ),
    Sample(
        "attention", SDPA, ONE_GROUP, [{"enable_gqa": True}], accepts=CUT[:1], label="one group", two_axes=16
    ),
    Sample(
        "attention",
        masked,
        [*FEW, mask((6, 4))],
        [{}],
        accepts=["S(1) S(1) S(1) R -> S(1)", "S(2) R R S(0) -> S(2)", "S(2) R R R -> S(2)", "R R R V -> R"],
        label="mask",
        two_axes=8,
    ),
    Sample(
        "attention",
        masked,
        [*FEW, mask((2, 1, 6, 4))],
        [{}],
        accepts=[
            "S(1) S(1) S(1) R -> S(1)",
            "S(0) S(0) S(0) S(0) -> S(0)",
            "S(0) S(0) S(0) R -> S(0)",
            "S(2) R R S(2) -> S(2)",
        ],
        label="mask",
        two_axes=8,
    ),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_one_axis(sample: Sample, ranks2: RankPool) -> None:
    brute_force(ranks2, sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_two_axes(sample: Sample, ranks4: RankPool) -> None:
    brute_force(ranks4, sample)
