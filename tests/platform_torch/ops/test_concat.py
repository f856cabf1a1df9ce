"""Joining tensors on real ranks, against one device."""

from __future__ import annotations

import pytest

from tests.support.brute_force import brute_force
from tests.support.ranks import RankPool
from tests.support.sample import Input, Sample

A, B = Input((2, 4)), Input((4, 4))
ALIKE = ["S(0) S(0) -> S(0)", "S(1) S(1) -> S(1)", "V R -> R", "R V -> R"]
PARTIALS = [f"P({op}) P({op}) -> P({op})" for op in ("sum", "avg", "max", "min", "prod")]
ONCE = [
    "P R -> P",
    "R P -> P",
    "P V -> P",
    "V P -> P",
    "P(avg) R -> P(avg)",
    "R P(max) -> P(max)",
    "P(min) R -> P(min)",
]


def joined(op: str, inputs: list[object], **more: object) -> Sample:
    return Sample(op, f"torch.{op}", inputs, tensors_in_list=True, **more)  # type: ignore[arg-type]


def one_of_many(tensors: list[object]) -> object:
    """Keyword form."""
    import torch

    return torch.cat(tensors=tensors, dim=-1)  # type: ignore[call-overload]


SAMPLES = [
    joined("cat", [A, B], accepts=[ALIKE[1], *ALIKE[2:], *PARTIALS, *ONCE], two_axes=12),
    joined(
        "cat",
        [A, Input((2, 6))],
        variants=[{"dim": 1}, {"dim": -1}],
        accepts=[ALIKE[0], *PARTIALS, *ONCE],
        label="dim",
        two_axes=12,
    ),
    joined(
        "concat",
        [Input((2,), tokens=("R", "V", "S(0)", "P(sum)"))] * 3,
        accepts=["P R P -> P", "R R P -> P"],
        two_axes=12,
    ),
    Sample("cat", one_of_many, [A, A], tensors_in_list=True, label="keyword", two_axes=4),
    joined(
        "stack",
        [A, A],
        variants=[{}, {"dim": 1}, {"dim": -1}],
        accepts=["S(0) S(0) -> S(1)", "S(1) S(1) -> S(2)", *ALIKE[2:], *PARTIALS, *ONCE],
        two_axes=12,
    ),
    joined("hstack", [A, A], accepts=["S(0) S(0) -> S(0)", "P P -> P"], two_axes=6),
    joined("hstack", [Input((4,)), Input((2,))], accepts=["P R -> P"], label="vectors", two_axes=6),
    joined("vstack", [A, B], accepts=["S(1) S(1) -> S(1)", "P P -> P"], two_axes=6),
    joined(
        "vstack",
        [Input((4,)), Input((4,))],
        accepts=["S(0) S(0) -> S(1)", "P R -> P"],
        label="vectors",
        two_axes=6,
    ),
    joined("cat", [A, Input((2, 4), "integers", grad=False)], label="types", two_axes=4),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_one_axis(sample: Sample, ranks2: RankPool) -> None:
    brute_force(ranks2, sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_two_axes(sample: Sample, ranks4: RankPool) -> None:
    brute_force(ranks4, sample)
