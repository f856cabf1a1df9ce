"""Views, joins and pieces of MindSpore in every form, against one device."""

from __future__ import annotations

import pytest

from tests.platform_ms.comparison import compare
from tests.platform_ms.ops.samples import few, name_of
from tests.support.ms_ranks import MindSporeRankPool
from tests.support.sample import Sample


def by_keyword(x: object) -> object:
    return x.reshape((2, 2, 2))  # type: ignore[attr-defined]


def transposed(x: object) -> object:
    return x.T  # type: ignore[attr-defined]


def squeeze(x: object) -> object:
    from mindspore import ops

    return ops.Squeeze(1)(x)


def concat(tensors: list[object]) -> object:
    from mindspore import ops

    return ops.Concat(1)(tensors)


PASS = ["P -> P", "P(avg) -> P(avg)"]
SAMPLES = [
    Sample("reshape", "mint.reshape", [few(4, 2)], [((8,),), ((2, 2, 2),)], accepts=["S(0) -> S(0)", *PASS]),
    Sample("reshape", "ops.reshape", [few(4, 2)], [((2, 4),), ((-1, 2),)], accepts=["S(0) -> S(0)"]),
    Sample("reshape", "Tensor.reshape", [few(4, 2)], [(2, 4), ((8,),)], accepts=["S(0) -> S(0)"]),
    Sample("reshape", by_keyword, [few(4, 2)], accepts=["S(0) -> S(0)", "S(1) -> S(2)"]),
    Sample("view", "Tensor.view", [few(4, 2)], [(2, 2, 2)], accepts=["S(0) -> S(0)", "S(1) -> S(2)"]),
    Sample("flatten", "mint.flatten", [few(2, 2, 2)], [(1,), (0, 1)], accepts=["S(0) -> S(0)"]),
    Sample("flatten", "ops.flatten", [few(2, 2, 2)], accepts=["S(0) -> S(0)"]),
    Sample("transpose", "mint.transpose", [few(4, 2)], [(0, 1)], accepts=["S(0) -> S(1)", *PASS]),
    Sample("transpose", "ops.transpose", [few(4, 2)], [((1, 0),)], accepts=["S(0) -> S(1)"]),
    Sample("transpose", "Tensor.transpose", [few(2, 4, 2)], [(0, 2, 1)], accepts=["S(1) -> S(2)"]),
    Sample("transpose", "Tensor.swapaxes", [few(4, 2)], [(0, 1)], accepts=["S(0) -> S(1)"]),
    Sample("T", transposed, [few(4, 2)], accepts=["S(0) -> S(1)"]),
    Sample("permute", "mint.permute", [few(2, 4, 2)], [((2, 0, 1),)], accepts=["S(0) -> S(1)"]),
    Sample("permute", "Tensor.permute", [few(2, 4, 2)], [(2, 0, 1)], accepts=["S(0) -> S(1)"]),
    Sample(
        "squeeze", "mint.squeeze", [few(4, 1, 2)], [(1,)], accepts=["S(0) -> S(0)", "S(2) -> S(1)", *PASS]
    ),
    Sample("squeeze", "Tensor.squeeze", [few(4, 1, 2)], [(), (1,)], accepts=["S(2) -> S(1)"]),
    Sample("squeeze", squeeze, [few(4, 1, 2)], accepts=["S(2) -> S(1)"]),
    Sample("unsqueeze", "mint.unsqueeze", [few(4, 2)], [(1,)], accepts=["S(1) -> S(2)", *PASS]),
    Sample("unsqueeze", "ops.expand_dims", [few(4, 2)], [(1,), (-1,)], accepts=["S(0) -> S(0)"]),
    Sample("expand", "mint.broadcast_to", [few(1, 2)], [((4, 2),)], accepts=["S(1) -> S(1)", *PASS]),
    Sample("expand", "Tensor.expand", [few(1, 2)], [(4, 2)], accepts=["S(1) -> S(1)"]),
    Sample("expand", "Tensor.broadcast_to", [few(4, 1)], [((4, 2),)], accepts=["S(0) -> S(0)"]),
    Sample(
        "cat",
        "mint.cat",
        [few(4, 2), few(4, 2)],
        [(1,)],
        tensors_in_list=True,
        accepts=["S(0) S(0) -> S(0)", "P R -> P"],
    ),
    Sample(
        "cat", "ops.cat", [few(4, 2), few(4, 2)], [{"axis": 1}], tensors_in_list=True, accepts=["P P -> P"]
    ),
    Sample("cat", concat, [few(4, 2), few(4, 2)], tensors_in_list=True, accepts=["S(0) S(0) -> S(0)"]),
    Sample(
        "stack",
        "ops.stack",
        [few(4, 2), few(4, 2)],
        [{"axis": 1}],
        tensors_in_list=True,
        accepts=["S(0) S(0) -> S(0)", "S(1) S(1) -> S(2)"],
    ),
    Sample(
        "split",
        "mint.split",
        [few(4, 2)],
        [(1, 1), ([1, 1], 1)],
        accepts=["S(0) -> S(0),S(0)", "P -> P(sum),P(sum)"],
    ),
    Sample(
        "split",
        "ops.split",
        [few(4, 2)],
        [{"split_size_or_sections": 1, "axis": 1}],
        accepts=["S(0) -> S(0),S(0)"],
    ),
    Sample(
        "split", "Tensor.split", [few(4, 2)], [{"split_size": 1, "dim": 1}], accepts=["S(0) -> S(0),S(0)"]
    ),
    Sample("chunk", "mint.chunk", [few(4, 2)], [(2, 1)], accepts=["S(0) -> S(0),S(0)"]),
    Sample("chunk", "Tensor.chunk", [few(4, 2)], [(2, 1)], accepts=["S(0) -> S(0),S(0)"]),
    Sample("unbind", "ops.unbind", [few(4, 2)], [(1,)], accepts=["S(0) -> S(0),S(0)"]),
    Sample("narrow", "mint.narrow", [few(4, 2)], [(1, 0, 1)], accepts=["S(0) -> S(0)", *PASS]),
    Sample("narrow", "Tensor.narrow", [few(4, 2)], [(1, 0, 1)], accepts=["S(0) -> S(0)"]),
    Sample("slice", "ops.slice", [few(4, 2)], [((0, 1), (4, 1))], accepts=["S(0) -> S(0)"]),
    Sample(
        "select",
        "mint.select",
        [few(4, 2)],
        [(1, 0)],
        grads=False,
        accepts=["S(0) -> S(0)", "S(1) -> P(sum)"],
    ),
    Sample("flip", "mint.flip", [few(4, 2)], [((0,),)], accepts=["S(1) -> S(1)", *PASS]),
    Sample("flip", "ops.flip", [few(4, 2)], [((0,),)], accepts=["S(1) -> S(1)"]),
    Sample("tile", "mint.tile", [few(4, 2)], [((1, 2),)], accepts=["S(0) -> S(0)", *PASS]),
    Sample("tile", "Tensor.tile", [few(4, 2)], [((1, 2),)], accepts=["S(0) -> S(0)"]),
    Sample(
        "repeat_interleave",
        "ops.repeat_interleave",
        [few(4, 2)],
        [(2, 0)],
        accepts=["S(0) -> S(0)", "S(1) -> S(1)"],
    ),
    Sample("triu", "mint.triu", [few(4, 2)], [(0,), (-1,)], accepts=["S(0) -> S(0)", "S(1) -> S(1)"]),
    Sample("tril", "ops.tril", [few(4, 2)], [(0,)], accepts=["S(0) -> S(0)"]),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=name_of)
def test_on_two_ranks(sample: Sample, ms_ranks2: MindSporeRankPool) -> None:
    compare(ms_ranks2, sample)
