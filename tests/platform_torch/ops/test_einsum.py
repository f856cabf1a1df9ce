"""einsum on real ranks, against one device."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.brute_force import brute_force
from tests.support.ranks import RankPool
from tests.support.sample import Input, Sample


def einsum(*operands: Any, equation: str) -> Any:
    import torch

    return torch.einsum(equation, *operands)


def einsum_of_list(*operands: Any, equation: str) -> Any:
    import torch

    return torch.einsum(equation, list(operands))


def einsum_of_numbers(x: Any, y: Any) -> Any:
    import torch

    return torch.einsum(x, [0, 1], y, [1, 2], [0, 2])


def few(*shape: int) -> Input:
    """An input whose Partials are those that linear operations know."""
    dims = tuple(f"S({dim})" for dim, size in enumerate(shape) if size > 1)
    return Input(shape, tokens=("R", "V", *dims, "P(sum)", "P(avg)"))


def sample(
    equation: str, *inputs: Input, accepts: list[str], call: Any = einsum, two_axes: int = 10
) -> Sample:
    return Sample(
        "einsum",
        call,
        list(inputs),
        [{"equation": equation}],
        accepts=accepts,
        two_axes=two_axes,
        label=equation,
    )


SAMPLES = [
    sample("ij,jk->ik", few(4, 2), few(2, 4), accepts=["S(0) R -> S(0)", "R S(1) -> S(1)", "S(1) S(0) -> P", "P R -> P"], two_axes=25),
    sample("ij, jk", few(4, 2), few(2, 4), accepts=["S(1) S(0) -> P"]),
    sample("kj,ij", few(2, 2), few(4, 2), accepts=["S(0) R -> S(1)", "R S(0) -> S(0)"]),
    sample("bhqd,bhkd->bhqk", few(2, 2, 2, 2), few(2, 2, 2, 2), accepts=["S(0) S(0) -> S(0)", "S(1) S(1) -> S(1)", "S(3) S(3) -> P", "S(2) R -> S(2)"], two_axes=25),
    sample("...ij,jk->...ik", few(2, 4, 2), few(2, 2), accepts=["S(0) R -> S(0)", "S(1) R -> S(1)", "S(2) S(0) -> P"]),
    sample("...i,...i->...", few(2, 1, 2), few(4, 2), accepts=["S(0) R -> S(0)", "R S(0) -> S(1)", "S(2) S(1) -> P"]),
    sample("...i,ij", few(2, 2), few(2, 4), accepts=["S(0) R -> S(0)", "R S(1) -> S(1)"]),
    sample("ij->ji", few(2, 4), accepts=["S(0) -> S(1)", "S(1) -> S(0)", "P -> P", "P(avg) -> P(avg)"]),
    sample("ij->", few(2, 4), accepts=["S(0) -> P", "S(1) -> P"]),
    sample("ij->j", few(2, 4), accepts=["S(0) -> P", "S(1) -> S(0)"]),
    sample("ii->i", few(4, 4), accepts=["R -> R", "P -> P"]),
    sample("iij->j", few(2, 2, 4), accepts=["S(2) -> S(0)", "P -> P"]),
    sample("ii,ij->j", few(2, 2), few(2, 2), accepts=["R S(1) -> S(0)"]),
    sample("i,j,k->ijk", few(2), few(2), few(2), accepts=["S(0) R R -> S(0)", "R R S(0) -> S(2)", "R P R -> P"], two_axes=12),
    sample("ij,jk,kl->il", few(2, 2), few(2, 2), few(2, 2), accepts=["S(0) R R -> S(0)", "R S(1) S(0) -> P", "S(1) S(0) R -> P"], two_axes=12),
    sample("ij,ij->ij", few(2, 4), few(1, 4), accepts=["S(0) R -> S(0)", "S(1) S(1) -> S(1)"]),
    sample("ij,ij->i", few(2, 4), few(2, 1), accepts=["S(0) S(0) -> S(0)", "S(1) R -> P"]),
    sample("ab,bc->ac", few(4, 2), few(2, 2), accepts=["S(1) S(0) -> P"], call=einsum_of_list),
    Sample("einsum", einsum_of_numbers, [few(4, 2), few(2, 2)], accepts=["S(1) S(0) -> P"], label="numbers", two_axes=10),
]  # fmt: skip


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_one_axis(sample: Sample, ranks2: RankPool) -> None:
    brute_force(ranks2, sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_two_axes(sample: Sample, ranks4: RankPool) -> None:
    brute_force(ranks4, sample)
