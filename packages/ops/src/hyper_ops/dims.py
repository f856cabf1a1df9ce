"""Dims as callers write them, made plain: negative ones, tuples, None for all."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

__all__ = ["normal_dim", "normal_dims"]


def normal_dim(dim: int, ndim: int) -> int:
    """The dim counted from the front.

    Args:
        dim: A dim, negative ones from the end.
        ndim: Rank of the tensor; a 0-d tensor takes the dims 0 and -1, as the frameworks do.

    Raises:
        IndexError: If the dim is out of range.
        TypeError: If it is no integer.
    """
    bound = max(ndim, 1)
    place = index(dim)
    if not -bound <= place < bound:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-bound}, {bound - 1}], but got {place})"
        )
    return place % bound


def normal_dims(dims: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """The dims counted from the front, in ascending order.

    Args:
        dims: One dim, several, or None for all.
        ndim: Rank of the tensor.

    Raises:
        IndexError: If a dim is out of range.
        ValueError: If one is named twice.
    """
    if dims is None:
        return tuple(range(ndim))
    several = dims if isinstance(dims, (tuple, list)) else (dims,)
    normal = [normal_dim(dim, ndim) for dim in several]
    if len(set(normal)) != len(normal):
        twice = next(dim for dim in normal if normal.count(dim) > 1)
        raise ValueError(f"dim {twice} appears multiple times in the list of dims {tuple(several)}")
    return tuple(sorted(normal)) if ndim else ()
