"""Local functions that the other ones are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore
from mindspore import Tensor, mint, ops

__all__ = ["as_dims", "cat", "clone", "full", "masked_fill", "unsqueeze", "vector_norm", "where"]


def as_dims(x: Tensor, dim: Any) -> tuple[int, ...]:
    """One dim, several, or None or () for all, as a tuple counted from the front."""
    ndim = len(x.shape)
    if dim is None or dim == ():
        return tuple(range(ndim))
    several = dim if isinstance(dim, (tuple, list)) else (dim,)
    return tuple(each % ndim for each in several) if ndim else ()


def clone(x: Tensor) -> Tensor:
    """A copy of the values, with the gradient."""
    if x.dtype == mindspore.bfloat16:
        # The CPU has no copy of it; it is the upper half of float32, so that nothing is rounded.
        return x.astype(mindspore.float32).astype(mindspore.bfloat16)
    return ops.deepcopy(x)


def unsqueeze(x: Tensor, dim: int) -> Tensor:
    """With a new dim of size 1."""
    return mint.unsqueeze(x, dim)


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Joined along a dim."""
    return mint.cat(list(tensors), dim)


def full(size: Any, value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """One value everywhere; without ``dtype`` that of the value."""
    if dtype is None:
        kinds = {bool: mindspore.bool_, int: mindspore.int64, float: mindspore.float32}
        dtype = kinds[type(value)]
    return ops.full(tuple(size), value, dtype=dtype)


def where(condition: Tensor, x: Any, other: Any) -> Tensor:
    """``x`` where the condition holds, ``other`` elsewhere; either may be a number."""
    if not isinstance(x, Tensor):
        x = full((), x, dtype=other.dtype if isinstance(other, Tensor) else None)
    if not isinstance(other, Tensor):
        other = full((), other, dtype=x.dtype)
    return mint.where(condition, x, other)


def masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    """``value`` where the mask holds."""
    value = value.astype(x.dtype) if isinstance(value, Tensor) else full((), value, dtype=x.dtype)
    return mint.where(mask, value, x)


def vector_norm(
    x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    """The norm of the elements along some dims; its gradient at zero is zero."""
    x = x if dtype is None else x.astype(dtype)
    dims = as_dims(x, dim)
    size = mint.abs(x)
    if ord in (float("inf"), float("-inf")):
        return (mint.amax if ord > 0 else mint.amin)(size, dims, keepdim)
    if ord == 0:
        return mint.sum(mint.ne(x, 0).astype(x.dtype), dims, keepdim)
    if ord == 1:
        return mint.sum(size, dims, keepdim)
    # Tensors, because MindSpore rounds numbers to float32.
    power, inverse = full((), ord, dtype=x.dtype), full((), 1 / ord, dtype=x.dtype)
    total = mint.sum(mint.square(x) if ord == 2 else mint.pow(size, power), dims, keepdim)
    is_zero = mint.eq(total, 0)
    safe = where(is_zero, 1.0, total)
    root = mint.sqrt(safe) if ord == 2 else mint.pow(safe, inverse)
    return where(is_zero, 0.0, root)
