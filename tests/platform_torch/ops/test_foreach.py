"""Operations on lists of tensors on real ranks: by brute force, and as optimizers and gradient clipping use them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.brute_force import brute_force
from tests.support.ranks import RankPool
from tests.support.sample import Input, Sample

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
        accepts=["S(0) S(0) -> S(0) S(0)", "S(1) R -> S(1) R"], two_axes=6, **more,
    )  # fmt: skip


PAIRS = ["S(0) R S(0) R -> S(0) R", "S(1) S(0) S(1) S(0) -> S(1) S(0)"]
A, B = few(*X), Input((2,), tokens=("R", "S(0)", "P(sum)"))
SAMPLES = [
    *(one(op) for op in ("neg", "neg_", "exp", "sigmoid_", "zero_", "clone")),
    *(one(op, 2.0, [0.5, -1.0]) for op in ("add", "add_", "sub_", "mul", "mul_", "div_")),
    *(one(op, 2.0, grads=op != "maximum_") for op in ("maximum_", "minimum", "clamp_min_")),
    one("pow", 2.0, [2.0, 3.0]),
    *(Sample(f"foreach_{op}", two_lists, [A, B, A, B], [{"op": op}], accepts=PAIRS, two_axes=6, grads=op != "copy_") for op in ("mul_", "div", "maximum", "copy_")),
    *(Sample(f"foreach_{op}", two_lists, [A, B, A, B], [{"op": op}, {"op": op, "alpha": 0.5}], accepts=PAIRS, two_axes=6) for op in ("add", "sub_")),
    Sample("foreach_lerp_", two_lists, [A, B, A, B], [{"op": "lerp_", "weight": 0.3}, {"op": "lerp_", "weight": 0.9}], accepts=PAIRS, two_axes=6),
    *(
        Sample(f"foreach_{op}", three_lists, [A, few(*X), few(*X)], [{"op": op, "value": 0.5}, {"op": op, "value": [2.0]}], accepts=["S(0) S(0) S(0) -> S(0)"], two_axes=6)
        for op in ("addcmul", "addcmul_", "addcdiv_")
    ),
    Sample("foreach_mul", list_and_tensor, [A, B, Input((), tokens=("R", "V", "plain"))], [{"op": "mul"}], grads=False, accepts=["S(0) R R -> S(0) R", "S(1) S(0) plain -> S(1) S(0)"], two_axes=6),
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


# -- as optimizers use them ---------------------------------------------------------------------------------
SHAPES = {"split": (4, 2), "columns": (2, 4), "whole": (3,), "plain": (2, 3), "plain vector": (5,)}


def train(kind: str, options: dict[str, Any], clip: dict[str, Any]) -> float:
    """Three steps on plain and distributed parameters; the largest difference to plain ones alone."""
    import torch

    from hyper_dtensor import distribute_tensor, init_device_mesh
    from hyper_layout import Replicate, Shard

    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    placements = {"split": Shard(0), "columns": Shard(1), "whole": Replicate()}
    generator = torch.Generator().manual_seed(3)
    values = {name: torch.randn(s, generator=generator, dtype=torch.float64) for name, s in SHAPES.items()}
    slopes = {name: torch.randn(s, generator=generator, dtype=torch.float64) for name, s in SHAPES.items()}
    single = {name: value.clone().requires_grad_() for name, value in values.items()}
    mixed, slope = {}, dict(slopes)
    for name, value in values.items():
        if name in placements:
            mixed[name] = distribute_tensor(value.clone(), mesh, [placements[name]]).requires_grad_()
            slope[name] = distribute_tensor(slopes[name], mesh, [placements[name]])
        else:
            mixed[name] = value.clone().requires_grad_()
    make = getattr(torch.optim, kind)
    optimizers = [make(list(parameters.values()), **options) for parameters in (single, mixed)]
    for step in range(3):
        for parameters, factors, optimizer in zip((single, mixed), (slopes, slope), optimizers, strict=True):
            optimizer.zero_grad()
            for name, parameter in parameters.items():
                ((parameter * factors[name]).sin() * (step + 1.0)).sum().backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(list(parameters.values()), 0.7, **clip)
            optimizer.step()
    wholes = {name: p.full_tensor() if name in placements else p for name, p in mixed.items()}
    return max((wholes[name] - single[name]).abs().max().item() for name in SHAPES)


@pytest.mark.parametrize(
    "clip", [{}, {"foreach": True}, {"foreach": True, "norm_type": float("inf")}], ids=str
)
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
        ("Adam", {"lr": 0.1, "amsgrad": True, "weight_decay": 0.01}),
        ("AdamW", {"lr": 0.1, "maximize": True}),
    ],
)
def test_optimizers_on_mixed_lists(
    kind: str, options: dict[str, Any], clip: dict[str, Any], ranks2: RankPool
) -> None:
    assert max(ranks2.run(train, kind, {**options, "foreach": True}, clip)) < 1e-12
