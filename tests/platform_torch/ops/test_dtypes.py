"""Dtypes that one device refuses, or that decide those of the result: refused alike, or equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from hyper_layout import LayoutError
from tests.platform_torch.helpers import S0, S1, P, R, assert_equal, laid_out, line, numbers, raised
from tests.support.ranks import RankPool

REFUSED: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: F.softmax(x, 0),
    "log_softmax": lambda x: F.log_softmax(x, 1),
    "var": lambda x: x.var(0),
    "std": lambda x: x.std(),
    "norm": lambda x: torch.norm(x),
    "vector_norm": lambda x: torch.linalg.vector_norm(x, torch.inf),
    "linalg.norm": lambda x: torch.linalg.norm(x, dtype=torch.float64),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.tensor([0, 1, 2, 3])),
    "nll_loss": lambda x: F.nll_loss(x, torch.tensor([0, 1, 2, 3])),
}
EQUAL: dict[str, Callable[[Any], Any]] = {
    "logsumexp": lambda x: x.logsumexp((0, 1)),
    "softmax to": lambda x: F.softmax(x, 0, dtype=torch.float32),
    "mean to": lambda x: x.mean(0, dtype=torch.float64),
    "sum": lambda x: x.sum(1),
}


def of_integers() -> None:
    mesh = line()
    for dtype in (torch.int64, torch.uint8, torch.bool):
        whole = (numbers(4, 4) * 3).to(dtype)
        for placement in (S0, S1, R):
            x = laid_out(whole, mesh, placement)
            for name, call in REFUSED.items():
                assert "floating or complex" in raised(lambda f=call, t=x: f(t), ValueError), name
            for name, call in EQUAL.items():
                assert_equal(call(x), call(whole), f"{name} {dtype} {placement}", 1e-6)
    split = laid_out(torch.complex(numbers(4, 4), numbers(4, 4)), mesh, S0)
    assert "no dtype for c128" in raised(
        lambda: torch.linalg.vector_norm(split, dtype=torch.float64), ValueError
    )


@pytest.mark.filterwarnings("ignore")
def test_integers(ranks2: RankPool) -> None:
    ranks2.run(of_integers)


def refusals_of_numbers() -> None:
    """A number that an integer cannot hold enters a sum on one rank, and is refused on all."""
    mesh = line()
    mask = laid_out(numbers(4, 4) > 0, mesh, R)
    for dtype in (torch.int64, torch.uint8):
        x = laid_out(torch.ones(4, 4, dtype=dtype), mesh, R).redistribute([P])
        for number in (float("inf"), 1e30):
            for write in (
                lambda t, n: t.fill_(n),
                lambda t, n: t.masked_fill(mask, n),
                lambda t, n: t.__setitem__(0, n),
                lambda t, n: t[0].fill_(n),
            ):
                assert "overflow" in raised(lambda w=write, t=x, n=number: w(t, n))
        assert_equal(x.fill_(2.5), torch.full((4, 4), 2, dtype=dtype))
        x[1] = 3.5
        assert_equal(x[1], torch.full((4,), 3, dtype=dtype))
        assert (x + float("inf")).full_tensor().isinf().all()


def test_all_ranks_refuse_a_number_alike(ranks2: RankPool) -> None:
    ranks2.run(refusals_of_numbers)


def into_out() -> None:
    mesh = line()
    x = laid_out(numbers(4, 4), mesh, S0)
    narrow = laid_out(torch.zeros(4, 4, dtype=torch.float32), mesh, S0)
    assert_equal(torch.mul(x, 2.0, out=narrow), (numbers(4, 4) * 2).float())
    for dtype in (torch.int64, torch.bool):
        out = laid_out(torch.zeros(4, 4, dtype=dtype), mesh, S0)
        assert "cannot hold the result, f64" in raised(lambda o=out: torch.mul(x, 2.0, out=o), LayoutError)
        assert not out.full_tensor().any()
    flags = laid_out(torch.ones(4, 4, dtype=torch.bool), mesh, S0)
    assert_equal(torch.mul(flags, True, out=narrow), torch.ones(4, 4))


def test_out_of_another_kind(ranks2: RankPool) -> None:
    ranks2.run(into_out)


def targets_of_another_batch() -> None:
    mesh = line()
    for placement in (S0, S1, R):
        x = laid_out(numbers(4, 4), mesh, placement)
        for target in (torch.tensor([0, 1]), torch.tensor([1])):
            for loss in (F.cross_entropy, F.nll_loss):
                assert "the target of an input of shape (4, 4)" in raised(
                    lambda f=loss, t=target, y=x: f(y, t), ValueError
                )


def test_targets_of_another_batch(ranks2: RankPool) -> None:
    ranks2.run(targets_of_another_batch)
