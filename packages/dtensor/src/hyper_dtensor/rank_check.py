"""The debug switch: before each collective the ranks compare what they are about to do (design section 3)."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hyper_dtensor.platform import Platform

__all__ = ["agree", "agree_on_value", "enabled"]

_OWN_PACKAGES = ("hyper_layout", "hyper_dtensor", "hyper_dispatch", "hyper_ops", "hyper_tensor_parallel", "hyper_platform_")


def enabled() -> bool:
    """Whether ``HYPER_PARALLEL_DEBUG`` asks for the checks."""
    return os.environ.get("HYPER_PARALLEL_DEBUG", "0") not in ("", "0")


def _call_site() -> str:
    """File and line of the innermost frame that is the user's; the backward has none."""
    for frame in reversed(traceback.extract_stack()):
        path = Path(frame.filename)
        if "site-packages" not in path.parts and not any(part.startswith(_OWN_PACKAGES) for part in path.parts):
            return f"{path.name}:{frame.lineno}"
    return "backward"


def agree(platform: Platform, group: Any, ranks: tuple[int, ...], kind: str, axis: str, x: Any) -> None:
    """Raise on every rank if the ranks of ``group`` do not enter the same collective.

    Raises:
        RuntimeError: Names each rank's collective, shape, dtype and call site.
    """
    mine = f"{kind} on axis {axis!r} of {platform.dtype_name(x)}{list(x.shape)} at {_call_site()}"
    theirs = platform.all_gather_object(mine, group)
    if any(other != mine for other in theirs):
        lines = "\n".join(f"  rank {rank}: {other}" for rank, other in zip(ranks, theirs, strict=True))
        raise RuntimeError(f"the ranks went different ways before a collective:\n{lines}")


def agree_on_value(platform: Platform, group: Any, ranks: tuple[int, ...], what: str, value: Any) -> None:
    """Raise on every rank if ``value`` (picklable) differs between the ranks of ``group``.

    Raises:
        RuntimeError: Names the ranks whose value differs from that of the first.
    """
    values = platform.all_gather_object(value, group)
    different = [rank for rank, other in zip(ranks, values, strict=True) if other != values[0]]
    if different:
        raise RuntimeError(f"{what}: rank(s) {different} hold other values than rank {ranks[0]}")
