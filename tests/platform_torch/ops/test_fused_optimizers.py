"""A whole step of an optimizer in one call, on real ranks, by brute force."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.brute_force import brute_force
from tests.support.ranks import RankPool
from tests.support.sample import Input, Sample

COMMON = {"lr": 0.1, "weight_decay": 0.01, "maximize": False}
ADAM = {**COMMON, "beta1": 0.9, "beta2": 0.99, "eps": 0.1, "amsgrad": True}
STEPS: dict[str, dict[str, Any]] = {
    "adam": ADAM,
    "adamw": ADAM,
    "adagrad": {**COMMON, "lr_decay": 0.1, "eps": 0.1},
    "sgd": {**COMMON, "momentum": 0.9, "dampening": 0.0, "nesterov": True, "is_first_step": False},
}
STATES = {"adam": 3, "adamw": 3, "adagrad": 1, "sgd": 1}


def step(parameter: Any, gradient: Any, *, op: str) -> Any:
    """The parameter and its states after a step."""
    import torch

    lists = [[parameter * 1.0], [gradient * 1.0], *([parameter.abs() + 0.1] for _ in range(STATES[op]))]
    counter = [] if op == "sgd" else [[torch.ones((), dtype=torch.float32)]]
    getattr(torch, f"_fused_{op}_")(*lists, *counter, **STEPS[op])
    return [item for index, (item,) in enumerate(lists) if index != 1]


TOKENS = ("R", "V", "S(0)", "S(1)", "P(sum)")
SAMPLES = [
    Sample(
        f"fused_{op}", step, [Input((4, 2), tokens=TOKENS), Input((4, 2), tokens=TOKENS)], [{"op": op}],
        grads=False, accepts=["S(0) S(0) -> " + " ".join(["S(0)"] * (1 + states)), "S(1) S(1)", "R R"], two_axes=6,
    )
    for op, states in STATES.items()
]  # fmt: skip


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_one_axis(sample: Sample, ranks2: RankPool) -> None:
    brute_force(ranks2, sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_two_axes(sample: Sample, ranks4: RankPool) -> None:
    brute_force(ranks4, sample)
