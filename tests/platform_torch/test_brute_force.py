"""The brute-force harness itself: what is wrong on ranks does not pass."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.brute_force import brute_force
from tests.support.ranks import RankError, RankPool
from tests.support.sample import Input, Sample

X = (4, 2)


def distributed(x: Any) -> bool:
    return hasattr(x, "_spec")


def is_split(x: Any) -> bool:
    return distributed(x) and x.placements[0].is_shard(0)


def wrong_value(x: Any) -> Any:
    return x * 2.0 if is_split(x) else x * 1.0


def wrong_gradient(x: Any) -> Any:
    return x * x.detach() if is_split(x) else x * x


def wrong_for_varying(x: Any) -> Any:
    """Multiplied by the rank in the gradient alone: the sum over the ranks is wrong."""
    if distributed(x) and x._spec.varying:
        return x * 3.0 - (x * 2.0).detach()
    return x * 1.0


def lost_gradient(x: Any) -> Any:
    return x.detach() * 1.0 if is_split(x) else x * 1.0


def wrong_dtype(x: Any) -> Any:
    return (x * 1.0).float() if is_split(x) else x * 1.0


def writes_its_input(x: Any) -> Any:
    result = x * 1.0
    if is_split(x):
        x._local.detach().add_(1.0)
    return result


def stale_number(x: Any, factor: float) -> Any:
    """As a cache that keeps the number of the first call."""
    if not distributed(x):
        return x * factor
    return x * STALE.setdefault(str(x.placements), factor)


STALE: dict[str, float] = {}


def refuses_split(x: Any) -> Any:
    if is_split(x):
        raise ValueError("never split")
    return x * 1.0


def refuses_on_one_rank(x: Any) -> Any:
    import torch

    if is_split(x) and torch.distributed.get_rank() == 1:
        raise ValueError("not here")
    return x * 1.0


def breaks(x: Any) -> Any:
    if is_split(x):
        raise KeyError("a bug is no refusal")
    return x * 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (wrong_value, r"S\(0\)  \(rank 0\)\n    variant 0: output 0 .* error"),
        (wrong_gradient, r"S\(0\)  \(rank 0\)\n    variant 0: the gradient of input 0: error"),
        (wrong_for_varying, r"V  \(rank 0\)\n    variant 0: the gradient of input 0: error"),
        (lost_gradient, "the result needs no gradient"),
        (wrong_dtype, r"is torch.float32\[4, 2\] instead of torch.float64\[4, 2\]"),
        (writes_its_input, "input 0 was written to"),
        (breaks, "a bug is no refusal"),
    ],
)
def test_what_is_wrong_is_found(call: Any, message: str, ranks2: RankPool) -> None:
    with pytest.raises(AssertionError, match=message):
        brute_force(ranks2, Sample("wrong", call, [X]))


def test_a_number_kept_from_the_first_call_is_found(ranks2: RankPool) -> None:
    with pytest.raises(AssertionError, match="variant 1: output 0"):
        brute_force(ranks2, Sample("stale", stale_number, [X], [(2.0,), (3.0,)]))


def test_refusals_are_reported_and_rows_must_be_accepted(ranks2: RankPool) -> None:
    report = brute_force(ranks2, Sample("refuses", refuses_split, [X], accepts=["S(1) -> S(1)", "R"]))
    assert report.refused["S(0)"] == "never split"
    assert report.accepted["S(1)"] == "S(1)"
    with pytest.raises(AssertionError, match=r"S\(0\): never split\n  S\(1\): gives S\(1\), not R"):
        brute_force(ranks2, Sample("refuses", refuses_split, [X], accepts=["S(0) -> S(0)", "S(1) -> R"]))


def test_ranks_that_do_not_agree_on_a_refusal_are_found(ranks2: RankPool) -> None:
    with pytest.raises((RankError, AssertionError)):
        brute_force(ranks2, Sample("one rank", refuses_on_one_rank, [Input(X, tokens=("S(0)", "R", "V"))]))


def test_two_axes(ranks4: RankPool) -> None:
    with pytest.raises(AssertionError, match=r"\[S\(0\)\] \[.*\].*  \(rank 0\)"):
        brute_force(ranks4, Sample("wrong", wrong_value, [X]))
