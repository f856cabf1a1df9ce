"""Compiled functions, inside of which nothing is intercepted, refuse DTensors.

A graph sees the storage of a DTensor, this rank's part, and its result is plain. Optimizers alone are right
to do so: they update each part by itself.
"""

from __future__ import annotations

import functools
from typing import Any

from mindspore import nn
from mindspore.experimental.optim import Optimizer
from mindspore.graph.api import _JitExecutor

from hyper_dtensor import DTensor

__all__ = ["refuse_in_graphs"]


def _holds(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_holds, value))
    if isinstance(value, nn.Cell):
        return any(isinstance(parameter, DTensor) for parameter in value.get_parameters())
    return isinstance(value, DTensor)


def refuse_in_graphs() -> None:
    """Let ``mindspore.jit`` refuse DTensors among arguments and among parameters of cells."""
    call = _JitExecutor.__call__

    @functools.wraps(call)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(self.obj, (nn.Optimizer, Optimizer)) and _holds(
            (self.obj, *args, *kwargs.values())
        ):
            raise NotImplementedError(
                f"{getattr(self.fn, '__name__', 'a function')} is compiled (mindspore.jit), where "
                "DTensors would be taken for this rank's part: call it in PyNative mode, or compile a "
                "function of local tensors and wrap it in local_map"
            )
        return call(self, *args, **kwargs)

    _JitExecutor.__call__ = checked
