"""Errors for what would silently take a DTensor for its shard, with what to use instead."""

from __future__ import annotations

from typing import Any

__all__ = ["slipped_past"]

_ADVICE = {
    "c10d": "a collective was called on a DTensor. DistributedDataParallel and FullyShardedDataParallel over DTensor "
    "parameters are not supported: replicate or shard over a mesh axis with distribute_module / "
    "parallelize_module, or "
    "call the collective on x.to_local()",
    "_c10d_functional": "a functional collective was called on a DTensor: use x.redistribute(...), or x.to_local()",
}


def slipped_past(func: Any) -> RuntimeError:
    """The error for an operator that reached C++ with a DTensor, past ``__torch_function__``."""
    namespace = getattr(func, "namespace", "")
    advice = _ADVICE.get(
        namespace,
        "something called it from C++ or with __torch_function__ switched off: a full backward hook, a fused "
        "kernel, or a "
        "custom autograd function. Use tensor hooks (x.register_hook), or wrap the code in local_map so that "
        "it sees local "
        "tensors",
    )
    return RuntimeError(
        f"{func} was called on a DTensor below __torch_function__ and would see no data: {advice}"
    )
