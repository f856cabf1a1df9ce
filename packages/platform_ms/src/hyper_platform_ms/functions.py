"""Python functions of MindSpore that are one operation here, and would arrive as their parts.

Each asks first whether a DTensor is among its arguments. The parts of a function that was imported by name
before the adapter are dispatched one by one, which is right or refused as well.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from mindspore.train import serialization

from hyper_dispatch import dispatcher
from hyper_dtensor import DTensor
from hyper_platform_ms.names import Known, functions

__all__ = ["load_into_distributed", "make_overridable"]


def make_overridable() -> None:
    """Let these functions look for a DTensor among their arguments, wherever MindSpore holds them."""
    replaced = {}
    for path, known in functions().items():
        module, _, name = path.rpartition(".")
        original = getattr(importlib.import_module(module), name)
        replaced[id(original)] = (original, _asking(original, known))
    for holder in _modules():
        for name, value in list(vars(holder).items()):
            found = replaced.get(id(value))
            if found is not None and found[0] is value:
                setattr(holder, name, found[1])


def load_into_distributed() -> None:
    """Let ``mindspore.load_param_into_net`` give DTensor parameters this rank's part, or the whole tensor."""
    update = serialization._update_param
    if hasattr(update, "__wrapped__"):
        return

    @functools.wraps(update)
    def asking(param: Any, new_param: Any, strict_load: bool) -> None:
        if not isinstance(param, DTensor):
            update(param, new_param, strict_load)
            return
        if strict_load and param.dtype != new_param.dtype:  # type: ignore[attr-defined]
            raise RuntimeError(
                f"{param!r} cannot take {new_param.dtype}: use load_param_into_net(..., strict_load=False)"
            )
        param.set_data(new_param)  # type: ignore[attr-defined]

    serialization._update_param = asking


def _modules() -> Iterator[ModuleType]:
    for name, module in list(sys.modules.items()):
        if name == "mindspore" or name.startswith("mindspore."):
            yield module


def _asking(original: Callable[..., Any], known: Known) -> Callable[..., Any]:
    @functools.wraps(original)
    def asking(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            items = value if isinstance(value, (list, tuple)) else (value,)
            if any(isinstance(item, DTensor) for item in items):
                assert known.arrange is not None
                return dispatcher.dispatch(known.name, known.func, *known.arrange(args, kwargs))
        return original(*args, **kwargs)

    return asking
