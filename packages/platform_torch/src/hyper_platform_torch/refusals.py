"""Errors for what would silently take a DTensor for its shard, with what to use instead."""

from __future__ import annotations

import functools
import sys
from pathlib import PurePath
from types import FrameType
from typing import Any

import torch

from hyper_dtensor import DTensor
from hyper_platform_torch import second_leaves

__all__ = ["GradientNode", "check_not_in_function", "foreign_history", "refuse_wrappers", "slipped_past"]

_DISTRIBUTE = (
    "distribute the model on a mesh axis instead: distribute_module replicates its parameters over the axis, "
    "parallelize_module splits them, and a batch that is Shard(0) on the axis trains data-parallel"
)
_FUNCTION = (
    "a torch.autograd.Function would see this rank's shard, and its gradients would be lost: wrap its call "
    "in local_map, so that it gets local tensors; for torch.utils.checkpoint use use_reentrant=False"
)
_WRAPPERS = (
    (("torch", "nn", "parallel"), f"DistributedDataParallel does not take DTensor parameters: {_DISTRIBUTE}"),
    (("torch", "distributed", "fsdp"), f"FSDP does not take DTensor parameters: {_DISTRIBUTE}"),
)
_CALLERS = (
    *_WRAPPERS,
    (
        ("torch", "utils", "hooks.py"),
        "full backward hooks of a module would see this rank's shard: put tensor hooks on its DTensor inputs "
        "or outputs (x.register_hook), which get the gradient as a DTensor",
    ),
    (("torch", "autograd", "function.py"), _FUNCTION),
    (
        ("torch", "distributed"),
        "a collective of torch.distributed does not take a DTensor: use x.redistribute(...), or call it on "
        "x.to_local()",
    ),
)
_OTHERWISE = (
    "it was called from C++ (torch.tensor(x), a fused kernel) or with __torch_function__ switched off; use "
    "x.to_local() or x.full_tensor() for a plain tensor, or local_map for a function of local tensors"
)


def _advice(callers: tuple[tuple[tuple[str, ...], str], ...]) -> str | None:
    """What to tell a caller among ``callers`` (path and text) that is on the stack; the first one counts."""
    files = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        files.append(frame.f_code.co_filename)
        frame = frame.f_back
    return next((text for path, text in callers for file in files if _is_below(file, path)), None)


@functools.cache
def _is_below(file: str, path: tuple[str, ...]) -> bool:
    parts = PurePath(file).parts
    return any(parts[start : start + len(path)] == path for start in range(len(parts)))


def slipped_past(func: Any) -> RuntimeError:
    """The error for an operator that reached C++ with a DTensor, past ``__torch_function__``."""
    advice = _advice(_CALLERS) or _OTHERWISE
    return RuntimeError(
        f"{func} got a DTensor below __torch_function__, where it would see no data: {advice}"
    )


def foreign_history() -> RuntimeError:
    """The error for a DTensor on which the framework recorded a history of its own."""
    return RuntimeError(f"this DTensor has a history that is not tracked: {_advice(_CALLERS) or _FUNCTION}")


def refuse_wrappers(error: Exception) -> None:
    """Say it where an operation was refused inside of a wrapper that does not take DTensor parameters.

    Raises:
        RuntimeError: If such a wrapper is on the call stack.
    """
    advice = _advice(_WRAPPERS)
    if advice is not None:
        raise RuntimeError(advice) from error


_APPLY = torch.autograd.Function.apply.__func__.__code__  # type: ignore[attr-defined]


def check_not_in_function(what: str) -> None:
    """Refuse to hand local tensors to a ``torch.autograd.Function`` that was called with DTensors (rule 7).

    Its forward runs without gradients and its backward is never asked for them: what it computes from a local
    tensor would have no history, and nothing would say so.

    Raises:
        RuntimeError: If the call stack has such a function; names the cures.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _APPLY:
            values = frame.f_locals
            given = [*values.get("args", ()), *values.get("kwargs", {}).values()]
            if any(
                isinstance(value, DTensor) and (value.requires_grad or value._untracked) for value in given
            ):
                name = getattr(values.get("cls"), "__name__", "a torch.autograd.Function")
                raise RuntimeError(
                    f"{what} inside {name}, a torch.autograd.Function that was given DTensors: the gradients "
                    "would be lost. Wrap its call in local_map, so that it gets local tensors; for "
                    "torch.utils.checkpoint use use_reentrant=False"
                )
        frame = frame.f_back


class GradientNode:
    """What ``x.grad_fn`` of a DTensor shows: the local tensor's node, without its hooks.

    A hook on the node would be called with this rank's part of the gradient.
    """

    __slots__ = ("_node",)

    def __init__(self, node: Any) -> None:
        self._node = node

    def name(self) -> str:
        """Name of the node."""
        return str(self._node.name())

    @property
    def next_functions(self) -> Any:
        """The nodes that this one passes gradients to.

        Raises:
            RuntimeError: If one is that of a parameter whose gradient does not pass it (`second_leaves`).
        """
        for node, _ in self._node.next_functions:
            if hasattr(node, "variable"):
                second_leaves.of(node.variable).reduce_in_graph()
        return self._node.next_functions

    def register_hook(self, hook: Any) -> None:
        """Refused.

        Raises:
            RuntimeError: Always; names tensor hooks.
        """
        raise RuntimeError(
            "a hook on the grad_fn of a DTensor (a module's register_backward_hook is one) would see this "
            "rank's shard of the gradient: use x.register_hook on the DTensor"
        )

    register_prehook = register_hook

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GradientNode) and other._node is self._node

    def __hash__(self) -> int:
        return hash(self._node)

    def __repr__(self) -> str:
        return f"<{self.name()} of a DTensor>"
