"""All collectives from the one that MindSpore's CPU groups have: the sum of float32 and float16.

Every rank contributes its own piece at its own place of a stack of zeros, and the sum is the stack of all
pieces. A piece travels as its bytes, two of them as a float32 that holds an integer up to 65535 exactly:
nothing is rounded, truncated or lost, whatever the dtype (adding a float to zeros would turn -0.0 into 0.0).
Sums of float32 and float16 alone are the native ones.
"""

from __future__ import annotations

import functools
from typing import Any, Final, TypeAlias

import mindspore
import numpy as np
from mindspore import Tensor, ops
from numpy.typing import NDArray

from hyper_platform_ms.processes import MindSporeGroup

__all__ = ["gather_bytes", "gather_stack", "native_sum", "sums_natively"]

Bytes: TypeAlias = NDArray[np.uint8]

_SUMMED: Final = (mindspore.float32, mindspore.float16)


@functools.cache
def _all_reduce(handle: str) -> Any:
    return ops.AllReduce(group=handle)


def sums_natively(x: Tensor) -> bool:
    """Whether the sum over ranks of this dtype is exact as MindSpore computes it on CPU."""
    return x.dtype in _SUMMED


def native_sum(x: Tensor, group: MindSporeGroup) -> Tensor:
    """The sum over the group of a tensor that `sums_natively`."""
    return _all_reduce(group.handle)(x)


def gather_bytes(data: Bytes, group: MindSporeGroup) -> Bytes:
    """Bytes of all ranks, stacked along a new dim 0 in mesh order.

    Args:
        data: One dim of uint8, equally long on all ranks.
        group: The group.
    """
    if len(group.ranks) == 1:
        return data[None]
    if not len(data):
        return np.empty((len(group.ranks), 0), np.uint8)
    # Two bytes per float32: integers up to 65535 are exact in it, and add to zeros only.
    padded = data if len(data) % 2 == 0 else np.append(data, np.uint8(0))
    stack = np.zeros((len(group.ranks), len(padded) // 2), np.float32)
    stack[group.index] = padded.view(np.uint16)
    summed = native_sum(Tensor(stack), group).asnumpy()
    return np.ascontiguousarray(summed.astype(np.uint16)).view(np.uint8)[:, : len(data)]


def gather_stack(x: Tensor, group: MindSporeGroup) -> Tensor:
    """The tensors of all ranks, stacked along a new dim 0 in mesh order; exact for every dtype."""
    array = to_numpy(x)
    data = gather_bytes(array.reshape(-1).view(np.uint8), group)
    stacked = np.ascontiguousarray(data).view(array.dtype).reshape((len(group.ranks), *array.shape))
    return from_numpy(stacked, x.dtype)


def to_numpy(x: Tensor) -> NDArray[Any]:
    """The bits of a tensor as a contiguous array; bfloat16, which NumPy does not have, as uint16."""
    if x.dtype == mindspore.bfloat16:
        # Exact: bfloat16 is the upper half of float32.
        wide = np.ascontiguousarray(x.astype(mindspore.float32).asnumpy())
        return (wide.view(np.uint32) >> 16).astype(np.uint16)
    return np.array(x.asnumpy(), order="C")


def from_numpy(array: NDArray[Any], dtype: Any) -> Tensor:
    """A tensor of these bits."""
    if dtype == mindspore.bfloat16:
        wide = (array.astype(np.uint32) << 16).view(np.float32)
        return Tensor(wide).astype(mindspore.bfloat16)
    return Tensor(array)
