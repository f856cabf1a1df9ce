"""New tensors and triangles on real ranks, against one device."""

from __future__ import annotations

import pytest

from tests.support.brute_force import brute_force
from tests.support.ranks import RankPool
from tests.support.sample import Input, Sample

X = (4, 6)
LIKE = ["S(0) -> S(0)", "S(1) -> S(1)", "P -> R", "P(max) -> R", "V -> R"]
PARTIALS = [f"P({op}) -> P({op})" for op in ("sum", "avg", "max", "min", "prod")]


def plus_ones_like(x: object) -> object:
    """The new tensor in use: it is invariant."""
    import torch

    return torch.ones_like(x) + 1.0  # type: ignore[call-overload]


def with_new(x: object, *size: object, **options: object) -> object:
    return x.new_ones(*size, **options)  # type: ignore[attr-defined]


SAMPLES = [
    Sample("zeros_like", "torch.zeros_like", [X], accepts=LIKE, two_axes=10),
    Sample("ones_like", plus_ones_like, [X], accepts=LIKE, two_axes=6),
    Sample("full_like", "torch.full_like", [X], [(2.0,), {"fill_value": 3.0}], accepts=LIKE, two_axes=6),
    Sample(
        "new_zeros", "Tensor.new_zeros", [X], [(4, 6), ((4, 6),), {"size": (4, 6)}], accepts=LIKE, two_axes=6
    ),
    Sample("new_ones", with_new, [X], [(2, 3), ((5,),)], accepts=["S(0) -> R", "P -> R"], two_axes=6),
    Sample("new_full", "Tensor.new_full", [X], [((4, 6), 2.5), ((3,), 1.5)], accepts=LIKE, two_axes=6),
    Sample(
        "tril",
        "torch.tril",
        [(2, 4, 6)],
        [{}, (1,), {"diagonal": -2}],
        accepts=["S(0) -> S(0)", "S(1) -> S(1)", "S(2) -> S(2)", *PARTIALS],
        two_axes=10,
    ),
    Sample(
        "triu",
        "Tensor.triu",
        [(4, 4)],
        [(), (1,), (-1,)],
        accepts=["S(0) -> S(0)", "S(1) -> S(1)", "V -> R"],
        two_axes=10,
    ),
    Sample(
        "tril_",
        "Tensor.tril_",
        [(4, 4)],
        [(), (1,)],
        inplace=True,
        accepts=["S(0) -> S(0)", "S(1) -> S(1)", *PARTIALS],
        two_axes=10,
    ),
    Sample(
        "one_hot",
        "F.one_hot",
        [Input((4, 2), "integers", tokens=("R", "S(0)", "S(1)"))],
        [(5,), ()],
        accepts=["S(0) -> S(0)", "R -> R"],
        two_axes=10,
    ),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_one_axis(sample: Sample, ranks2: RankPool) -> None:
    brute_force(ranks2, sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_two_axes(sample: Sample, ranks4: RankPool) -> None:
    brute_force(ranks4, sample)
