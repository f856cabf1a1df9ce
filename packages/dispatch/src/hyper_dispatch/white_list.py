"""Operations with a plain result (`local: true` in YAML): they run on locals and nothing is wrapped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hyper_dispatch.distributed_op import to_locals
from hyper_dtensor import Platform


def run_local(
    platform: Platform, op_name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run `func` on the local tensors."""
    local_args, local_kwargs = to_locals(args, kwargs)
    return func(*local_args, **local_kwargs)
