"""Norms on real ranks, against one device."""

from __future__ import annotations

import pytest

from tests.support.brute_force import brute_force
from tests.support.ranks import RankPool
from tests.support.sample import Input, Sample

X = (4, 6)
WHOLE = ["S(0) -> R", "S(1) -> R", "V -> R"]
ORDERS = (2, 1, 3, 0.5, float("inf"), float("-inf"), 0, -1)

SAMPLES = [
    Sample("vector_norm", "torch.linalg.vector_norm", [X], [{"ord": p} for p in ORDERS], accepts=WHOLE),
    Sample(
        "vector_norm",
        "torch.linalg.vector_norm",
        [Input(X, "tied")],
        [{"ord": p} for p in ORDERS[:6]],
        accepts=WHOLE,
        label="zeros",
    ),
    Sample(
        "vector_norm",
        "torch.linalg.vector_norm",
        [X],
        [{"dim": 1}, {"ord": 3, "dim": (0, 1), "keepdim": True}],
        label="dims",
    ),
    Sample(
        "norm",
        "torch.norm",
        [X],
        [{}, {"p": 1}, {"dim": 0}, {"p": 3, "dim": 1, "keepdim": True}],
        accepts=WHOLE,
    ),
    Sample(
        "norm", "Tensor.norm", [(2, 2, 6)], [(), (2,), (2, -1), (float("inf"), (0, 2), True)], two_axes=20
    ),
    Sample(
        "linalg_norm",
        "torch.linalg.norm",
        [X],
        [{}, {"dim": 0}, {"ord": 1, "dim": 0}, {"ord": "fro"}],
        accepts=WHOLE,
    ),
    Sample(
        "linalg_norm",
        "torch.linalg.norm",
        [(2, 3, 3)],
        [{"ord": 1, "dim": (1, 2)}, {"ord": "nuc", "dim": (1, 2)}],
        accepts=["S(0) -> S(0)"],
        label="matrix",
        tolerance=1e-9,
    ),
    Sample(
        "normalize",
        "F.normalize",
        [X],
        [{}, {"dim": 0}, {"p": 1.0}],
        accepts=["S(0) -> S(0)", "S(1) -> S(1)"],
        two_axes=8,
    ),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_one_axis(sample: Sample, ranks2: RankPool) -> None:
    brute_force(ranks2, sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_two_axes(sample: Sample, ranks4: RankPool) -> None:
    brute_force(ranks4, sample)
