"""Unscaling gradients on real ranks, by brute force (`torch.amp.GradScaler`: `test_optimizers.py`)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.brute_force import brute_force
from tests.support.ranks import RankPool
from tests.support.sample import Input, Sample


def unscale(*gradients: Any, by: float) -> Any:
    """The gradients, and zeros or ones of the shape of the first: whether any overflowed (at 0.9e308 few do)."""
    import torch

    items = [gradient * by for gradient in gradients]
    found, inverse = torch.zeros((), dtype=torch.float32), torch.tensor(0.5, dtype=torch.float32)
    torch._amp_foreach_non_finite_check_and_unscale_(items, found, inverse)
    return [*items, torch.zeros_like(items[0]) + found]


TOKENS = ("R", "V", "S(0)", "S(1)", "P(sum)")
SAMPLES = [
    Sample(
        "_amp_foreach_non_finite_check_and_unscale_", unscale, [Input((4, 2), tokens=TOKENS)] * 2,
        [{"by": 1.0}, {"by": 0.9e308}], grads=False, accepts=["S(0) R -> S(0) R S(0)", "S(1) S(0) -> S(1) S(0) S(1)"], two_axes=6,
    )
]  # fmt: skip


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_one_axis(sample: Sample, ranks2: RankPool) -> None:
    brute_force(ranks2, sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_on_two_axes(sample: Sample, ranks4: RankPool) -> None:
    brute_force(ranks4, sample)
