"""Optimizers that were built before their parameters became DTensors are refused where they are used.

A parameter stays the same object when it is laid out, but the states that an optimizer made of it before have
the shape of the whole tensor. MindSpore would say that two shapes differ, or broadcast one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindspore import nn
from mindspore.experimental.optim import optimizer as experimental

from hyper_platform_ms.tensor import MindSporeDTensor

__all__ = ["watch_optimizers"]

_WERE_DTENSORS = "_hyper_parallel_were_dtensors"


def watch_optimizers() -> None:
    """Watch the optimizers of ``nn`` and of ``experimental.optim`` (on which those of ``mint`` are built)."""
    for base in (nn.Optimizer, experimental.Optimizer):
        base.__init__ = _remembers(base.__init__)
        base.__call__ = _checked


def _remembers(init: Callable[..., None]) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self.__dict__[_WERE_DTENSORS] = [isinstance(p, MindSporeDTensor) for p in self.parameters]

    __init__.__doc__ = init.__doc__
    return __init__


def _checked(self: Any, *args: Any, **kwargs: Any) -> Any:
    for parameter, was_dtensor in zip(self.parameters, self.__dict__[_WERE_DTENSORS], strict=False):
        if isinstance(parameter, MindSporeDTensor) and not was_dtensor:
            raise RuntimeError(
                f"{type(self).__name__} was built before its parameter {parameter.name!r} became "
                f"{parameter!r}, and its states have the shape of the whole tensor: build the optimizer "
                "after parallelize_module"
            )
    return nn.Cell.__call__(self, *args, **kwargs)
