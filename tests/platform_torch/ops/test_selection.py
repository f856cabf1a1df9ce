"""Reading and adding by index tensors on real ranks, against one device."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.brute_force import brute_force
from tests.support.ranks import RankPool
from tests.support.sample import Input, Sample

FEW = ("R", "V", "S(0)", "S(1)", "P(sum)")
X = Input((4, 6), tokens=FEW)


def index(high: int, *shape: int, tokens: tuple[str, ...] | None = None) -> Input:
    return Input(shape, "integers", high=high, tokens=tokens or ("R", "S(0)", "S(1)")[: len(shape) + 1])


def gather(x: Any, i: Any, dim: int) -> Any:
    return x.gather(dim, i)


def index_select(x: Any, i: Any, **options: Any) -> Any:
    import torch

    return torch.index_select(x, index=i, **options)


def scatter(x: Any, i: Any, source: Any, dim: int) -> Any:
    return x.scatter(dim, i.argsort(dim), source)


def scatter_value(x: Any, i: Any, dim: int) -> Any:
    return x.scatter(dim, i, 2.5)


def scatter_(x: Any, i: Any, source: Any, dim: int) -> Any:
    return x.scatter_(dim, i.argsort(dim), source)


def scatter_add(x: Any, i: Any, source: Any, dim: int) -> Any:
    return x.scatter_add(dim, i, source)


def scatter_add_(x: Any, i: Any, source: Any, dim: int) -> Any:
    return x.scatter_add_(dim, i, source)


def index_add(x: Any, i: Any, source: Any, dim: int, **options: Any) -> Any:
    return x.index_add(dim, i, source, **options)


def index_copy(x: Any, i: Any, source: Any, dim: int) -> Any:
    return x.index_copy(dim, i.argsort(), source)


PARTIALS = ["P R -> P", "P(max) R -> P(max)", "P(avg) R -> P(avg)", "V R -> R"]
SAMPLES = [
    Sample(
        "gather",
        gather,
        [(4, 6), index(4, 2, 6)],
        [(0,)],
        accepts=["S(0) R -> P(sum)", "S(1) S(1) -> S(1)", "R S(0) -> S(0)", *PARTIALS],
        two_axes=16,
    ),
    Sample(
        "gather",
        gather,
        [X, index(6, 4, 6)],
        [(-1,)],
        accepts=["S(1) R -> P(sum)", "S(0) S(0) -> S(0)", "R S(1) -> S(1)"],
        two_axes=24,
    ),
    Sample(
        "gather",
        gather,
        [Input((4, 2), "booleans"), index(4, 4, 2)],
        [(0,)],
        accepts=["S(0) R -> P(max)"],
        label="booleans",
        two_axes=6,
    ),
    Sample(
        "gather", gather, [X, index(4, 2, 4)], [(0,)], accepts=["S(0) R -> P(sum)"], label="fewer", two_axes=6
    ),
    Sample(
        "gather",
        gather,
        [X, index(4, 4, 6, tokens=("plain",))],
        [(0,)],
        accepts=["S(0) plain -> P(sum)"],
        label="plain",
        two_axes=4,
    ),
    Sample(
        "take_along_dim",
        "torch.take_along_dim",
        [X, index(6, 4, 1)],
        [(1,)],
        accepts=["S(0) S(0) -> S(0)", "S(1) R -> P(sum)"],
        two_axes=10,
    ),
    Sample(
        "take_along_dim",
        "torch.take_along_dim",
        [X, index(4, 1, 6)],
        [{"dim": 0}],
        accepts=["S(1) S(1) -> S(1)", "S(0) R -> P(sum)"],
        two_axes=6,
    ),
    Sample(
        "take_along_dim",
        "torch.take_along_dim",
        [Input((4, 1), tokens=("R", "S(0)")), index(4, 2, 6)],
        [(0,)],
        accepts=["R S(1) -> S(1)", "S(0) R -> P(sum)"],
        label="broadcast",
        two_axes=6,
    ),
    Sample(
        "take_along_dim",
        "torch.take_along_dim",
        [X, index(24, 5)],
        accepts=["P R -> P"],
        label="flat",
        two_axes=4,
    ),
    Sample(
        "index_select",
        index_select,
        [(4, 6), index(4, 2)],
        [{"dim": 0}],
        accepts=["S(0) R -> P(sum)", "S(1) R -> S(1)", "R S(0) -> S(0)", *PARTIALS],
        two_axes=16,
    ),
    Sample(
        "index_select",
        index_select,
        [X, index(6, 4)],
        [{"dim": -1}],
        accepts=["S(1) R -> P(sum)", "R S(0) -> S(1)"],
        two_axes=10,
    ),
    Sample(
        "scatter",
        scatter,
        [X, index(4, 4, 6), X],
        [(0,)],
        accepts=["S(0) R R -> S(0)", "S(1) S(1) S(1) -> S(1)", "P R P -> P", "P R R -> P", "R R P -> P"],
        two_axes=16,
    ),
    Sample(
        "scatter",
        scatter_value,
        [X, index(4, 2, 6)],
        [(0,)],
        accepts=["S(0) R -> S(0)", "S(1) S(1) -> S(1)"],
        label="value",
        two_axes=10,
    ),
    Sample(
        "scatter_",
        scatter_,
        [X, index(4, 4, 6), X],
        [(0,)],
        inplace=True,
        accepts=["S(0) R R", "S(1) S(1) S(1)", "P R P", "P R R"],
        two_axes=10,
    ),
    Sample(
        "scatter_add",
        scatter_add,
        [X, index(4, 2, 6), Input((2, 6), tokens=FEW)],
        [(0,)],
        accepts=[
            "S(0) R R -> S(0)",
            "S(1) S(1) S(1) -> S(1)",
            "R S(0) S(0) -> P(sum)",
            "P R P -> P",
            "P R R -> P",
            "R R P -> P",
        ],
        two_axes=16,
    ),
    Sample(
        "scatter_add_",
        scatter_add_,
        [X, index(4, 2, 6), Input((2, 6), tokens=FEW)],
        [(0,)],
        inplace=True,
        accepts=["S(0) R R", "S(1) S(1) S(1)", "P R R"],
        two_axes=10,
    ),
    Sample(
        "index_add",
        index_add,
        [X, index(4, 2), Input((2, 6), tokens=FEW)],
        [{"dim": 0}, {"dim": 0, "alpha": 2.0}],
        accepts=["S(0) R R -> S(0)", "S(1) R S(1) -> S(1)", "R S(0) S(0) -> P(sum)", "P R R -> P"],
        two_axes=16,
    ),
    Sample(
        "index_copy",
        index_copy,
        [X, index(4, 4), X],
        [(0,)],
        accepts=["S(0) R R -> S(0)", "S(1) R S(1) -> S(1)", "P R P -> P"],
        two_axes=16,
    ),
    Sample(
        "masked_select",
        "torch.masked_select",
        [X, Input((4, 6), "booleans")],
        accepts=["R R -> R"],
        two_axes=4,
    ),
    Sample(
        "nonzero",
        "torch.nonzero",
        [Input((4, 6), "booleans")],
        [{}, {"as_tuple": True}],
        accepts=["R -> R"],
        two_axes=4,
    ),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_one_axis(sample: Sample, ranks2: RankPool) -> None:
    brute_force(ranks2, sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_two_axes(sample: Sample, ranks4: RankPool) -> None:
    brute_force(ranks4, sample)
