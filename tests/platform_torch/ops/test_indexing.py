"""Indexing and writing through an index on real ranks, against one device."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.brute_force import brute_force
from tests.support.ranks import RankPool
from tests.support.sample import Input, Sample

X = (4, 6, 2)
FEW = ("R", "V", "S(0)", "S(1)", "P(sum)", "P(max)")
PARTIALS = [f"P({op}) -> P({op})" for op in ("sum", "avg", "max", "min", "prod")]
ALL = slice(None)


def take(x: Any, *, index: Any) -> Any:
    return x[index]


def take_by(x: Any, i: Any, *, before: tuple[Any, ...] = (), after: tuple[Any, ...] = ()) -> Any:
    return x[(*before, i, *after)]


def take_by_two(x: Any, i: Any, j: Any, *, between: tuple[Any, ...] = ()) -> Any:
    return x[(i, *between, j)]


def put(x: Any, *, index: Any, value: float) -> None:
    x[index] = value


def put_tensor(x: Any, value: Any, *, index: Any) -> None:
    x[index] = value


def put_by(x: Any, i: Any, *, value: float, before: tuple[Any, ...] = ()) -> None:
    x[(*before, i)] = value


def put_tensor_by(x: Any, i: Any, value: Any) -> None:
    x[i] = value


def zero_slice(x: Any, *, index: Any) -> None:
    """What is written into a view reaches the tensor."""
    x[index].zero_()


def add_to_views_of_views(x: Any) -> None:
    x.transpose(0, 1)[1:, 0].view(-1).mul_(2.0)
    x[..., 1:].squeeze(-1).unsqueeze(0).permute(2, 1, 0)[3:].add_(1.0)


def at(*index: Any) -> dict[str, Any]:
    return {"index": index[0] if len(index) == 1 else index}


def written(*index: Any, value: float = 7.0) -> dict[str, Any]:
    return {**at(*index), "value": value}


def index_of(size: int, *shape: int, tokens: tuple[str, ...] | None = None) -> Input:
    return Input(shape, "integers", low=-size, high=size, tokens=tokens)


PLAIN_INDICES = [
    at(0),
    at(-1),
    at(3, 5),
    at(ALL, 2),
    at(..., -2),
    at(1, ALL, 0),
    at(None, 1, ..., None),
    at(1, 2, 1),
]
SLICES = [
    at(ALL),
    at(slice(1, 3)),
    at(ALL, slice(0, None)),
    at(slice(-4, 9), slice(1, None, 3)),
    at(..., slice(None, 1)),
    at(slice(None, None, 2)),
    at(ALL, slice(2, None, 3), 1),
    at(...),
    at(ALL, slice(3, 3)),
    at(ALL, slice(0, 6, 3)),
]
OWNED = ["S(0) -> P(sum)", "S(1) -> S(0)", "S(2) -> S(1)", "V -> R", *PARTIALS]

SAMPLES = [
    Sample("getitem", take, [X], PLAIN_INDICES, accepts=OWNED, two_axes=16),
    Sample(
        "getitem",
        take,
        [X],
        SLICES,
        accepts=["S(0) -> S(0)", "S(1)", "S(2)", *PARTIALS],
        label="slices",
        two_axes=16,
    ),
    Sample(
        "getitem",
        take,
        [(8, 4)],
        [at(slice(1, None, 2)), at(slice(None, None, 4)), at(slice(3, 8, 4), ALL)],
        accepts=["S(0) -> S(0)"],
        label="steps",
        two_axes=8,
    ),
    Sample(
        "getitem",
        take,
        [X],
        [at([0, 2, -1]), at(ALL, [[1], [0]]), at([1, 0], ALL, [0, 1]), at([1, 0], 1, [[0], [1]])],
        accepts=[*OWNED[:1], *PARTIALS],
        label="lists",
        two_axes=20,
    ),
    Sample(
        "getitem",
        take,
        [Input((4, 6), "booleans")],
        [at(0), at(ALL, 1), at([2, 1])],
        accepts=["S(0) -> P(max)", "S(1) -> S(0)"],
        label="booleans",
        two_axes=8,
    ),
    Sample(
        "getitem",
        take,
        [Input((4, 6), "integers")],
        [at(3), at(ALL, [1, 1])],
        accepts=["S(0) -> P(sum)", "P -> P"],
        label="integers",
        two_axes=8,
    ),
    Sample(
        "getitem",
        take_by,
        [(4, 6), index_of(4, 3)],
        [{}, {"after": (ALL,)}, {"after": (1,)}, {"after": (None,)}],
        accepts=["S(0) R -> P(sum)", "S(1) R -> S(1)", "P R -> P", "V R -> R"],
        label="tensor",
        two_axes=16,
    ),
    Sample(
        "getitem",
        take_by,
        [(4, 6), index_of(6, 4, 2)],
        [{"before": (ALL,)}, {"before": (slice(1, 3),)}],
        accepts=["R S(0) -> S(1)", "R S(1) -> S(2)", "S(0) R -> S(0)", "S(1) R -> P(sum)"],
        label="matrix of indices",
        two_axes=16,
    ),
    Sample(
        "getitem",
        take_by,
        [(4, 6), index_of(4, tokens=("R", "plain"))],
        [{}],
        accepts=["S(0) R -> P(sum)", "S(1) plain -> S(0)"],
        label="0d",
        two_axes=8,
    ),
    Sample(
        "getitem",
        take_by,
        [(4, 6), index_of(4, 3, tokens=("plain",))],
        accepts=["S(0) plain -> P(sum)", "S(1) plain -> S(1)"],
        label="plain tensor",
        two_axes=8,
    ),
    Sample(
        "getitem",
        take_by_two,
        [Input((4, 2, 6), tokens=("R", "S(0)", "S(1)", "S(2)", "P(sum)")), index_of(4, 4), index_of(6, 4)],
        [{"between": (ALL,)}, {"between": (0,)}],
        accepts=["R S(0) S(0) -> S(0)", "S(0) R R -> P(sum)", "S(2) R R -> P(sum)", "S(1) R R -> S(1)"],
        label="two tensors",
        two_axes=16,
    ),
    Sample(
        "getitem",
        take_by_two,
        [Input((4, 6), tokens=("R", "S(0)", "S(1)")), index_of(4, 4, 1), index_of(6, 2)],
        accepts=["R S(0) R -> S(0)", "R R S(0) -> S(1)", "S(1) R R -> P(sum)"],
        label="broadcast",
        two_axes=20,
    ),
    Sample(
        "getitem",
        take_by,
        [(4, 6), Input((4,), "booleans", tokens=("R", "S(0)"))],
        [{}, {"after": (slice(1, 4),)}],
        accepts=["S(1) R -> S(1)", "P R -> P"],
        label="mask",
        two_axes=8,
    ),
    Sample(
        "getitem",
        take_by,
        [(2, 4, 2), Input((2, 4), "booleans", tokens=("R", "S(0)"))],
        accepts=["S(2) R -> S(1)"],
        label="mask of two dims",
        two_axes=8,
    ),
    Sample("select", "torch.select", [X], [(0, 1), {"dim": -1, "index": -1}], accepts=OWNED, two_axes=20),
    Sample(
        "narrow",
        "torch.narrow",
        [X],
        [(1, 2, 3), (0, 0, 4), (-1, -1, 1)],
        accepts=["S(0) -> S(0)", "S(1)", "S(2)", *PARTIALS],
        two_axes=20,
    ),
    Sample(
        "setitem",
        put,
        [(4, 6)],
        [
            written(1),
            written(ALL, -1),
            written(slice(1, 3)),
            written(0, slice(1, None, 2), value=2.0),
            written(..., value=1.0),
        ],
        inplace=True,
        accepts=["S(0)", "S(1)", "P", "P(max)", "P(avg)", "V"],
        label="number",
        two_axes=16,
    ),
    Sample(
        "setitem",
        put,
        [Input((4, 6), "integers")],
        [written(2, value=3.0), written(ALL, slice(2, 5), value=2.0)],
        inplace=True,
        grads=False,
        accepts=["S(0)", "S(1)", "P"],
        label="integers",
        two_axes=16,
    ),
    Sample(
        "setitem",
        put_tensor,
        [(4, 6), (6,)],
        [at(1), at(-1), at(slice(1, 3)), at(slice(0, 4, 2))],
        inplace=True,
        accepts=["S(0) R", "S(1) S(0)", "P P", "P R", "P(avg) R", "V R", "V V", "R R"],
        label="row",
        two_axes=16,
    ),
    Sample(
        "setitem",
        put_tensor,
        [(4, 6), (2, 6)],
        [at(slice(1, 3)), at(slice(0, None, 3))],
        inplace=True,
        accepts=["S(0) R", "S(1) S(1)", "P P", "P R"],
        label="rows",
        two_axes=20,
    ),
    Sample(
        "setitem",
        put_tensor,
        [(4, 6), (4, 1)],
        [at(ALL, slice(1, 4)), at(..., slice(0, 6, 2))],
        inplace=True,
        accepts=["S(0) S(0)", "S(1) R", "P R"],
        label="column",
        two_axes=20,
    ),
    Sample(
        "setitem",
        put_tensor,
        [(4, 6), ()],
        [at(2, 3), at(ALL, 5), at([0, 2])],
        inplace=True,
        accepts=["S(0) R", "S(1) R", "P R", "P P"],
        label="0d",
        two_axes=16,
    ),
    Sample(
        "setitem",
        put_by,
        [(4, 6), Input((4, 6), "booleans")],
        [{"value": 2.0}, {"value": 0.0}],
        inplace=True,
        accepts=["S(0) S(0)", "S(1) S(1)", "P R"],
        label="mask",
        two_axes=16,
    ),
    Sample(
        "setitem",
        put_by,
        [(4, 6), Input((6,), "booleans")],
        [{"value": 2.0, "before": (ALL,)}],
        inplace=True,
        accepts=["S(0) R", "S(1) S(0)"],
        label="mask of columns",
        two_axes=10,
    ),
    Sample(
        "setitem",
        put_tensor_by,
        [(4, 6), index_of(4, 1, tokens=("R", "plain", "S(0)")), (1, 6)],
        inplace=True,
        accepts=["S(1) R S(1)", "P R P", "R plain R"],
        label="tensor",
        two_axes=16,
    ),
    Sample(
        "zero_",
        zero_slice,
        [(4, 6)],
        [at(1), at(slice(1, 4)), at(ALL, slice(0, 2)), at(ALL, 3), at(..., None)],
        inplace=True,
        accepts=["S(0)", "S(1)", "P", "V"],
        label="of a view",
        two_axes=16,
    ),
    Sample(
        "mul_",
        add_to_views_of_views,
        [(4, 6, 2)],
        inplace=True,
        accepts=["R", "P"],
        label="of views of views",
        two_axes=10,
    ),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_one_axis(sample: Sample, ranks2: RankPool) -> None:
    brute_force(ranks2, sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_two_axes(sample: Sample, ranks4: RankPool) -> None:
    brute_force(ranks4, sample)
