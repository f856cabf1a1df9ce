"""The `reduction` argument of losses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["check_reduction", "reduction_of"]


def reduction_of(bound: Mapping[str, Any]) -> str:
    """The reduction asked for, the deprecated `size_average` and `reduce` included.

    Args:
        bound: Arguments by name.
    """
    size_average, reduce = bound.get("size_average"), bound.get("reduce")
    if size_average is None and reduce is None:
        return bound["reduction"]  # type: ignore[no-any-return]
    if reduce is not None and not reduce:
        return "none"
    return "mean" if size_average is None or size_average else "sum"


def check_reduction(reduction: str, *others: str) -> None:
    """Refuse an unknown reduction.

    Raises:
        ValueError: Names the known ones.
    """
    known = ("none", "mean", "sum", *others)
    if reduction not in known:
        raise ValueError(f"reduction must be one of {', '.join(known)}, got {reduction!r}")
