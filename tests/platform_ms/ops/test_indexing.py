"""Indexing, and reading and adding by index, of MindSpore in every form, against one device."""

from __future__ import annotations

import pytest

from tests.platform_ms.comparison import compare
from tests.platform_ms.ops.samples import few, name_of
from tests.support.ms_ranks import MindSporeRankPool
from tests.support.sample import Input, Sample


def at(x: object, *index: object) -> object:
    return x[index if len(index) > 1 else index[0]]  # type: ignore[index]


def each(x: object) -> object:
    return list(x)  # type: ignore[call-overload]


def ids(*shape: int, high: int = 4) -> Input:
    dims = tuple(f"S({dim})" for dim, size in enumerate(shape) if size > 1)
    return Input(shape, "integers", high=high, tokens=("R", *dims))


def gather_primitive(x: object, index: object, axis: int) -> object:
    from mindspore import ops

    return ops.Gather()(x, index, axis)


def gather_along(x: object, index: object, dim: int) -> object:
    from mindspore import mint

    return mint.gather(x, dim, index)


def select_along(x: object, index: object, dim: int) -> object:
    return x.index_select(dim, index)  # type: ignore[attr-defined]


def add_along(x: object, index: object, source: object) -> object:
    from mindspore import ops

    return ops.tensor_scatter_elements(x, index, source, 0, "add")


def read(x: object, index: object) -> object:
    return x[index]  # type: ignore[index]


SAMPLES = [
    Sample(
        "getitem",
        at,
        [few(4, 2)],
        [(0,), (-1,), (3,)],
        accepts=["S(0) -> P(sum)", "S(1) -> S(0)", "P -> P"],
        label="int",
    ),
    Sample(
        "getitem",
        at,
        [few(4, 2)],
        [(slice(None), 1)],
        accepts=["S(0) -> S(0)", "S(1) -> P(sum)"],
        label="column",
    ),
    Sample(
        "getitem",
        at,
        [few(4, 4)],
        [(slice(None), slice(1, 3))],
        accepts=["S(0) -> S(0)", "P -> P"],
        label="slice",
    ),
    Sample(
        "getitem",
        at,
        [few(4, 2)],
        [(slice(1, None),), (slice(None, None, 2),)],
        accepts=["S(1) -> S(1)"],
        label="rows",
    ),
    Sample(
        "getitem",
        at,
        [few(4, 2)],
        [(slice(None), None)],
        accepts=["S(0) -> S(0)", "S(1) -> S(2)"],
        label="none",
    ),
    Sample("getitem", at, [few(4, 2)], [(..., 0)], accepts=["S(0) -> S(0)"], label="ellipsis"),
    Sample("getitem", at, [few(4, 2)], [([0, 2],)], accepts=["S(0) -> P(sum)", "S(1) -> S(1)"], label="list"),
    Sample(
        "getitem",
        read,
        [few(4, 2), ids(2)],
        accepts=["S(0) R -> P(sum)", "S(1) R -> S(1)", "R S(0) -> S(0)"],
        label="tensor",
    ),
    Sample("iter", each, [few(4, 2)], accepts=["S(1)", "S(0)"]),
    Sample(
        "gather",
        gather_along,
        [few(4, 2), ids(2, 2)],
        [(0,)],
        accepts=["S(0) R -> P(sum)", "S(1) S(1) -> S(1)"],
    ),
    Sample(
        "gather",
        gather_along,
        [few(4, 2), ids(4, 2, high=2)],
        [(1,)],
        accepts=["S(1) R -> P(sum)", "S(0) S(0) -> S(0)"],
    ),
    Sample(
        "index_select",
        select_along,
        [few(4, 2), ids(2)],
        [(0,)],
        accepts=["S(0) R -> P(sum)", "R S(0) -> S(0)"],
    ),
    Sample("scatter_add", add_along, [few(4, 2), ids(2, 2), few(2, 2)], accepts=["S(1) S(1) S(1) -> S(1)"]),
    Sample(
        "gather",
        "ops.gather",
        [
            few(4, 2),
            ids(2),
        ],
        [(0,)],
        accepts=["S(0) R -> P(sum)", "S(1) R -> S(1)"],
    ),
    Sample(
        "gather", "ops.gather", [few(2, 4), ids(2, 2)], [(1,)], accepts=["S(0) R -> S(0)", "S(1) R -> P(sum)"]
    ),
    Sample("gather", gather_primitive, [few(4, 2), ids(2)], [(0,)], accepts=["S(0) R -> P(sum)"]),
    Sample(
        "masked_select",
        "ops.masked_select",
        [few(4, 2), Input((4, 2), "booleans", tokens=("R",))],
        accepts=["R R -> R"],
    ),
    Sample("sort", "ops.sort", [few(4, 2)], [(1,), (1, True)], accepts=["S(0) -> S(0),S(0)"]),
    Sample(
        "sort",
        "Tensor.sort",
        [few(4, 2)],
        [{"dim": 1}, {"dim": 1, "descending": True}],
        accepts=["S(0) -> S(0),S(0)"],
    ),
    Sample("topk", "ops.topk", [few(4, 4)], [{"k": 2}, {"k": 1, "dim": 1}], accepts=["S(0) -> S(0),S(0)"]),
    Sample("cumsum", "ops.cumsum", [few(4, 2)], [(1,)], accepts=["S(0) -> S(0)", "P -> P"]),
    Sample("cumsum", "Tensor.cumsum", [few(4, 2)], [(1,)], accepts=["S(0) -> S(0)", "P -> P"]),
    Sample("zeros_like", "ops.zeros_like", [few(4, 2)], accepts=["S(0) -> S(0)", "P -> R"]),
    Sample(
        "stop_gradient", "ops.stop_gradient", [few(4, 2)], accepts=["S(0) -> S(0)", "P -> P"], grads=False
    ),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=name_of)
def test_on_two_ranks(sample: Sample, ms_ranks2: MindSporeRankPool) -> None:
    compare(ms_ranks2, sample)
