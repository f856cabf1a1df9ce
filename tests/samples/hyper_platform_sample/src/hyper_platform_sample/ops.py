"""`hyper_dtensor.LocalOps`: functions on local tensors, under PyTorch's names, signatures and meaning."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hyper_platform_sample.tensor import SampleTensor, tensor

T = SampleTensor


def _returning_tensors(function: Any) -> Callable[..., T]:
    """A function of NumPy whose arguments are PyTorch's."""

    @functools.wraps(function)
    def op(*args: Any) -> T:
        return tensor(function(*args))

    return op


def _reduction(function: Any) -> Callable[..., T]:
    @functools.wraps(function)
    def op(x: T, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> T:
        axis = tuple(dim) if isinstance(dim, Sequence) else dim
        return tensor(function(x, axis=axis, keepdims=keepdim))

    return op


abs, exp, log, square, isnan = map(_returning_tensors, (np.abs, np.exp, np.log, np.square, np.isnan))
mul, div, pow, where = map(_returning_tensors, (np.multiply, np.divide, np.power, np.where))
tile, permute, einsum = map(_returning_tensors, (np.tile, np.transpose, np.einsum))
clone, expand, reshape = map(_returning_tensors, (np.copy, np.broadcast_to, np.reshape))
squeeze, unsqueeze = map(_returning_tensors, (np.squeeze, np.expand_dims))
zeros_like, ones_like, full_like = map(_returning_tensors, (np.zeros_like, np.ones_like, np.full_like))
sum, prod, amax, amin, any = map(_reduction, (np.sum, np.prod, np.max, np.min, np.any))


def add(x: Any, other: Any, *, alpha: Any = 1) -> T:
    """``x + alpha * other``."""
    return tensor(x + alpha * other)


def sub(x: Any, other: Any, *, alpha: Any = 1) -> T:
    """``x - alpha * other``."""
    return tensor(x - alpha * other)


def clamp(x: T, min: Any = None, max: Any = None) -> T:
    """``x`` cut to the range."""
    return tensor(np.clip(x, min, max))


def masked_fill(x: T, mask: T, value: Any) -> T:
    """``value`` where the mask holds."""
    return where(mask, value, x)


def linear(x: T, weight: T, bias: T | None = None) -> T:
    """``x @ weight.T + bias``."""
    product = x @ weight.T
    return tensor(product if bias is None else product + bias)


def vector_norm(x: T, ord: float = 2.0, dim: Any = None, keepdim: bool = False) -> T:
    """The norm over dims."""
    return pow(sum(pow(abs(x), ord), dim, keepdim), 1 / ord)


def cat(tensors: Sequence[T], dim: int = 0) -> T:
    """Joined along a dim."""
    return tensor(np.concatenate(tensors, dim))


def stack(tensors: Sequence[T], dim: int = 0) -> T:
    """Joined along a new dim."""
    return tensor(np.stack(tensors, dim))


def unbind(x: T, dim: int = 0) -> tuple[T, ...]:
    """The slices along a dim."""
    return tuple(map(tensor, np.moveaxis(x, dim, 0)))


def narrow(x: T, dim: int, start: int, length: int) -> T:
    """A part of a dim."""
    return tensor(np.moveaxis(np.moveaxis(x, dim, 0)[start : start + length], 0, dim))


def index_select(x: T, dim: int, index: T) -> T:
    """Slices along a dim, by number."""
    return tensor(np.take(x, index, dim))


def gather(x: T, dim: int, index: T) -> T:
    """Elements along a dim, by number; ``index`` may be shorter than ``x`` along the other dims."""
    places = list(np.indices(index.shape))
    places[dim] = np.asarray(index)
    return tensor(x[tuple(places)])


def arange(*bounds: int, dtype: Any = None, device: Any = None) -> T:
    """Integers."""
    return tensor(np.arange(*bounds, dtype=dtype))


def full(shape: Sequence[int], value: Any, *, dtype: Any = None, device: Any = None) -> T:
    """The same value everywhere."""
    return tensor(np.full(shape, value, dtype))


def as_tensor(value: Any, *, dtype: Any = None, device: Any = None) -> T:
    """A tensor of numbers; a tensor as it is."""
    return tensor(np.asarray(value, dtype))


def fingerprint(x: T) -> str:
    """A digest of dtype, shape and values."""
    described = f"{x.dtype} {x.shape}".encode()
    return hashlib.sha256(described + np.ascontiguousarray(x).tobytes()).hexdigest()
