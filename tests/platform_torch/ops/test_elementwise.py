"""Elementwise operations on real ranks, against one device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.brute_force import brute_force
from tests.support.ranks import RankPool
from tests.support.sample import Input, Sample


def acosh_of_more(x: Any) -> Any:
    return (x + 1.5).acosh()


def where_positive(x: Any) -> Any:
    """A condition that comes from an operation itself."""
    import torch

    return torch.where(x > 0, x, 0.5)


def relu_of_copy(x: Any, inplace: bool) -> Any:
    """The `inplace` of the functions writes into its argument too."""
    import torch

    y = x * 1.0
    return torch.nn.functional.relu(y, inplace=inplace) + y


def clamp_below(x: Any, bound: Any) -> Any:
    return x.clamp(max=bound)


X = (4, 6)
SPLIT = ["S(0) -> S(0)", "S(1) -> S(1)", "V -> R"]
SAME = ["R R -> R", "S(0) S(0) -> S(0)", "S(1) S(1) -> S(1)", "V R -> R", "R V -> R"]


def unary(op: str, values: str = "normal", *variants: Any, accepts: Any = (), **more: Any) -> Sample:
    """A function of one tensor. On two axes it is tried where its algebra has rows of its own."""
    call: Any = more.pop("call", f"torch.{op}")
    return Sample(
        op,
        call,
        [Input(X, values)],
        list(variants) or [{}],
        accepts=[*SPLIT, *accepts],
        two_axes=6 if accepts or op in ("exp", "pow") else 0,
        **more,
    )


LINEAR = ("P -> P", "P(avg) -> P(avg)")
KEPT = ("P(max) -> P(max)", "P(min) -> P(min)")

UNARY = [
    *(
        unary(op)
        for op in [
            "abs",
            "atan",
            "asinh",
            "cos",
            "cosh",
            "digamma",
            "erf",
            "erfc",
            "exp",
            "exp2",
            "expm1",
            "isfinite",
            "isinf",
            "isnan",
            "isneginf",
            "isposinf",
            "reciprocal",
            "sigmoid",
            "sgn",
            "sign",
            "signbit",
            "sin",
            "sinc",
            "sinh",
            "square",
            "tan",
            "tanh",
            "i0",
            "frac",
            "absolute",
            "arctan",
        ]
    ),
    *(unary(op, "positive") for op in ["log", "log10", "log1p", "log2", "lgamma", "rsqrt", "sqrt"]),
    *(unary(op, "unit") for op in ["acos", "asin", "atanh", "erfinv", "arccos"]),
    unary("acosh", "positive", call=acosh_of_more),
    *(unary(op, accepts=(*LINEAR, *KEPT)) for op in ("deg2rad", "rad2deg", "positive")),
    unary("neg", accepts=(*LINEAR, "P(max) -> P(min)", "P(min) -> P(max)")),
    *(unary(op, accepts=KEPT) for op in ("relu", "floor", "ceil", "trunc", "fix")),
    unary("round", "normal", {}, {"decimals": 1}, accepts=KEPT),
    *(
        unary(op, call=f"F.{op}")
        for op in [
            "silu",
            "mish",
            "selu",
            "hardswish",
            "hardsigmoid",
            "relu6",
            "gelu",
            "softplus",
            "elu",
            "celu",
            "logsigmoid",
            "softsign",
            "tanhshrink",
            "leaky_relu",
            "hardshrink",
            "softshrink",
            "hardtanh",
        ]
    ),
    unary("gelu", "normal", {"approximate": "tanh"}, {"approximate": "none"}, call="F.gelu", label="tanh"),
    unary("elu", "normal", (0.5,), (2.0,), call="F.elu", label="alpha"),
    unary("leaky_relu", "normal", (0.5,), {"negative_slope": 0.2}, call="F.leaky_relu", label="slope"),
    unary("softplus", "normal", (2.0,), (3.0, 0.5), call="F.softplus", label="beta"),
    unary("relu", "normal", {"inplace": True}, call=relu_of_copy, label="in place"),
    unary("threshold", "normal", (0.1, 7.0), (0.5, 3.0), call="F.threshold"),
    unary("hardtanh", "normal", (-0.5, 0.5), (-0.1, 0.1), call="F.hardtanh", label="bounds", accepts=KEPT),
    unary("logit", "unit", {"eps": 0.1}, {"eps": 0.2}),
    unary("nan_to_num", "normal", {"nan": 1.0}, {"nan": 2.0}),
    unary("clamp", "normal", (-0.5, 0.5), {"min": 0.0}, {"max": 0.25}, accepts=KEPT),
    unary("clamp_min", "normal", (-0.5,), (0.5,), accepts=KEPT),
    unary("clip", "normal", {"max": 0.1}, {"min": -0.1, "max": 2.0}, accepts=KEPT),
    unary("pow", "positive", (2,), (3,), (0.5,)),
    unary("rpow", "normal", (2.0,), (3.0,), call="Tensor.__rpow__"),
    unary("isclose_number", "tied", (1.0,), (0.0,), call="Tensor.eq"),
]

INPLACE = [
    *(
        Sample(f"{op}_", f"Tensor.{op}_", [Input(X, "positive")], inplace=True, two_axes=4, accepts=SPLIT)
        for op in ["abs", "exp", "sqrt", "square", "sigmoid", "tanh", "reciprocal", "log", "rsqrt"]
    ),
    Sample("neg_", "Tensor.neg_", [X], inplace=True, two_axes=4, accepts=[*SPLIT, *LINEAR]),
    *(
        Sample(f"{op}_", f"Tensor.{op}_", [X], inplace=True, two_axes=4, accepts=[*SPLIT, *KEPT])
        for op in ("floor", "round", "relu")
    ),
    Sample("relu_", "F.relu_", [X], inplace=True, two_axes=4, accepts=SPLIT, label="F"),
    Sample(
        "clamp_",
        "Tensor.clamp_",
        [X],
        [(-0.5, 0.5), (0.0,)],
        inplace=True,
        accepts=[*SPLIT, *KEPT],
        two_axes=4,
    ),
    Sample(
        "pow_", "Tensor.pow_", [Input(X, "positive")], [(2,), (3,)], inplace=True, accepts=SPLIT, two_axes=6
    ),
    Sample(
        "zero_",
        "Tensor.zero_",
        [X],
        inplace=True,
        accepts=[*SPLIT, *LINEAR, *KEPT, "P(prod) -> P(prod)"],
        two_axes=10,
    ),
    Sample(
        "fill_",
        "Tensor.fill_",
        [X],
        [(2.5,), (-1.0,)],
        inplace=True,
        accepts=[*SPLIT, *LINEAR, *KEPT],
        two_axes=10,
    ),
    Sample(
        "fill_",
        "Tensor.fill_",
        [X, ()],
        inplace=True,
        label="tensor",
        accepts=["S(0) R -> S(0)", "P R -> P", "P P -> P", "P(avg) R -> P(avg)"],
    ),
]

# -- numbers ----------------------------------------------------------------------------------------------------
ADD_NUMBER = (*LINEAR, *KEPT)
NUMBERS = [
    unary("add", "normal", (2,), (3.5,), {"other": 1.0}, {"other": 2, "alpha": 3}, accepts=ADD_NUMBER),
    unary("sub", "normal", (2,), (3.5,), {"other": 2, "alpha": 3}, accepts=ADD_NUMBER),
    unary("radd", "normal", (2,), (3.5,), call="Tensor.__radd__", accepts=ADD_NUMBER),
    unary("rsub", "normal", (2,), (3.5,), call="Tensor.__rsub__", accepts=(*LINEAR, "P(max) -> P(min)")),
    unary("rsub", "normal", (2.0,), (3.5,), call="torch.rsub", accepts=LINEAR, label="function"),
    unary("mul", "normal", (2,), (3.5,), accepts=ADD_NUMBER),
    unary("mul", "normal", (-2,), (-3.5,), accepts=(*LINEAR, "P(max) -> P(min)"), label="negative"),
    unary("rmul", "normal", (2,), (3.5,), call="Tensor.__rmul__", accepts=ADD_NUMBER),
    unary("div", "normal", (2,), (4.0,), accepts=ADD_NUMBER),
    unary("truediv", "normal", (2,), (4.0,), call="operator.truediv", accepts=ADD_NUMBER),
    unary("rtruediv", "positive", (2,), (4.0,), call="Tensor.__rtruediv__"),
    unary(
        "div",
        "normal",
        {"other": 0.3, "rounding_mode": "floor"},
        {"other": 0.4, "rounding_mode": "trunc"},
        label="rounded",
    ),
    unary("floordiv", "normal", (0.3,), (2,), call="operator.floordiv", grads=False),
    unary("mod", "normal", (0.3,), (2,), call="operator.mod"),
    unary("fmod", "normal", (0.3,), (2,)),
    *(
        unary(f"{op}_number", "tied", (0,), (1.0,), call=f"torch.{op}")
        for op in ["eq", "ne", "lt", "le", "gt", "ge"]
    ),
    unary("masked", "normal", call=where_positive),
    Sample(
        "add_", "Tensor.add_", [X], [(2,), (3.5,)], inplace=True, accepts=[*SPLIT, *ADD_NUMBER], two_axes=10
    ),
    Sample(
        "iadd", "operator.iadd", [X], [(2,), (3.5,)], inplace=True, accepts=[*SPLIT, *ADD_NUMBER], two_axes=10
    ),
    Sample(
        "sub_",
        "Tensor.sub_",
        [X],
        [(2,), {"other": 2, "alpha": 3}],
        inplace=True,
        accepts=[*SPLIT, *ADD_NUMBER],
        two_axes=10,
    ),
    Sample(
        "mul_", "Tensor.mul_", [X], [(2,), (3.5,)], inplace=True, accepts=[*SPLIT, *ADD_NUMBER], two_axes=10
    ),
    Sample(
        "imul", "operator.imul", [X], [(2,), (-3.5,)], inplace=True, accepts=[*SPLIT, *LINEAR], two_axes=10
    ),
    Sample(
        "div_", "Tensor.div_", [X], [(2,), (3.5,)], inplace=True, accepts=[*SPLIT, *ADD_NUMBER], two_axes=10
    ),
]

# -- two tensors ------------------------------------------------------------------------------------------------
SUMS = [
    "P P -> P",
    "P R -> P",
    "R P -> P",
    "P V -> P",
    "P(avg) P(avg) -> P(avg)",
    "P(avg) R -> P(avg)",
    "R P(avg) -> P(avg)",
]
PRODUCTS = [
    "P R -> P",
    "R P -> P",
    "P V -> P",
    "P(avg) R -> P(avg)",
    "R P(avg) -> P(avg)",
    "P(prod) P(prod) -> P(prod)",
]
QUOTIENTS = ["P R -> P", "P V -> P", "P(avg) R -> P(avg)"]
# One operand has a dim of size 1, or lacks one.
ROW = ["S(0) R -> S(0)", "S(1) S(0) -> S(1)"]

# For functions that know no Partial, one is enough to see it refused.
NO_ALGEBRA = Input(X, tokens=("R", "V", "S(0)", "S(1)", "P(sum)"))
NO_ALGEBRA_ROW = Input((6,), "positive", tokens=("R", "V", "S(0)", "P(sum)"))

BINARY = [
    Sample("add", "torch.add", [X, X], [{}, {"alpha": 2}, {"alpha": -0.5}], accepts=[*SAME, *SUMS]),
    Sample("sub", "Tensor.sub", [X, X], [{}, {"alpha": 2}], accepts=[*SAME, *SUMS]),
    Sample("mul", "operator.mul", [X, X], accepts=[*SAME, *PRODUCTS]),
    Sample("div", "torch.div", [X, Input(X, "positive")], accepts=[*SAME, *QUOTIENTS]),
    Sample(
        "maximum",
        "torch.maximum",
        [X, X],
        accepts=[*SAME, "P(max) P(max) -> P(max)", "P(max) R -> P(max)", "R P(min) -> P(min)"],
    ),
    Sample(
        "minimum",
        "torch.minimum",
        [X, X],
        accepts=[*SAME, "P(min) P(min) -> P(min)", "P(max) R -> P(max)", "R P(min) -> P(min)"],
    ),
    Sample("add", "torch.add", [(4, 6), (6,)], accepts=[*ROW, *SUMS], label="row"),
    Sample(
        "add",
        "torch.add",
        [(6,), (4, 6)],
        accepts=["R S(0) -> S(0)", "S(0) S(1) -> S(1)", *SUMS],
        label="row first",
    ),
    Sample(
        "sub",
        "torch.sub",
        [(4, 1), (1, 6)],
        accepts=["S(0) R -> S(0)", "R S(1) -> S(1)", *SUMS],
        label="both",
    ),
    Sample(
        "mul",
        "torch.mul",
        [(4, 6), (4, 1)],
        accepts=["S(0) S(0) -> S(0)", "S(1) R -> S(1)", *PRODUCTS[:5]],
        label="column",
    ),
    Sample(
        "mul",
        "torch.mul",
        [(4, 6), ()],
        accepts=["S(0) R -> S(0)", "S(1) R -> S(1)", *PRODUCTS[:5]],
        label="0d",
    ),
    Sample(
        "mul", "torch.mul", [(2, 4, 2), (4, 2)], accepts=["S(0) R -> S(0)", "S(2) S(1) -> S(2)"], label="3d"
    ),
    Sample(
        "add",
        "torch.add",
        [(4, 4), Input((4,), dtype="float32", tokens=("R", "S(0)"))],
        label="promoted",
        accepts=["S(1) S(0) -> S(1)"],
    ),
    Sample(
        "add",
        "torch.add",
        [X, Input((), tokens=("plain",))],
        accepts=["S(0) plain -> S(0)", "P plain -> P"],
        label="plain 0d",
    ),
    Sample("pow", "torch.pow", [Input(X, "positive"), X], accepts=SAME, two_axes=20),
    Sample(
        "div",
        "torch.div",
        [X, Input(X, "positive")],
        [{"rounding_mode": "floor"}],
        accepts=SAME,
        label="floor",
        two_axes=10,
    ),
    *(
        Sample(op, f"torch.{op}", [NO_ALGEBRA, NO_ALGEBRA_ROW], accepts=ROW, two_axes=4)
        for op in [
            "atan2",
            "copysign",
            "fmax",
            "fmin",
            "fmod",
            "hypot",
            "logaddexp",
            "remainder",
            "xlogy",
            "float_power",
        ]
    ),
    Sample(
        "floor_divide",
        "torch.floor_divide",
        [NO_ALGEBRA, NO_ALGEBRA_ROW],
        grads=False,
        accepts=ROW,
        two_axes=4,
    ),
    *(
        Sample(
            op,
            f"torch.{op}",
            [Input(X, "tied", tokens=NO_ALGEBRA.tokens), Input((6,), "tied", tokens=NO_ALGEBRA_ROW.tokens)],
            accepts=ROW,
            two_axes=4,
        )
        for op in ["eq", "lt", "ge", "isclose"]
    ),
    *(
        Sample(op, f"torch.{op}", [Input(X, "booleans"), Input((6,), "booleans")], accepts=ROW, two_axes=6)
        for op in ["logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or"]
    ),
    Sample(
        "and",
        "operator.and_",
        [Input(X, "booleans"), Input(X, "booleans")],
        accepts=["S(1) S(1) -> S(1)"],
        two_axes=4,
    ),
    Sample("invert", "operator.invert", [Input(X, "booleans")], accepts=["S(1) -> S(1)"], two_axes=6),
    Sample("logical_not", "torch.logical_not", [Input(X, "booleans")], accepts=["S(1) -> S(1)"], two_axes=6),
    Sample(
        "add",
        "torch.add",
        [Input(X, "integers"), Input(X, "integers")],
        [{}, {"alpha": 2}],
        accepts=["P P -> P", "P R -> P"],
        label="int",
    ),
    Sample(
        "mul", "torch.mul", [Input(X, "integers"), Input((6,), "integers")], accepts=["P R -> P"], label="int"
    ),
    Sample(
        "floor_divide",
        "torch.floor_divide",
        [Input(X, "integers"), Input((6,), "integers", low=1)],
        accepts=ROW,
        label="int",
    ),
    Sample(
        "bitwise_left_shift",
        "torch.bitwise_left_shift",
        [Input(X, "integers"), Input((6,), "integers")],
        accepts=ROW,
    ),
    Sample(
        "add_",
        "Tensor.add_",
        [X, X],
        [{}, {"alpha": 2}],
        inplace=True,
        accepts=[*SAME[:3], "P P -> P", "P R -> P", "P(avg) R -> P(avg)"],
    ),
    Sample(
        "add_",
        "Tensor.add_",
        [X, (6,)],
        inplace=True,
        accepts=["S(0) R -> S(0)", "S(1) S(0) -> S(1)", "P R -> P"],
        label="row",
    ),
    Sample(
        "sub_", "operator.isub", [X, X], inplace=True, accepts=["P P -> P", "S(1) S(1) -> S(1)"], two_axes=20
    ),
    Sample("mul_", "Tensor.mul_", [X, (6,)], inplace=True, accepts=["P R -> P", "S(1) S(0) -> S(1)"]),
    Sample(
        "div_",
        "operator.itruediv",
        [X, Input((6,), "positive")],
        inplace=True,
        accepts=["P R -> P", "S(1) S(0) -> S(1)"],
        two_axes=20,
    ),
    Sample(
        "pow_",
        "operator.ipow",
        [Input(X, "positive"), X],
        inplace=True,
        accepts=["S(1) S(1) -> S(1)"],
        two_axes=10,
    ),
    Sample(
        "logical_and_",
        "Tensor.logical_and_",
        [Input(X, "booleans"), Input(X, "booleans")],
        inplace=True,
        accepts=["S(1) S(1) -> S(1)"],
        two_axes=4,
    ),
]

# -- three tensors ----------------------------------------------------------------------------------------------
FEW = ("R", "V", "S(0)", "S(1)", "P(sum)", "P(avg)")
MASK = Input(X, "booleans")
A, B = Input((4, 4), tokens=FEW), Input((4, 4), tokens=FEW)
C = Input((4, 4), tokens=(*FEW, "P(max)"))
ROW4 = Input((4,), tokens=("R", "S(0)", "P(sum)", "P(avg)"))
TERNARY = [
    Sample(
        "where",
        "torch.where",
        [MASK, X, X],
        two_axes=30,
        accepts=[
            "S(0) S(0) S(0) -> S(0)",
            "R P P -> P",
            "R P R -> P",
            "R R P -> P",
            "R P(avg) R -> P(avg)",
            "R P(max) R -> P(max)",
        ],
    ),
    Sample(
        "where",
        "torch.where",
        [Input((6,), "booleans"), Input(X, tokens=FEW), Input((), tokens=FEW)],
        label="broadcast",
        accepts=["R S(0) R -> S(0)", "S(0) S(1) R -> S(1)", "R P R -> P"],
    ),
    Sample(
        "where",
        "torch.where",
        [MASK, X],
        [(2.5,), (float("-inf"),)],
        accepts=["R P -> P", "S(0) S(0) -> S(0)"],
        label="number",
    ),
    Sample(
        "where",
        "Tensor.where",
        [X, MASK],
        [(2.5,), (1.0,)],
        accepts=["P R -> P", "P(avg) R -> P(avg)", "S(0) S(0) -> S(0)"],
        label="method",
    ),
    Sample(
        "where",
        "Tensor.where",
        [A, Input((4, 4), "booleans"), B],
        accepts=["P R R -> P", "R R P -> P", "S(0) S(0) S(0) -> S(0)"],
        label="method 3",
    ),
    Sample(
        "masked_fill",
        "torch.masked_fill",
        [X, MASK],
        [(2.5,), (float("-inf"),), {"value": 0.0}],
        accepts=["P R -> P", "P(avg) R -> P(avg)", "P(max) R -> P(max)", "S(1) S(1) -> S(1)"],
    ),
    Sample(
        "masked_fill",
        "Tensor.masked_fill",
        [X, Input((6,), "booleans"), ()],
        accepts=["P R R -> P", "P R P -> P", "S(1) S(0) R -> S(1)"],
        label="0d",
    ),
    Sample(
        "masked_fill_",
        "Tensor.masked_fill_",
        [X, Input((6,), "booleans")],
        [(2.5,), (float("-inf"),)],
        inplace=True,
        accepts=["P R -> P", "S(1) S(0) -> S(1)"],
    ),
    Sample(
        "clamp", "torch.clamp", [C, ROW4], accepts=["S(1) S(0) -> S(1)", "P(max) R -> P(max)"], label="tensor"
    ),
    Sample("clamp", clamp_below, [A, ROW4], accepts=["S(1) S(0) -> S(1)"], label="max"),
    Sample(
        "clamp",
        "torch.clamp",
        [C, Input((4, 4), tokens=("R", "S(1)")), ROW4],
        accepts=["S(1) S(1) S(0) -> S(1)", "P(max) R R -> P(max)"],
        label="two tensors",
    ),
    Sample(
        "lerp",
        "torch.lerp",
        [A, B, Input((4,), "unit", tokens=("R", "V", "S(0)", "P(sum)", "P(avg)"))],
        accepts=[
            "S(1) S(1) S(0) -> S(1)",
            "P P R -> P",
            "P R R -> P",
            "R P R -> P",
            "R R P -> P",
            "R R P(avg) -> P(avg)",
        ],
        two_axes=30,
    ),
    Sample(
        "lerp",
        "torch.lerp",
        [A, B],
        [(0.3,), (0.9,)],
        accepts=["P P -> P", "P R -> P", "R P -> P"],
        label="number",
    ),
    Sample(
        "lerp_",
        "Tensor.lerp_",
        [A, B],
        [(0.3,), (0.9,)],
        inplace=True,
        accepts=["P P -> P", "P R -> P", "S(1) S(1) -> S(1)"],
    ),
    Sample(
        "addcmul",
        "torch.addcmul",
        [A, B, ROW4],
        [{}, {"value": -0.5}],
        accepts=["P P R -> P", "P R R -> P", "R P R -> P", "R R P -> P", "S(1) S(1) S(0) -> S(1)"],
        two_axes=30,
    ),
    Sample(
        "addcdiv",
        "torch.addcdiv",
        [A, B, Input((4,), "positive", tokens=("R", "S(0)", "P(sum)"))],
        [{}, {"value": -0.5}],
        accepts=["P P R -> P", "P R R -> P", "R P R -> P", "S(1) S(1) S(0) -> S(1)"],
        two_axes=25,
    ),
    Sample(
        "addcmul_",
        "Tensor.addcmul_",
        [A, B, B],
        [{}, {"value": -0.5}],
        inplace=True,
        accepts=["P P R -> P", "P R R -> P", "S(1) S(1) S(1) -> S(1)"],
        two_axes=30,
    ),
    Sample(
        "addcdiv_",
        "Tensor.addcdiv_",
        [A, B, Input((4, 4), "positive", tokens=("R", "S(0)", "S(1)"))],
        [{"value": 0.5}],
        inplace=True,
        accepts=["P R R -> P", "S(1) S(1) S(1) -> S(1)"],
        two_axes=30,
    ),
]

SAMPLES = [*UNARY, *INPLACE, *NUMBERS, *BINARY, *TERNARY]
# The engine puts the answers of the axes together alike for all of them.
MOST_PAIRS = 10
ON_TWO_AXES = [
    replace(sample, two_axes=min(sample.two_axes, MOST_PAIRS)) for sample in SAMPLES if sample.two_axes
]


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_one_axis(sample: Sample, ranks2: RankPool) -> None:
    brute_force(ranks2, sample)


@pytest.mark.parametrize("sample", ON_TWO_AXES, ids=str)
def test_on_two_axes(sample: Sample, ranks4: RankPool) -> None:
    brute_force(ranks4, sample)
