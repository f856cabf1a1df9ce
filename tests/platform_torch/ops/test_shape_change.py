"""Dims that move, appear, vanish or repeat, on real ranks, against one device."""

from __future__ import annotations

import pytest
import torch

from tests.platform_torch.helpers import S1, R, assert_equal, laid_out, line, numbers
from tests.support.brute_force import brute_force
from tests.support.ranks import RankPool
from tests.support.sample import Input, Sample

X = (2, 4, 6)
SPLIT = ["S(0)", "S(1)", "S(2)", "V -> R"]
PARTIALS = [f"P({op}) -> P({op})" for op in ("sum", "avg", "max", "min", "prod")]
ANY = [*SPLIT, *PARTIALS]
FEW = ("R", "V", "S(0)", "S(1)", "S(2)", "P(sum)", "P(max)")

SAMPLES = [
    Sample(
        "transpose",
        "torch.transpose",
        [X],
        [(0, 1), (-1, 0)],
        accepts=[*ANY, "S(0) -> S(1)", "S(2) -> S(2)"],
        two_axes=8,
    ),
    Sample(
        "swapaxes", "torch.swapaxes", [X], [{"axis0": 0, "axis1": 2}], accepts=["S(0) -> S(2)"], two_axes=6
    ),
    Sample(
        "swapdims", "Tensor.swapdims", [Input(X, tokens=FEW)], [(0, 2)], accepts=["S(2) -> S(0)"], two_axes=6
    ),
    Sample(
        "permute",
        "torch.permute",
        [X],
        [((2, 0, 1),), {"dims": (1, 0, 2)}],
        accepts=[*ANY, "S(0) -> S(1)"],
        two_axes=8,
    ),
    Sample(
        "permute",
        "Tensor.permute",
        [Input(X, tokens=FEW)],
        [(2, 0, 1), (-1, -2, 0)],
        label="method",
        two_axes=8,
    ),
    Sample(
        "movedim",
        "torch.movedim",
        [Input(X, tokens=FEW)],
        [(0, -1), ((0, 1), (2, 0))],
        accepts=["S(0) -> S(2)"],
        two_axes=8,
    ),
    Sample(
        "moveaxis", "torch.moveaxis", [Input(X, tokens=FEW)], [(1, 0)], accepts=["S(1) -> S(0)"], two_axes=6
    ),
    Sample("t", "torch.t", [(4, 6)], accepts=["S(0) -> S(1)", "S(1) -> S(0)", *PARTIALS], two_axes=12),
    Sample("t", "Tensor.t", [(4,)], accepts=["S(0) -> S(0)"], label="vector", two_axes=4),
    Sample("T", "torch.Tensor.T.__get__", [(4, 6)], accepts=["S(0) -> S(1)"], two_axes=6),
    Sample("mT", "torch.Tensor.mT.__get__", [Input(X, tokens=FEW)], accepts=["S(1) -> S(2)"], two_axes=6),
    Sample(
        "squeeze",
        "torch.squeeze",
        [(2, 1, 4, 1)],
        [{}, (1,), {"dim": (1, 3)}, (0,)],
        accepts=["S(0) -> S(0)", "S(2) -> S(1)", *PARTIALS],
        two_axes=8,
    ),
    Sample(
        "squeeze", "Tensor.squeeze", [(1, 2)], [(), (1,)], accepts=["S(1) -> S(0)"], label="kept", two_axes=8
    ),
    Sample(
        "unsqueeze",
        "torch.unsqueeze",
        [(2, 4)],
        [(0,), (-1,), {"dim": 1}],
        accepts=["S(0) -> S(1)", "S(1) -> S(2)", *PARTIALS],
        two_axes=8,
    ),
    Sample(
        "expand",
        "Tensor.expand",
        [(2, 1, 4)],
        [(2, 3, 4), ((3, -1, 5, -1),)],
        accepts=["S(0) -> S(0)", "S(2) -> S(2)", *PARTIALS],
        two_axes=8,
    ),
    Sample(
        "broadcast_to",
        "torch.broadcast_to",
        [(4, 1)],
        [((2, 4, 3),)],
        accepts=["S(0) -> S(1)", "P -> P"],
        two_axes=8,
    ),
    Sample(
        "expand_as",
        "Tensor.expand_as",
        [(1, 4), (2, 2, 4)],
        accepts=[
            "R S(0) -> S(0)",
            "R S(1) -> S(1)",
            "R S(2) -> R",
            "S(1) R -> S(2)",
            "S(1) S(0) -> S(2)",
            "P S(0) -> P",
        ],
        two_axes=20,
    ),
    Sample(
        "flip",
        "torch.flip",
        [X],
        [((0,),), {"dims": (-1, 1)}],
        accepts=["S(1) -> S(1)", "S(0)", *PARTIALS],
        two_axes=8,
    ),
    Sample(
        "flip",
        "Tensor.flip",
        [Input(X, tokens=FEW)],
        [(0,), (0, 1)],
        label="method",
        accepts=["S(2) -> S(2)"],
        two_axes=6,
    ),
    Sample(
        "roll",
        "torch.roll",
        [X],
        [(1, 1), ((1, 2), (0, 1)), (3,)],
        accepts=["S(0) -> S(0)", "S(2)", *PARTIALS],
        two_axes=8,
    ),
    Sample(
        "repeat",
        "Tensor.repeat",
        [(2, 4)],
        [(3, 1), ((2, 1, 3),)],
        accepts=["S(1) -> S(1)", "S(0)", *PARTIALS],
        two_axes=8,
    ),
    Sample(
        "tile",
        "torch.tile",
        [(2, 4)],
        [((3,),), {"dims": (2, 3, 1)}],
        accepts=["S(0) -> S(0)", "S(1)", "P -> P"],
        two_axes=8,
    ),
    Sample(
        "repeat_interleave",
        "torch.repeat_interleave",
        [(2, 4)],
        [(3, 1), {"repeats": 2, "dim": 0}, (2,)],
        accepts=["S(0) -> S(0)", "S(1) -> S(1)", *PARTIALS],
        two_axes=8,
    ),
    Sample(
        "repeat_interleave",
        "torch.repeat_interleave",
        [(2, 4), Input((4,), "integers", tokens=("R", "plain", "S(0)"))],
        [{"dim": 1}],
        accepts=["S(0) R -> S(0)", "S(0) plain -> S(0)", "P R -> P"],
        label="tensor",
        two_axes=8,
    ),
    Sample(
        "diagonal",
        "torch.diagonal",
        [(4, 6, 4)],
        [{}, (1, 0, 2)],
        accepts=["S(2) -> S(0)", "S(1)", *PARTIALS],
        two_axes=8,
    ),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_one_axis(sample: Sample, ranks2: RankPool) -> None:
    brute_force(ranks2, sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_two_axes(sample: Sample, ranks4: RankPool) -> None:
    brute_force(ranks4, sample)


def repeated_by_values() -> None:
    """The shape of the result depends on the values of ``repeats``: nothing of a call before is used."""
    mesh = line()
    x, plain = numbers(3, 4), laid_out(numbers(3, 4), mesh, S1)
    for values in ([1, 2, 3], [2, 0, 1], [0, 0, 0], [1, 2, 3]):
        repeats = torch.tensor(values)
        for given in (repeats, laid_out(repeats, mesh, R)):
            assert_equal(plain.repeat_interleave(given, 0), x.repeat_interleave(repeats, 0), str(values))
    for count in (1, 3, 0):
        for number in (torch.tensor(count), laid_out(torch.tensor(count), mesh, R)):
            assert_equal(plain.repeat_interleave(number, 0), x.repeat_interleave(count, 0), str(count))


def test_repeats_may_have_other_values_at_each_call(ranks2: RankPool) -> None:
    ranks2.run(repeated_by_values)
