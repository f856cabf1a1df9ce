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

from hyper_dispatch import dispatcher
from hyper_dtensor import DTensor
from hyper_platform_ms.names import Known, functions

__all__ = ["make_overridable"]


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
