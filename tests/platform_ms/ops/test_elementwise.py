"""Elementwise operators of MindSpore in every form, against one device."""

from __future__ import annotations

import pytest

from tests.platform_ms.comparison import compare
from tests.platform_ms.ops.samples import few, name_of
from tests.support.ms_ranks import MindSporeRankPool
from tests.support.sample import Input, Sample


def x(values: str = "normal", *shape: int, dtype: str | None = None) -> Input:
    return few(*(shape or (4, 2)), values=values, dtype=dtype)


def squared(tensor: object) -> object:
    return tensor**2  # type: ignore[operator]


def two_minus(tensor: object) -> object:
    return 2 - tensor  # type: ignore[operator]


def two_over(tensor: object) -> object:
    return 2 / tensor  # type: ignore[operator]


UNARY = [
    Sample(call, call, [x(values)], accepts=["S(0) -> S(0)", "S(1) -> S(1)", "V -> R"])
    for call, values in [
        ("mint.abs", "positive"), ("ops.abs", "positive"), ("Tensor.abs", "positive"), ("mint.exp", "normal"),
        ("ops.exp", "normal"), ("Tensor.exp", "normal"), ("mint.log", "positive"), ("ops.log", "positive"),
        ("mint.sqrt", "positive"), ("ops.rsqrt", "positive"), ("Tensor.square", "normal"), ("ops.square", "normal"),
        ("mint.reciprocal", "positive"), ("mint.sin", "normal"), ("ops.cos", "normal"), ("mint.tanh", "normal"),
        ("ops.tanh", "normal"), ("Tensor.tanh", "normal"), ("mint.sigmoid", "normal"), ("ops.sigmoid", "normal"),
        ("mint.erf", "normal"), ("F.relu", "normal"), ("ops.relu", "normal"), ("F.silu", "normal"), ("ops.silu", "normal"),
        ("operator.abs", "positive"), ("mint.sign", "normal"),
    ]
]  # fmt: skip
LINEAR = ["P -> P", "P(avg) -> P(avg)", "S(0) -> S(0)"]
BINARY = ["S(0) S(0) -> S(0)", "S(1) S(1) -> S(1)", "V R -> R"]
SUMS = [*BINARY, "P P -> P", "P R -> P", "R P -> P", "P(avg) R -> P(avg)"]
SAMPLES = [
    *UNARY,
    # MindSpore's own has a constant of float32.
    Sample("gelu", "ops.gelu", [x(dtype="float32")], [{}, {"approximate": "tanh"}], accepts=["S(0) -> S(0)"]),
    Sample("neg", "mint.neg", [x()], accepts=LINEAR),
    Sample("neg", "operator.neg", [x()], accepts=LINEAR),
    Sample("number", "Tensor.__add__", [x()], [(2,), (0.5,)], accepts=["P -> P", "S(0) -> S(0)"]),
    Sample("number", "Tensor.__mul__", [x()], [(2,), (-0.5,)], accepts=LINEAR),
    Sample("number", "Tensor.__truediv__", [x()], [(2,)], accepts=LINEAR),
    Sample("number", two_minus, [x()], accepts=["P -> P"]),
    Sample("number", two_over, [x("positive")], accepts=["S(0) -> S(0)"]),
    Sample("pow", squared, [x()], accepts=["S(0) -> S(0)"]),
    Sample("pow", "mint.pow", [x("positive"), x()], accepts=BINARY),
    Sample("pow", "ops.pow", [x("positive")], [(2,), (0.5,)], accepts=["S(0) -> S(0)"]),
    Sample("add", "mint.add", [x(), x()], [{}, {"alpha": 2}], accepts=SUMS),
    Sample("add", "ops.add", [x(), x()], accepts=SUMS),
    Sample("add", "operator.add", [x(), x("normal", 2)], accepts=["S(0) R -> S(0)", "S(1) S(0) -> S(1)", "P R -> P"]),
    Sample("add", "Tensor.add", [x(), x("normal", 4, 1)], accepts=["S(0) S(0) -> S(0)", "S(1) R -> S(1)"]),
    Sample("sub", "mint.sub", [x(), x()], [{}, {"alpha": 2}], accepts=SUMS),
    Sample("sub", "operator.sub", [x(), x()], accepts=SUMS),
    Sample("mul", "mint.mul", [x(), x()], accepts=[*BINARY, "P R -> P", "R P -> P"]),
    Sample("mul", "operator.mul", [x(), x("normal", 2)], accepts=["S(1) S(0) -> S(1)", "P R -> P"]),
    Sample("div", "mint.div", [x(), x("positive")], accepts=[*BINARY, "P R -> P"]),
    Sample("div", "operator.truediv", [x(), x("positive")], accepts=[*BINARY, "P R -> P"]),
    Sample("floor_divide", "operator.floordiv", [x(), x("positive")], accepts=BINARY, grads=False),
    Sample("remainder", "operator.mod", [x(), x("positive")], accepts=BINARY, grads=False),
    Sample("maximum", "mint.maximum", [x(), x()], accepts=BINARY),
    Sample("minimum", "ops.minimum", [x(), x()], accepts=BINARY),
    Sample("clamp", "mint.clamp", [x()], [(-0.5, 0.5)], accepts=["S(0) -> S(0)"]),
    Sample("clamp", "Tensor.clip", [x()], [(-0.5, 0.5)], accepts=["S(0) -> S(0)"]),
    *[
        Sample(name, f"operator.{name}", [x(), x()], accepts=BINARY)
        for name in ("lt", "le", "gt", "ge", "eq", "ne")
    ],
    Sample("lt", "operator.lt", [x()], [(0.5,)], accepts=["S(0) -> S(0)"]),
    Sample("eq", "mint.eq", [x()], [(0.5,)], accepts=["S(0) -> S(0)"]),
    Sample("logical_and", "mint.logical_and", [Input((4, 2), "booleans")] * 2, accepts=["S(0) S(0) -> S(0)"]),
    Sample("and", "operator.and_", [Input((4, 2), "booleans")] * 2, accepts=["S(0) S(0) -> S(0)"]),
    Sample("invert", "operator.invert", [Input((4, 2), "booleans")], accepts=["S(0) -> S(0)"]),
    Sample("masked_fill", "Tensor.masked_fill", [x(dtype="float32"), Input((4, 2), "booleans")], [(0.5,)], accepts=["S(0) S(0) -> S(0)", "P R -> P"]),
    Sample("where", "mint.where", [Input((4, 2), "booleans"), x(), x()], accepts=["S(0) S(0) S(0) -> S(0)", "R P R -> P"]),
    Sample("astype", "Tensor.astype", [x()], [("float32",)], accepts=["S(0) -> S(0)", "P -> P"]),
]  # fmt: skip


@pytest.mark.parametrize("sample", SAMPLES, ids=name_of)
def test_on_two_ranks(sample: Sample, ms_ranks2: MindSporeRankPool) -> None:
    compare(ms_ranks2, sample)
