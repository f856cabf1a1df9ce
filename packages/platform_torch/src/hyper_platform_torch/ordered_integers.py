"""Floats as integers of the same order, so that a max or min over ranks keeps NaN.

Backends compare floats as ``a > b ? a : b`` and lose NaNs on one side (gloo: those of every rank but the
first). As integers a NaN lies beyond everything else, and one collective still does.
"""

from __future__ import annotations

import torch

__all__ = ["from_integers", "to_integers"]

_INTEGERS = {torch.float64: torch.int64, torch.float32: torch.int32}


def to_integers(x: torch.Tensor, op: str) -> torch.Tensor:
    """Integers ordered as the floats are, NaN above all for ``max`` and below all for ``min``.

    Narrower floats are widened first, which is exact.
    """
    wide = x if x.dtype in _INTEGERS else x.float()
    integer = _INTEGERS[wide.dtype]
    limits = torch.iinfo(integer)
    beyond = limits.max if op == "max" else limits.min
    return torch.where(wide.isnan(), beyond, _mirrored(wide.view(integer)))


def from_integers(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The floats again."""
    wide = dtype if dtype in _INTEGERS else torch.float32
    return _mirrored(x).view(wide).to(dtype)


def _mirrored(bits: torch.Tensor) -> torch.Tensor:
    """Sign and magnitude to two's complement, and back: it is its own inverse."""
    limits = torch.iinfo(bits.dtype)
    return bits ^ ((bits >> (limits.bits - 1)) & limits.max)
