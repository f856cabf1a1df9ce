"""Matrix products on real ranks, against one device."""

from __future__ import annotations

import pytest

from tests.support.brute_force import brute_force
from tests.support.ranks import RankPool
from tests.support.sample import Input, Sample

LINEAR = ["P R -> P", "R P -> P", "P(avg) R -> P(avg)", "R P(avg) -> P(avg)", "V P -> P"]


def few(*shape: int) -> Input:
    """An input whose Partials are those that linear operations know."""
    dims = tuple(f"S({dim})" for dim, size in enumerate(shape) if size > 1)
    return Input(shape, tokens=("R", "V", *dims, "P(sum)", "P(avg)"))


SAMPLES = [
    Sample(
        "mm",
        "torch.mm",
        [(4, 2), (2, 6)],
        accepts=["S(0) R -> S(0)", "R S(1) -> S(1)", "S(1) S(0) -> P", *LINEAR],
    ),
    Sample("matmul", "operator.matmul", [(4, 2), (2, 6)], accepts=["S(1) S(0) -> P", *LINEAR], two_axes=12),
    Sample("matmul", "torch.matmul", [few(4), few(4)], accepts=["S(0) S(0) -> P", *LINEAR]),
    Sample(
        "matmul", "torch.matmul", [few(4), few(4, 2)], accepts=["S(0) S(0) -> P", "R S(1) -> S(0)", *LINEAR]
    ),
    Sample(
        "matmul", "torch.matmul", [few(2, 4), few(4)], accepts=["S(1) S(0) -> P", "S(0) R -> S(0)", *LINEAR]
    ),
    Sample(
        "matmul",
        "torch.matmul",
        [few(2, 4, 2), few(2)],
        accepts=["S(2) S(0) -> P", "S(0) R -> S(0)", "S(1) R -> S(1)"],
    ),
    Sample(
        "matmul",
        "torch.matmul",
        [few(2), few(4, 2, 2)],
        accepts=["S(0) S(1) -> P", "R S(0) -> S(0)", "R S(2) -> S(1)"],
    ),
    Sample(
        "matmul",
        "Tensor.matmul",
        [few(2, 4, 2), few(2, 4)],
        accepts=["S(0) R -> S(0)", "S(1) R -> S(1)", "R S(1) -> S(2)", *LINEAR],
    ),
    Sample(
        "matmul",
        "torch.matmul",
        [few(4, 2), few(2, 2, 4)],
        accepts=["R S(0) -> S(0)", "S(0) R -> S(1)", "S(1) S(1) -> P"],
    ),
    Sample(
        "matmul",
        "torch.matmul",
        [few(2, 4, 2), few(2, 2, 4)],
        accepts=["S(0) S(0) -> S(0)", "S(1) R -> S(1)", "R S(2) -> S(2)", "S(2) S(1) -> P"],
    ),
    Sample(
        "matmul",
        "torch.matmul",
        [few(2, 1, 4, 2), few(4, 2, 2)],
        accepts=["S(0) R -> S(0)", "R S(0) -> S(1)", "S(3) S(1) -> P"],
    ),
    Sample(
        "bmm",
        "torch.bmm",
        [few(4, 2, 2), few(4, 2, 2)],
        accepts=["S(0) S(0) -> S(0)", "S(2) S(1) -> P", *LINEAR],
    ),
    Sample(
        "mv",
        "torch.mv",
        [few(4, 2), few(2)],
        accepts=["S(0) R -> S(0)", "S(1) S(0) -> P", *LINEAR],
        two_axes=12,
    ),
    Sample("dot", "torch.dot", [few(4), few(4)], accepts=["S(0) S(0) -> P", *LINEAR], two_axes=12),
    Sample(
        "outer",
        "torch.outer",
        [few(4), few(2)],
        accepts=["S(0) R -> S(0)", "R S(0) -> S(1)", *LINEAR],
        two_axes=12,
    ),
    Sample(
        "addmm",
        "torch.addmm",
        [few(4, 2), few(4, 2), few(2, 2)],
        [{}, {"beta": 0.5, "alpha": 2}],
        accepts=[
            "S(0) S(0) R -> S(0)",
            "S(1) R S(1) -> S(1)",
            "R S(1) S(0) -> P",
            "P S(1) S(0) -> P",
            "P P R -> P",
            "R P R -> P",
            "R R P -> P",
            "P R R -> P",
            "P(avg) R R -> P(avg)",
            "R P(avg) R -> P(avg)",
        ],
    ),
    Sample(
        "addmm",
        "torch.addmm",
        [few(2), few(4, 2), few(2, 2)],
        accepts=["R S(0) R -> S(0)", "S(0) R S(1) -> S(1)", "R S(1) S(0) -> P", "P R R -> P"],
        label="row",
    ),
    Sample(
        "addmm",
        "Tensor.addmm",
        [few(4, 1), few(4, 2), few(2, 2)],
        accepts=["S(0) S(0) R -> S(0)", "R R S(1) -> S(1)"],
        two_axes=10,
        label="column",
    ),
    Sample(
        "addmm_",
        "Tensor.addmm_",
        [few(4, 2), few(4, 2), few(2, 2)],
        [{"beta": 0.5}, {"alpha": 2}],
        inplace=True,
        two_axes=12,
        accepts=[
            "S(0) S(0) R -> S(0)",
            "S(1) R S(1) -> S(1)",
            "P S(1) S(0) -> P",
            "P P R -> P",
            "P R R -> P",
        ],
    ),
    Sample(
        "baddbmm",
        "torch.baddbmm",
        [few(2, 2, 2), few(2, 2, 2), few(2, 2, 2)],
        [{}, {"beta": 0.5}],
        two_axes=12,
        accepts=["S(0) S(0) S(0) -> S(0)", "R S(2) S(1) -> P", "P R R -> P"],
    ),
    Sample(
        "addbmm",
        "torch.addbmm",
        [few(2, 2), few(2, 2, 2), few(2, 2, 2)],
        two_axes=10,
        accepts=["R S(0) S(0) -> P", "S(0) S(1) R -> S(0)"],
    ),
    Sample(
        "addmv",
        "torch.addmv",
        [few(4), few(4, 2), few(2)],
        two_axes=10,
        accepts=["S(0) S(0) R -> S(0)", "R S(1) S(0) -> P"],
    ),
    Sample(
        "addr",
        "torch.addr",
        [few(4, 2), few(4), few(2)],
        two_axes=10,
        accepts=["S(0) S(0) R -> S(0)", "R P R -> P"],
    ),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_one_axis(sample: Sample, ranks2: RankPool) -> None:
    brute_force(ranks2, sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_two_axes(sample: Sample, ranks4: RankPool) -> None:
    brute_force(ranks4, sample)
