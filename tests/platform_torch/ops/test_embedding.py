"""embedding on real ranks, against one device."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from hyper_layout import LayoutError, Replicate, Shard
from tests.support.brute_force import brute_force
from tests.support.on_ranks import distributed, mesh_of_all
from tests.support.ranks import RankPool
from tests.support.sample import Input, Sample

IDS = Input((2, 4), "integers", low=0, high=8)
TABLE = (8, 6)
SPLIT = [
    "S(0) R -> S(0)",
    "S(1) R -> S(1)",
    "R S(0) -> P(sum)",
    "R S(1) -> S(2)",
    "R P -> P",
    "R V -> R",
    "R P(avg) -> P(avg)",
]

SAMPLES = [
    Sample(
        "embedding", "F.embedding", [IDS, TABLE], [{}, {"padding_idx": 3}, {"padding_idx": -1}], accepts=SPLIT
    ),
    Sample(
        "embedding",
        "F.embedding",
        [Input((2, 4), "integers", high=8, tokens=("plain",)), TABLE],
        label="plain ids",
        accepts=["plain S(0) -> P(sum)", "plain S(1) -> S(2)"],
    ),
    Sample(
        "embedding",
        "F.embedding",
        [IDS, TABLE],
        [{"scale_grad_by_freq": True}],
        label="by frequency",
        accepts=["R R -> R", "R V -> R"],
    ),
    Sample(
        "embedding",
        "F.embedding",
        [Input((), "integers", high=8), TABLE],
        label="one id",
        accepts=["R S(0) -> P(sum)"],
    ),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_one_axis(sample: Sample, ranks2: RankPool) -> None:
    brute_force(ranks2, sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_two_axes(sample: Sample, ranks4: RankPool) -> None:
    brute_force(ranks4, sample)


def bad_ids_are_refused_everywhere() -> None:
    """An id out of range on one rank raises on all; nobody waits in a collective."""
    mesh = mesh_of_all(2, 2)
    table = distributed(torch.ones(8, 2), mesh, Replicate(), Shard(0))
    for bad in (-1, 8):
        ids = torch.tensor([0, 1, 2, bad])
        with pytest.raises(IndexError, match="out of range in an embedding of 8 rows"):
            F.embedding(distributed(ids, mesh, Shard(0), Replicate()), table)
    with pytest.raises(ValueError, match="padding_idx 9"):
        F.embedding(torch.tensor([1]), table, padding_idx=9)


def whole_rows_only() -> None:
    """max_norm changes the weight itself, so both must be Replicate; sparse looks at all ids."""
    mesh = mesh_of_all(2, 2)
    weight = torch.arange(16.0).reshape(8, 2)
    plain, ours = weight.clone(), distributed(weight, mesh, Replicate(), Replicate())
    ids = torch.tensor([1, 5])
    wanted = F.embedding(ids, plain, max_norm=1.0)
    assert torch.equal(F.embedding(ids, ours, max_norm=1.0).to_local(), wanted)
    assert torch.equal(ours.to_local(), plain)
    for options in ({"max_norm": 1.0}, {"sparse": True}, {"scale_grad_by_freq": True}):
        with pytest.raises(LayoutError, match=next(iter(options))):
            F.embedding(ids, distributed(weight, mesh, Replicate(), Shard(0)), **options)
        with pytest.raises(LayoutError, match=next(iter(options))):
            F.embedding(distributed(ids, mesh, Replicate(), Shard(0)), ours, **options)


@pytest.mark.parametrize("case", [bad_ids_are_refused_everywhere, whole_rows_only])
def test_by_hand(case: Callable[[], None], ranks4: RankPool) -> None:
    ranks4.run(case)
