"""Products of MindSpore in every form, against one device."""

from __future__ import annotations

import pytest

from tests.platform_ms.comparison import compare
from tests.platform_ms.ops.samples import few, name_of
from tests.support.ms_ranks import MindSporeRankPool
from tests.support.sample import Sample


def mat_mul(x: object, y: object, left: bool, right: bool) -> object:
    from mindspore import ops

    return ops.MatMul(left, right)(x, y)


def batch_mat_mul(x: object, y: object, left: bool, right: bool) -> object:
    from mindspore import ops

    return ops.BatchMatMul(left, right)(x, y)


def dense(x: object, weight: object, bias: object) -> object:
    from mindspore import ops

    return ops.Dense()(x, weight, bias)


LINEAR = ["P R -> P", "R P -> P", "P(avg) R -> P(avg)", "V P -> P"]
MM = ["S(0) R -> S(0)", "R S(1) -> S(1)", "S(1) S(0) -> P", *LINEAR]
BATCH = ["S(0) S(0) -> S(0)", "S(2) S(1) -> P", *LINEAR]
SAMPLES = [
    Sample("matmul", "mint.matmul", [few(4, 2), few(2, 6)], accepts=MM),
    Sample("matmul", "ops.matmul", [few(4, 2), few(2, 6)], accepts=MM),
    Sample("matmul", "operator.matmul", [few(4, 2), few(2, 6)], accepts=MM),
    Sample(
        "matmul",
        "Tensor.matmul",
        [few(2, 4, 2), few(2, 4)],
        accepts=["S(0) R -> S(0)", "S(1) R -> S(1)", "R S(1) -> S(2)"],
    ),
    Sample("mm", "Tensor.mm", [few(4, 2), few(2, 6)], accepts=MM),
    Sample("mm", "ops.mm", [few(4, 2), few(2, 6)], accepts=MM),
    Sample("MatMul", mat_mul, [few(4, 2), few(2, 6)], [(False, False)], accepts=MM),
    Sample(
        "MatMul",
        mat_mul,
        [few(2, 4), few(6, 2)],
        [(True, True)],
        accepts=["S(1) R -> S(0)", "S(0) S(1) -> P"],
    ),
    Sample(
        "MatMul",
        mat_mul,
        [few(4, 2), few(6, 2)],
        [(False, True)],
        accepts=["S(0) R -> S(0)", "S(1) S(1) -> P"],
    ),
    Sample("bmm", "mint.bmm", [few(4, 2, 2), few(4, 2, 2)], accepts=BATCH),
    Sample("BatchMatMul", batch_mat_mul, [few(4, 2, 2), few(4, 2, 2)], [(False, False)], accepts=BATCH),
    Sample(
        "BatchMatMul",
        batch_mat_mul,
        [few(2, 2, 4), few(2, 4, 2)],
        [(True, True)],
        accepts=["S(0) S(0) -> S(0)"],
    ),
    Sample(
        "linear",
        "F.linear",
        [few(4, 2), few(6, 2)],
        accepts=["S(0) R -> S(0)", "R S(0) -> S(1)", "S(1) S(1) -> P"],
    ),
    Sample(
        "linear",
        "F.linear",
        [few(2, 4), few(2, 4), few(2)],
        accepts=["R S(0) S(0) -> S(1)", "S(1) S(1) R -> P", "S(0) R R -> S(0)"],
    ),
    Sample(
        "linear", dense, [few(2, 4), few(2, 4), few(2)], accepts=["R S(0) S(0) -> S(1)", "S(1) S(1) R -> P"]
    ),
    Sample("outer", "ops.outer", [few(4), few(2)], accepts=["S(0) R -> S(0)", "R S(0) -> S(1)"]),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=name_of)
def test_on_two_ranks(sample: Sample, ms_ranks2: MindSporeRankPool) -> None:
    compare(ms_ranks2, sample)
