"""Reductions of MindSpore in every form, against one device."""

from __future__ import annotations

import pytest

from tests.platform_ms.comparison import compare
from tests.platform_ms.ops.samples import few, name_of
from tests.support.ms_ranks import MindSporeRankPool
from tests.support.sample import Input, Sample


def reduce_sum(x: object, dim: object, keep: bool) -> object:
    from mindspore import ops

    return ops.ReduceSum(keep)(x, dim)


def reduce_max(x: object, dim: object, keep: bool) -> object:
    from mindspore import ops

    return ops.ReduceMax(keep)(x, dim)


def arg_max_with_value(x: object, dim: int) -> object:
    from mindspore import ops

    return ops.ArgMaxWithValue(dim, True)(x)


SUM = ["S(0) -> S(0)", "S(1) -> P(sum)", "P -> P", "P(avg) -> P(avg)", "V -> R"]
ALL = ["S(0) -> P(sum)", "S(1) -> P(sum)", "P -> P"]
JOINED = ["S(0) -> S(0)", "S(1) -> R"]
SAMPLES = [
    Sample(
        "sum", "mint.sum", [few(4, 2)], [{"dim": 1}, {"dim": -1, "keepdim": True}], accepts=["S(1) -> P(sum)"]
    ),
    Sample("sum", "mint.sum", [few(4, 2)], accepts=ALL),
    Sample("sum", "ops.sum", [few(4, 2)], [(1,), (1, True)], accepts=["P -> P"]),
    Sample("sum", reduce_sum, [few(4, 2)], [(1, False), ((1,), True)], accepts=["S(1) -> P(sum)"]),
    Sample("sum", "Tensor.sum", [few(4, 2)], [{"dim": 1}, {"axis": 1}], accepts=SUM),
    Sample("sum", "Tensor.sum", [few(4, 2)], [{"axis": 1, "keepdims": True}, {"axis": (0, 1)}]),
    Sample(
        "mean",
        "mint.mean",
        [few(4, 2)],
        [{"dim": 1}, {"dim": 1, "keepdim": True}],
        accepts=["S(1) -> P(sum)"],
    ),
    Sample("mean", "ops.mean", [few(4, 2)], [(1,), (1, True)], accepts=["S(1) -> P(sum)"]),
    Sample("mean", "Tensor.mean", [few(4, 2)], accepts=ALL),
    Sample("prod", "mint.prod", [few(4, 2)], [{"dim": 1}], accepts=JOINED),
    Sample("max", "mint.max", [few(4, 2)], accepts=["S(0) -> R"]),
    Sample(
        "max",
        "mint.max",
        [few(4, 2)],
        [{"dim": 1}, {"dim": 1, "keepdim": True}],
        accepts=["S(0) -> S(0),S(0)", "S(1) -> R,R"],
    ),
    Sample("max", "Tensor.max", [few(4, 2)], [(1,)], accepts=["S(1) -> R,R"]),
    Sample("max", arg_max_with_value, [few(4, 2)], [(1,)], accepts=["S(1) -> R,R"]),
    Sample("min", "ops.min", [few(4, 2)], [{"axis": 1}], accepts=["S(1) -> R,R"]),
    Sample("amax", "mint.amax", [few(4, 2)], [{"dim": 1}, {"dim": (0, 1)}], accepts=["S(1)"]),
    Sample("amax", reduce_max, [few(4, 2)], [(1, False), (1, True)], accepts=["S(1)"]),
    Sample("amin", "ops.amin", [few(4, 2)], [{"axis": 1}], accepts=JOINED),
    Sample("argmax", "Tensor.argmax", [few(4, 2)], [(1,)], accepts=["S(0) -> S(0)", "S(1) -> R"]),
    Sample("argmax", "ops.argmax", [few(4, 2)], [{"dim": 1}], accepts=["S(0) -> S(0)", "S(1) -> R"]),
    Sample(
        "any",
        "mint.any",
        [Input((4, 2), "booleans")],
        [{"dim": 1}],
        accepts=["S(0) -> S(0)", "S(1) -> P(max)"],
    ),
    Sample(
        "all",
        "mint.all",
        [Input((4, 2), "booleans")],
        [{"dim": 1}],
        accepts=["S(0) -> S(0)", "S(1) -> P(min)"],
    ),
    Sample("logsumexp", "ops.logsumexp", [few(4, 2)], [(1,), (1, True)], accepts=["S(1)"]),
    Sample(
        "var", "ops.var", [few(4, 2, dtype="float32")], [{"axis": 1}, {"axis": 1, "ddof": 1}], accepts=JOINED
    ),
    Sample(
        "std", "ops.std", [few(4, 2, dtype="float32")], [{"axis": 1, "keepdims": True}], accepts=["S(1) -> R"]
    ),
    Sample(
        "norm", "ops.norm", [few(4, 2)], [{"dim": 1}, {"dim": 0, "keepdim": True}], accepts=["S(0)", "S(1)"]
    ),
    Sample("softmax", "mint.softmax", [few(4, 2)], [(1,), (0,)], accepts=["S(0) -> S(0)", "S(1) -> S(1)"]),
    Sample("softmax", "ops.softmax", [few(4, 2)], [(-1,)], accepts=["S(1) -> S(1)"]),
    Sample(
        "log_softmax", "ops.log_softmax", [few(4, 2, dtype="float32")], [(1,), (0,)], accepts=["S(1) -> S(1)"]
    ),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=name_of)
def test_on_two_ranks(sample: Sample, ms_ranks2: MindSporeRankPool) -> None:
    compare(ms_ranks2, sample)
