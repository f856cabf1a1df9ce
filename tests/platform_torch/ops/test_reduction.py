"""Reductions on real ranks, against one device."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from hyper_layout import Replicate, Shard
from tests.support.brute_force import brute_force
from tests.support.on_ranks import distributed, mesh_of_all
from tests.support.ranks import RankPool
from tests.support.sample import Input, Sample

X = (4, 6)
DIMS = [{}, {"dim": 0}, {"dim": -1, "keepdim": True}, {"dim": (0, 1)}, {"dim": [1], "keepdim": True}]
ONE_DIM = [{"dim": 0}, {"dim": -1, "keepdim": True}]


SAMPLES = [
    Sample("sum", "torch.sum", [X], DIMS, accepts=["S(0) -> P(sum)", "P -> P", "P(avg) -> P(avg)", "V -> R"]),
    Sample(
        "sum", "torch.sum", [X], [{"dtype": torch.float32}], tolerance=1e-5, label="cast", accepts=["P -> P"]
    ),
    Sample("sum", "Tensor.sum", [Input((2, 4, 2), "integers")], [(1,), ((0, 2), True)], label="integers"),
    Sample(
        "mean", "torch.mean", [X], DIMS, accepts=["S(0) -> P(sum)", "P -> P", "P(avg) -> P(avg)", "V -> R"]
    ),
    Sample(
        "amax", "torch.amax", [Input(X, "tied")], [{"dim": 0}, *DIMS[1:]], accepts=["S(0) -> R", "V -> R"]
    ),
    Sample(
        "amin",
        "torch.amin",
        [Input(X, "tied")],
        [{"dim": 0}, *DIMS[1:]],
        accepts=["S(0) -> R", "P(min) -> P(min)"],
    ),
    Sample(
        "amax",
        "torch.amax",
        [X],
        DIMS[1:],
        grads=False,
        label="no grad",
        accepts=["S(0) -> P(max)", "P(max) -> P(max)"],
    ),
    Sample(
        "max",
        "torch.max",
        [Input(X, "tied")],
        accepts=["S(0) -> R", "S(1) -> R", "P(max) -> P(max)"],
        label="whole",
    ),
    Sample("min", "Tensor.min", [Input(X, "tied")], accepts=["S(0) -> R"], label="whole"),
    Sample(
        "min",
        "torch.min",
        [X],
        grads=False,
        label="whole no grad",
        accepts=["S(0) -> P(min)", "P(min) -> P(min)"],
    ),
    Sample("max", "torch.max", [Input(X, "tied")], ONE_DIM, label="dim"),
    Sample("min", "Tensor.min", [Input(X, "tied")], [(0,), (1, True)], label="dim"),
    Sample("max", "torch.max", [X, X], label="binary", accepts=["S(0) S(0) -> S(0)"], two_axes=10),
    Sample("prod", "torch.prod", [Input(X, "tied")], [{}, *ONE_DIM], accepts=["S(0) -> R"]),
    Sample(
        "prod",
        "torch.prod",
        [X],
        [{}, *ONE_DIM],
        grads=False,
        label="no grad",
        accepts=["S(0) -> P(prod)", "P(prod) -> P(prod)"],
    ),
    Sample(
        "any", "torch.any", [Input(X, "booleans")], [{}, *ONE_DIM, {"dim": ()}], accepts=["S(0) -> P(max)"]
    ),
    Sample("all", "torch.all", [Input(X, "booleans")], [{}, *ONE_DIM], accepts=["S(0) -> P(min)"]),
    Sample(
        "argmax",
        "torch.argmax",
        [Input(X, "tied")],
        [{}, {"keepdim": True}, *ONE_DIM],
        accepts=["S(0) -> R", "S(1) -> R"],
    ),
    Sample("argmin", "torch.argmin", [Input(X, "tied")], [{}, *ONE_DIM], accepts=["S(0) -> R", "S(1) -> R"]),
    Sample("logsumexp", "torch.logsumexp", [X], [*ONE_DIM, {"dim": (0, 1)}], accepts=["S(0) -> R"]),
    Sample(
        "var",
        "torch.var",
        [X],
        [*DIMS, {"dim": 0, "correction": 0}, {"dim": 1, "unbiased": False}],
        accepts=["S(0) -> R"],
    ),
    Sample("std", "Tensor.std", [X], [(), (False,), (0, True, True), ((0, 1),)], accepts=["S(0) -> R"]),
    Sample("nansum", "torch.nansum", [X], [{}, {"dim": 1}], accepts=["S(0) -> P(sum)", "V -> R"], two_axes=6),
    Sample(
        "count_nonzero",
        "torch.count_nonzero",
        [Input(X, "tied")],
        [{}, {"dim": 0}],
        accepts=["S(0) -> P(sum)"],
    ),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_one_axis(sample: Sample, ranks2: RankPool) -> None:
    brute_force(ranks2, sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_two_axes(sample: Sample, ranks4: RankPool) -> None:
    brute_force(ranks4, sample)


NAN = math.nan
ROWS = torch.tensor(
    [[1.0, 4.0, -2.0], [NAN, 4.0, 3.0], [5.0, -1.0, NAN], [2.0, 4.0, 3.0]], dtype=torch.float64
)


def nan_is_kept() -> None:
    """NaN of any rank reaches the result, through a Partial or at once; so do indices and gradients."""
    mesh = mesh_of_all(2)
    for name in ("amax", "amin"):
        partial = getattr(torch, name)(distributed(ROWS, mesh, Shard(0)), dim=0)
        assert partial.placements[0].is_partial()
        wanted = getattr(torch, name)(ROWS, dim=0)
        torch.testing.assert_close(partial.full_tensor(), wanted, rtol=0, atol=0, equal_nan=True)
        scattered = getattr(torch, name)(distributed(ROWS.T, mesh, Shard(1)), dim=1, keepdim=True)
        assert scattered.redistribute([Replicate()]).to_local().isnan().any()
    for call in (
        torch.Tensor.max,
        torch.Tensor.min,
        lambda x: x.max(0)[0].nansum(),
        lambda x: x.amax(0).nansum(),
    ):
        plain = ROWS.clone().requires_grad_()
        ours = distributed(ROWS, mesh, Shard(0), requires_grad=True)
        wanted, got = call(plain), call(ours)
        torch.testing.assert_close(got.to_local(), wanted, equal_nan=True)
        wanted.backward()
        got.backward()
        torch.testing.assert_close(ours.grad.full_tensor(), plain.grad, equal_nan=True)
    for call in (
        lambda x: x.argmax(0),
        lambda x: x.argmin(),
        lambda x: x.max(0)[1],
        lambda x: x.min(0).indices,
    ):
        assert torch.equal(call(distributed(ROWS, mesh, Shard(0))).to_local(), call(ROWS))


def equal_values_have_no_spread() -> None:
    """The gradient of std is zero where all values are equal, as on one device, and the second one is exact."""
    mesh = mesh_of_all(2)
    whole = torch.ones(4, 2, dtype=torch.float64)
    ours = distributed(whole, mesh, Shard(0), requires_grad=True)
    ours.std(0).sum().backward()
    assert torch.equal(ours.grad.full_tensor(), torch.zeros_like(whole))


def second_derivatives() -> None:
    """`create_graph` through the implementations that reduce at once."""
    mesh = mesh_of_all(2)
    whole = torch.tensor([[1.0, -2.0], [0.5, 3.0], [0.25, 3.0], [-1.5, 1.0]], dtype=torch.float64)
    calls = (
        lambda x: (x.var(0) ** 2).sum(),
        lambda x: x.std(0).prod(),
        lambda x: (x.amax(0) ** 3).sum(),
        lambda x: (x.max(0)[0] ** 3).sum(),
        lambda x: x.prod(0).sum(),
        lambda x: (x.logsumexp(0) ** 2).sum(),
    )
    for call in calls:
        gradients = []
        for x in (whole.clone().requires_grad_(), distributed(whole, mesh, Shard(0), requires_grad=True)):
            (first,) = torch.autograd.grad(call(x), x, create_graph=True)
            (second,) = torch.autograd.grad((first * first).sum(), x)
            gradients.append(second.full_tensor() if hasattr(second, "full_tensor") else second)
        torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", [nan_is_kept, equal_values_have_no_spread, second_derivatives])
def test_by_hand(case: Callable[[], None], ranks2: RankPool) -> None:
    ranks2.run(case)
