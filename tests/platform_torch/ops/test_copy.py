"""Copies and casts on real ranks, against one device."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.brute_force import brute_force
from tests.support.ranks import RankPool
from tests.support.sample import Input, Sample

X = (4, 2)
SPLIT = ["S(0) -> S(0)", "S(1) -> S(1)", "V -> R"]
LINEAR = ["P -> P", "P(avg) -> P(avg)", "P(max) -> P(max)", "P(min) -> P(min)"]


def to_dtype(x: Any, dtype: str) -> Any:
    import torch

    return x.to(getattr(torch, dtype))


def to_keywords(x: Any, dtype: str, copy: bool) -> Any:
    import torch

    return x.to("cpu", dtype=getattr(torch, dtype), copy=copy)


def detached_and_used(x: Any) -> Any:
    """A detached tensor carries no gradient, its source does."""
    return x.detach() * x


def rounded(x: Any) -> Any:
    """Gradients flow through casts between floating dtypes."""
    return x.float().double() * 2.0


def through_contiguous(x: Any) -> Any:
    return x.contiguous() * 2.0


SAMPLES = [
    Sample("clone", "torch.clone", [X], accepts=[*SPLIT, *LINEAR, "P(prod) -> P(prod)"]),
    Sample("contiguous", "Tensor.contiguous", [X], accepts=[*SPLIT, *LINEAR]),
    Sample("contiguous", through_contiguous, [X], accepts=SPLIT, label="used"),
    Sample("detach", "Tensor.detach", [X], grads=False, accepts=["S(0) -> S(0)", *LINEAR]),
    Sample("detach", detached_and_used, [X], accepts=SPLIT, label="used"),
    Sample("conj", "torch.conj", [X], accepts=SPLIT),
    Sample("cpu", "Tensor.cpu", [X], accepts=[*SPLIT, *LINEAR]),
    Sample("to", to_dtype, [X], [("float32",), ("float64",), ("bfloat16",)], accepts=[*SPLIT, *LINEAR], tolerance=4e-2),
    Sample("to", to_dtype, [X], [("int64",), ("bool",)], accepts=["S(0) -> S(0)"], label="integer"),
    Sample("to", to_keywords, [X], [("float32", True), ("float64", False)], accepts=[*SPLIT, *LINEAR], tolerance=1e-5, label="device"),
    Sample("to", "Tensor.to", [X], [("cpu",)], accepts=[*SPLIT, *LINEAR], label="nothing"),
    Sample("to", "Tensor.to", [Input(X, "integers")], [("cpu",)], accepts=["P -> P"], label="integers"),
    Sample("to", to_dtype, [Input(X, "integers")], [("float64",)], accepts=["S(1) -> S(1)"], label="integers to floats"),
    Sample("float", rounded, [X], accepts=[*SPLIT, "P -> P"], tolerance=1e-6),
    *(Sample(op, f"Tensor.{op}", [X], accepts=[*SPLIT, "P -> P"], tolerance=4e-2, two_axes=6) for op in ("half", "bfloat16", "float", "double")),
    *(Sample(op, f"Tensor.{op}", [Input(X, "normal")], accepts=["S(0) -> S(0)"], two_axes=6) for op in ("long", "int", "bool")),
    Sample("type_as", "Tensor.type_as", [X, Input((6,), dtype="float32", grad=False, tokens=("R", "S(0)", "P(sum)", "plain"))], tolerance=1e-5, accepts=["S(0) R -> S(0)", "S(1) S(0) -> S(1)", "P S(0) -> P", "R S(0) -> R", "S(0) plain -> S(0)"]),
    Sample("copy_", "Tensor.copy_", [X, X], inplace=True, accepts=["S(0) S(0) -> S(0)", "P P -> P", "P R -> P", "P(avg) R -> P(avg)", "P(max) R -> P(max)"]),
    Sample("copy_", "Tensor.copy_", [X, (2,)], inplace=True, accepts=["S(0) R -> S(0)", "S(1) S(0) -> S(1)"], label="row"),
    Sample("copy_", "Tensor.copy_", [X, Input(X, dtype="float32", tokens=("R", "S(0)", "S(1)"))], inplace=True, accepts=["S(0) S(0) -> S(0)"], label="cast"),
]  # fmt: skip


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_one_axis(sample: Sample, ranks2: RankPool) -> None:
    brute_force(ranks2, sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_two_axes(sample: Sample, ranks4: RankPool) -> None:
    brute_force(ranks4, sample)
