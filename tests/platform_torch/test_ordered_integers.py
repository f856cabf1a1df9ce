"""Floats as integers of the same order."""

from __future__ import annotations

import math

import pytest
import torch

from hyper_platform_torch.ordered_integers import from_integers, to_integers

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
IN_ORDER = [-math.inf, -3.0, -1e-4, -0.0, 0.0, 1e-4, 2.0, math.inf]


@pytest.mark.parametrize("dtype", DTYPES)
def test_order_and_way_back(dtype: torch.dtype) -> None:
    x = torch.tensor(IN_ORDER, dtype=dtype)
    whole = to_integers(x, "max")
    assert bool((whole[1:] >= whole[:-1]).all())
    back = from_integers(whole, dtype)
    assert torch.equal(back, x)
    assert torch.equal(back.signbit(), x.signbit())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["max", "min"])
def test_nan_of_either_sign_wins(dtype: torch.dtype, op: str) -> None:
    nan = torch.tensor(math.nan, dtype=dtype)
    x = torch.stack([nan, -nan, *torch.tensor(IN_ORDER, dtype=dtype)])
    whole = to_integers(x, op)
    assert from_integers(whole.max() if op == "max" else whole.min(), dtype).isnan()
    assert bool(from_integers(whole[:2], dtype).isnan().all())
