"""cross_entropy and nll_loss on real ranks, against one device."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from hyper_layout import Replicate, Shard
from tests.support.brute_force import brute_force
from tests.support.on_ranks import distributed, mesh_of_all
from tests.support.ranks import RankPool
from tests.support.sample import Input, Sample

N, C = 4, 6
SOME = ("R", "V", "S(0)", "S(1)", "P(sum)")
LOGITS = Input((N, C), tokens=SOME)
IMAGE = Input((N, C, 2), tokens=("R", "V", "S(0)", "S(1)", "S(2)"))
# Of six classes the last is the one that is ignored in some variants; on two ranks of the batch unevenly often.
TARGET = Input((N,), "integers", high=C, tokens=("R", "S(0)", "plain"))
WEIGHT = Input((C,), "positive", grad=False, tokens=("R", "S(0)"))
SUM = [
    "S(0) S(0) -> P(sum)",
    "S(0) R -> P(sum)",
    "S(1) R -> R",
    "S(1) plain -> R",
    "S(0) plain -> P(sum)",
    "V R -> R",
]
NONE = ["S(0) S(0) -> S(0)", "S(0) R -> S(0)", "S(1) R -> R"]
WEIGHTED = ["S(0) S(0) R -> P(sum)", "S(0) R R -> P(sum)", "S(1) R R -> R", "S(1) R S(0) -> R"]
REDUCED = [
    {},
    {"ignore_index": 1},
    {"reduction": "sum", "ignore_index": 2},
    {"label_smoothing": 0.1, "ignore_index": 1},
]


def weighted(x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor, **options: object) -> torch.Tensor:
    return F.cross_entropy(x, target, weight, **options)  # type: ignore[arg-type]


def weighted_nll(
    x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor, **options: object
) -> torch.Tensor:
    return F.nll_loss(x, target, weight, **options)  # type: ignore[arg-type]


SAMPLES = [
    Sample("cross_entropy", "F.cross_entropy", [LOGITS, TARGET], REDUCED, accepts=SUM),
    Sample(
        "cross_entropy",
        "F.cross_entropy",
        [LOGITS, TARGET],
        [{"reduction": "none", "label_smoothing": 0.2}, {"reduction": "none"}],
        accepts=NONE,
        label="none",
        two_axes=16,
    ),
    Sample("cross_entropy", weighted, [LOGITS, TARGET, WEIGHT], REDUCED, accepts=WEIGHTED, label="weighted"),
    Sample(
        "cross_entropy",
        weighted,
        [LOGITS, TARGET, WEIGHT],
        [{"reduction": "none", "label_smoothing": 0.2}],
        label="weighted none",
        two_axes=12,
    ),
    Sample(
        "cross_entropy",
        "F.cross_entropy",
        [IMAGE, Input((N, 2), "integers", high=C, tokens=("R", "S(0)", "S(1)"))],
        REDUCED,
        accepts=["S(2) S(1) -> P(sum)", "S(2) R -> P(sum)", "S(1) R -> R"],
        label="image",
    ),
    Sample(
        "cross_entropy",
        "F.cross_entropy",
        [Input((C,)), Input((), "integers", high=C)],
        [{}, {"label_smoothing": 0.1}],
        accepts=["S(0) R -> R"],
        label="one",
    ),
    Sample(
        "cross_entropy",
        "F.cross_entropy",
        [LOGITS, Input((N, C), "positive", tokens=("R", "V", "S(0)", "S(1)"))],
        [{}, {"reduction": "sum", "label_smoothing": 0.1}],
        accepts=["S(0) S(0) -> P(sum)", "S(1) S(1) -> R", "S(1) R -> R", "S(0) R -> P(sum)"],
        label="probabilities",
    ),
    Sample(
        "cross_entropy",
        weighted,
        [LOGITS, Input((N, C), "positive", tokens=("R", "S(0)", "S(1)")), WEIGHT],
        [{}, {"reduction": "none", "label_smoothing": 0.1}],
        accepts=["S(1) S(1) R", "S(1) S(1) S(0)"],
        label="weighted probabilities",
        two_axes=16,
    ),
    Sample("nll_loss", "F.nll_loss", [LOGITS, TARGET], REDUCED[:3], accepts=[*SUM, "P R -> P"]),
    Sample(
        "nll_loss", weighted_nll, [LOGITS, TARGET, WEIGHT], REDUCED[:3], accepts=WEIGHTED, label="weighted"
    ),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_one_axis(sample: Sample, ranks2: RankPool) -> None:
    brute_force(ranks2, sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_two_axes(sample: Sample, ranks4: RankPool) -> None:
    brute_force(ranks4, sample)


def vocabulary_parallel() -> None:
    """Three all-reduces forward, none backward; large logits; an ignored batch; a bad target."""
    from hyper_dtensor import CommDebugMode

    mesh = mesh_of_all(2)
    logits = torch.linspace(-3, 3, 24, dtype=torch.float64).reshape(4, 6).cos() * 1e4
    target = torch.tensor([0, 5, -100, 3])
    ours = distributed(logits, mesh, Shard(1), requires_grad=True)
    with CommDebugMode() as forward:
        loss = F.cross_entropy(ours, target)
    assert forward.counts == {"all_reduce": 3}, forward.counts
    plain = logits.clone().requires_grad_()
    wanted = F.cross_entropy(plain, target)
    wanted.backward()
    torch.testing.assert_close(loss.to_local(), wanted, rtol=1e-12, atol=0)
    with CommDebugMode() as backward:
        loss.backward()
    assert backward.counts == {}, backward.counts
    torch.testing.assert_close(ours.grad.full_tensor(), plain.grad, rtol=1e-12, atol=1e-15)
    ignored = torch.full((4,), -100)
    for placement in (Shard(0), Shard(1)):
        ours = distributed(logits, mesh, placement, requires_grad=True)
        loss = F.cross_entropy(ours, ignored)
        loss.backward()
        assert loss.full_tensor().isnan()
        assert torch.equal(ours.grad.full_tensor(), torch.zeros_like(logits))
    for bad in (6, -1):
        with pytest.raises(IndexError, match="out of range of 6 classes"):
            F.cross_entropy(distributed(logits, mesh, Shard(1)), torch.tensor([0, 1, 2, bad]))


def a_bad_target_raises_on_every_rank() -> None:
    """Whoever has the part of the batch it is in."""
    mesh = mesh_of_all(2, 2)
    logits = distributed(torch.zeros(4, 6), mesh, Shard(0), Shard(1))
    bad = torch.tensor([0, 1, 2, 6])
    for target in (bad, distributed(bad, mesh, Shard(0), Replicate())):
        with pytest.raises(IndexError, match="out of range of 6 classes"):
            F.cross_entropy(logits, target)


def test_a_bad_target(ranks4: RankPool) -> None:
    ranks4.run(a_bad_target_raises_on_every_rank)


def low_precision() -> None:
    """bfloat16 logits are summed in float32, over a part of the batch and over a part of the classes."""
    mesh = mesh_of_all(2)
    logits = (torch.linspace(-3, 3, 48).reshape(8, 6).cos() * 4).bfloat16()
    target = torch.arange(8) % 6
    wanted = F.cross_entropy(logits.double(), target)
    for placement in (Shard(0), Shard(1)):
        loss = F.cross_entropy(distributed(logits, mesh, placement), target).full_tensor()
        assert loss.dtype == torch.bfloat16
        torch.testing.assert_close(loss.double(), wanted, rtol=1e-2, atol=0)


def a_target_of_another_size() -> None:
    """A plain target that does not fit the batch is refused, though this rank's half of it might."""
    mesh = mesh_of_all(2)
    logits = distributed(torch.zeros(4, 6), mesh, Shard(0))
    for size in (3, 5, 6):
        with pytest.raises(ValueError):
            F.cross_entropy(logits, torch.zeros(size, dtype=torch.long))


@pytest.mark.parametrize("case", [vocabulary_parallel, low_precision, a_target_of_another_size])
def test_by_hand(case: Callable[[], None], ranks2: RankPool) -> None:
    ranks2.run(case)
