"""PyTorch's fused optimizer steps on local tensors, made safe for what watches those.

On the CPU the kernels leave the versions of what they write as they were, and they pair elements by their
order in memory, whatever the strides are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.graph import increment_version

__all__ = ["STEPS"]


def _safe(step: Callable[..., None]) -> Callable[..., None]:
    """``step`` on tensors of any strides, which raises the versions of what it may write."""

    @functools.wraps(step)
    def run(*args: Any, **kwargs: Any) -> None:
        lists: list[list[torch.Tensor]] = []
        copies: list[tuple[torch.Tensor, torch.Tensor]] = []

        def contiguous(value: Any) -> Any:
            if not isinstance(value, (list, tuple)):
                return value
            lists.append(list(value))
            return [each if each.is_contiguous() else copied(each) for each in value]

        def copied(tensor: torch.Tensor) -> torch.Tensor:
            copies.append((tensor, tensor.contiguous()))
            return copies[-1][1]

        step(*map(contiguous, args), **{name: contiguous(value) for name, value in kwargs.items()})
        for tensor, copy in copies:
            tensor.copy_(copy)
        for tensors in lists:
            increment_version(tensors)

    return run


STEPS = {
    step: _safe(step)
    for step in (torch._fused_adam_, torch._fused_adamw_, torch._fused_adagrad_, torch._fused_sgd_)
}
"""What runs instead of each of PyTorch's steps."""
