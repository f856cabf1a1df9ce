"""Kernels of PyTorch that write without raising versions, made safe for what watches those (rule 9).

They are those of optimizers on the CPU: fused steps, and unscaling gradients. A fused step also pairs
elements by their order in memory, whatever the strides are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch.autograd.graph import increment_version

__all__ = ["SEEN"]

Kernel: TypeAlias = Callable[..., None]


def _raising(kernel: Kernel) -> Kernel:
    """``kernel``, which writes into the list that is its first argument, and raises their versions."""

    @functools.wraps(kernel)
    def run(tensors: Any, *args: Any, **kwargs: Any) -> None:
        kernel(tensors, *args, **kwargs)
        increment_version(tensors)

    return run


def _step(kernel: Kernel) -> Kernel:
    """The fused step ``kernel`` on tensors of any strides; raises the versions of what it writes."""

    @functools.wraps(kernel)
    def run(*args: Any, **kwargs: Any) -> None:
        gradients = args[1] if len(args) > 1 else kwargs["grads"]
        reads_gradients = kwargs.get("grad_scale") is None
        lists = [value for value in (*args, *kwargs.values()) if isinstance(value, (list, tuple))]
        written = [
            tensor for value in lists if not (reads_gradients and value is gradients) for tensor in value
        ]
        for tensor in written:
            _check_no_overlap(tensor, kernel)
        copies: dict[Any, tuple[torch.Tensor, torch.Tensor]] = {}

        def contiguous(value: Any) -> Any:
            if not isinstance(value, (list, tuple)):
                return value
            return [tensor if tensor.is_contiguous() else copy_of(tensor) for tensor in value]

        def copy_of(tensor: torch.Tensor) -> torch.Tensor:
            memory = tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
            if memory not in copies:
                copies[memory] = tensor, tensor.contiguous()
            return copies[memory][1]

        kernel(*map(contiguous, args), **{name: contiguous(value) for name, value in kwargs.items()})
        ids = {id(tensor) for tensor in written}
        for tensor, copy in copies.values():
            if id(tensor) in ids:
                tensor.copy_(copy)
        increment_version(written)

    return run


def _check_no_overlap(tensor: torch.Tensor, kernel: Kernel) -> None:
    if any(step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True)):
        raise RuntimeError(
            f"{kernel.__name__} would write into an expanded tensor of shape {tuple(tensor.shape)}, whose "
            "elements share memory; clone() it first"
        )


SEEN: dict[Kernel, Kernel] = {
    **{
        kernel: _step(kernel)
        for kernel in (torch._fused_adam_, torch._fused_adamw_, torch._fused_adagrad_, torch._fused_sgd_)
    },
    torch._amp_foreach_non_finite_check_and_unscale_: _raising(
        torch._amp_foreach_non_finite_check_and_unscale_
    ),
}
"""What runs instead of each of these kernels."""
