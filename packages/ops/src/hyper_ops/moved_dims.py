"""What operations that move, repeat or drop dims share: their rows, and dims as callers write them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import index
from typing import Any, Final

from hyper_dispatch import Row
from hyper_layout import Layout, Partial, Replicate, Shard
from hyper_ops.dims import normal_dim

__all__ = [
    "PARTIAL_ROWS",
    "REDUCE_OPS",
    "axis_names",
    "dropped_rows",
    "integers",
    "moved_rows",
    "ordered_dims",
    "spread",
]

REDUCE_OPS: Final = ("sum", "avg", "max", "min", "prod")

PARTIAL_ROWS: Final = tuple(Row((Partial(op),), (Partial(op),)) for op in REDUCE_OPS)
"""Rows of an operation on one tensor that moves, repeats or drops elements: any Partial passes."""


def ordered_dims(dims: Any, ndim: int) -> tuple[int, ...]:
    """One dim or several, counted from the front, in the order given.

    Raises:
        IndexError: If a dim is out of range.
        RuntimeError: If one is named twice.
    """
    several = dims if isinstance(dims, (tuple, list)) else (dims,)
    found = tuple(normal_dim(dim, ndim) for dim in several)
    if len(set(found)) < len(found):
        raise RuntimeError(f"a dim appears more than once in {tuple(several)}")
    return found


def integers(values: Sequence[Any]) -> tuple[int, ...]:
    """The integers of `f(x, 2, 3)` and of `f(x, (2, 3))` alike."""
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        values = values[0]
    return tuple(map(index, values))


def spread(
    args: tuple[Any, ...], kwargs: dict[str, Any], *names: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call `f(x, dims=(1, 0))` as `f(x, (1, 0))`, for the first of these keywords that is given."""
    for name in names:
        if name in kwargs:
            return (*args, kwargs[name]), {key: value for key, value in kwargs.items() if key != name}
    return args, kwargs


@lru_cache(maxsize=1024)
def moved_rows(sources: tuple[int | None, ...], operands: int = 1) -> tuple[Row, ...]:
    """Rows of an operation whose output dim `o` is dim `sources[o]` of every operand (None: a new dim).

    An operand may be split along a dim that is in the output, if all are split alike.
    """
    return tuple(
        [
            Row((Shard(source),) * operands, (Shard(out),))
            for out, source in enumerate(sources)
            if source is not None
        ]
    )


@lru_cache(maxsize=1024)
def dropped_rows(dims: tuple[int, ...]) -> tuple[Row, ...]:
    """Rows for dims of size 1 that vanish: only an axis of size 1 can split them, and it cuts nothing."""
    return tuple([Row((Shard(dim),), (Replicate(),)) for dim in dims])


def axis_names(layout: Layout, dim: int) -> str:
    """The axes that split a dim, for messages."""
    return ", ".join(repr(layout.mesh.mesh_dim_names[axis]) for axis in layout.dim_axes[dim])
