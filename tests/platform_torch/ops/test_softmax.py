"""softmax and log_softmax on real ranks, against one device."""

from __future__ import annotations

import pytest
import torch

from hyper_layout import Shard
from tests.support.brute_force import brute_force
from tests.support.on_ranks import distributed, mesh_of_all
from tests.support.ranks import RankPool
from tests.support.sample import Input, Sample

X = (2, 4, 6)
SPLIT = ["S(0) -> S(0)", "S(1) -> S(1)", "S(2) -> S(2)", "V -> R"]
DIMS = [{"dim": -1}, {"dim": 1}, {"dim": 0}]

SAMPLES = [
    Sample("softmax", "torch.softmax", [X], DIMS, accepts=SPLIT),
    Sample("log_softmax", "torch.log_softmax", [X], DIMS, accepts=SPLIT),
    Sample("softmax", "F.softmax", [(4, 6)], [{"dim": 1}, {"dim": 0}], label="functional"),
    Sample("log_softmax", "Tensor.log_softmax", [(4, 6)], [(0,), (-1,)], label="method"),
    Sample("softmin", "F.softmin", [(4, 6)], [{"dim": 0}, {"dim": 1}], accepts=["S(0) -> S(0)"], two_axes=8),
    Sample(
        "softmax", "torch.softmax", [Input((4, 6), dtype="bfloat16")], [{"dim": 0}], label="bf16", two_axes=4
    ),
    Sample(
        "softmax",
        "F.softmax",
        [Input((4, 6), dtype="float32")],
        [{"dim": 0, "dtype": torch.float64}],
        tolerance=1e-6,
        label="cast",
    ),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_one_axis(sample: Sample, ranks2: RankPool) -> None:
    brute_force(ranks2, sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_two_axes(sample: Sample, ranks4: RankPool) -> None:
    brute_force(ranks4, sample)


def whole_and_second_derivatives() -> None:
    """Masked rows, large values, second derivatives; two all-reduces forward and one backward."""
    from hyper_dtensor import CommDebugMode

    mesh = mesh_of_all(2)
    inf = float("inf")
    hard = torch.tensor([[1e4, -1e4, 0.0, 1e4], [-inf, -inf, 1.0, 2.0], [-inf] * 4, [0.0, inf, 1.0, 2.0]])
    for name in ("softmax", "log_softmax"):
        got = getattr(torch, name)(distributed(hard, mesh, Shard(1)), 1).full_tensor()
        torch.testing.assert_close(got, getattr(torch, name)(hard, 1), equal_nan=True)
    values = torch.linspace(-2, 3, 12, dtype=torch.float64).reshape(3, 4).sin()
    weight = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
    for name in ("softmax", "log_softmax"):
        gradients = []
        for place in (lambda t: t.clone(), lambda t: distributed(t, mesh, Shard(1))):
            x = place(values).requires_grad_()
            (first,) = torch.autograd.grad(
                (getattr(torch, name)(x, 1) * place(weight)).sum(), x, create_graph=True
            )
            (second,) = torch.autograd.grad((first * first).sum(), x)
            gradients.append(second.full_tensor() if hasattr(second, "full_tensor") else second)
        torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-12, atol=1e-12)
    x = distributed(values, mesh, Shard(1), requires_grad=True)
    with CommDebugMode() as forward:
        y = torch.softmax(x, 1)
    assert forward.counts == {"all_reduce": 2}, forward.counts
    with CommDebugMode() as backward:
        y.backward(distributed(weight, mesh, Shard(1)))
    assert backward.counts == {"all_reduce": 1}, backward.counts


def test_by_hand(ranks2: RankPool) -> None:
    ranks2.run(whole_and_second_derivatives)
