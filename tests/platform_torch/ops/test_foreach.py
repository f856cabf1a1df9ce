"""Operations on lists of tensors on real ranks: by brute force, and as optimizers and gradient clipping use them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.brute_force import Input, Sample, brute_force
from tests.support.ranks import RankPool

X = (4, 2)


def few(*shape: int) -> Input:
    dims = tuple(f"S({dim})" for dim in range(len(shape)))
    return Input(shape, tokens=("R", "V", *dims, "P(sum)"))


def one_list(*tensors: Any, op: str, scalars: Any = None) -> Any:
    """The operation on all tensors (the first cloned: it may be written to)."""
    import torch

    function = getattr(torch, f"_foreach_{op}")
    values = [tensor * 1.0 for tensor in tensors]
    result = function(values) if scalars is None else function(values, scalars)
    return values if op.endswith("_") else list(result)


def two_lists(*tensors: Any, op: str, **options: Any) -> Any:
    """The first half of the tensors is one list, the second half the other."""
    import torch

    half = len(tensors) // 2
    values = [tensor * 1.0 for tensor in tensors[:half]]
    result = getattr(torch, f"_foreach_{op}")(values, list(tensors[half:]), **options)
    return values if op.endswith("_") else list(result)


def three_lists(*tensors: Any, op: str, value: Any) -> Any:
    import torch

    third = len(tensors) // 3
    values = [tensor * 1.0 for tensor in tensors[:third]]
    lists = [list(tensors[third : 2 * third]), [tensor.abs() + 0.5 for tensor in tensors[2 * third :]]]
    result = getattr(torch, f"_foreach_{op}")(values, *lists, value)
    return values if op.endswith("_") else list(result)


def list_and_tensor(*tensors: Any, op: str) -> Any:
    import torch

    return list(getattr(torch, f"_foreach_{op}")(list(tensors[:-1]), tensors[-1]))


def norms(*tensors: Any, order: float) -> Any:
    import torch

    return list(torch._foreach_norm(list(tensors), order))


def one(op: str, *variants: Any, **more: Any) -> Sample:
    return Sample(
        f"foreach_{op}", one_list, [few(*X), few(4)], [{"op": op, "scalars": v} for v in variants or (None,)],
        accepts=["S(0) S(0) -> S(0) S(0)", "S(1) R -> S(1) R"], two_axes=12, **more,
    )  # fmt: skip


PAIRS = ["S(0) R S(0) R -> S(0) R", "S(1) S(0) S(1) S(0) -> S(1) S(0)"]
A, B = few(*X), Input((2,), tokens=("R", "S(0)", "P(sum)"))
SAMPLES = [
    *(one(op) for op in ("neg", "neg_", "exp", "sigmoid_", "zero_", "clone")),
    *(one(op, 2.0, [0.5, -1.0]) for op in ("add", "add_", "sub_", "mul", "mul_", "div_")),
    *(one(op, 2.0, grads=op != "maximum_") for op in ("maximum_", "minimum", "clamp_min_")),
    one("pow", 2.0, [2.0, 3.0]),
    *(Sample(f"foreach_{op}", two_lists, [A, B, A, B], [{"op": op}], accepts=PAIRS, two_axes=12, grads=op != "copy_") for op in ("mul_", "div", "maximum", "copy_")),
    *(Sample(f"foreach_{op}", two_lists, [A, B, A, B], [{"op": op}, {"op": op, "alpha": 0.5}], accepts=PAIRS, two_axes=12) for op in ("add", "sub_")),
    Sample("foreach_lerp_", two_lists, [A, B, A, B], [{"op": "lerp_", "weight": 0.3}, {"op": "lerp_", "weight": 0.9}], accepts=PAIRS, two_axes=12),
    *(
        Sample(f"foreach_{op}", three_lists, [A, few(*X), few(*X)], [{"op": op, "value": 0.5}, {"op": op, "value": [2.0]}], accepts=["S(0) S(0) S(0) -> S(0)"], two_axes=12)
        for op in ("addcmul", "addcmul_", "addcdiv_")
    ),
    Sample("foreach_mul", list_and_tensor, [A, B, Input((), tokens=("R", "V", "plain"))], [{"op": "mul"}], grads=False, accepts=["S(0) R R -> S(0) R", "S(1) S(0) plain -> S(1) S(0)"], two_axes=12),
    *(
        Sample("foreach_norm", norms, [Input(X), Input((4,), "tied")], [{"order": 2.0}, {"order": 1.0}, {"order": 3.0}, {"order": float("inf")}], grads=grads, accepts=["S(0) S(0) -> R R", "S(1) R -> R R"], two_axes=20, label="grads" if grads else "")
        for grads in (True, False)
    ),
]  # fmt: skip


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_one_axis(sample: Sample, ranks2: RankPool) -> None:
    brute_force(ranks2, sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_two_axes(sample: Sample, ranks4: RankPool) -> None:
    brute_force(ranks4, sample)
