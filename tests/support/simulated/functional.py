"""The functions of ``ops`` for tensors of both kinds: one that meets a distributed tensor is dispatched."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import threading
from collections.abc import Callable
from typing import Any

from hyper_dtensor import DTensor
from tests.support.simulated import ops

__all__ = ["call", "dispatch"]


_lock = threading.Lock()  # the ranks are threads, and operations are registered once


@functools.cache
def _dispatcher() -> Any:
    """The dispatcher of the simulated platform, over all operations that are installed.

    Imported here: the tests of hyper_dtensor and hyper_tensor_parallel run where it is not installed.
    """
    from hyper_dispatch import OpDispatcher

    if importlib.util.find_spec("hyper_ops") is not None:
        importlib.import_module("hyper_ops").load_ops()
    return OpDispatcher()


def dispatch(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Hand one operation on distributed tensors to hyper_dispatch."""
    with _lock:
        dispatcher = _dispatcher()
    return dispatcher.dispatch(name, function, args, kwargs)


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    """``ops.<name>(*args, **kwargs)``, dispatched where an argument is a distributed tensor."""
    function = getattr(ops, name)
    values = [*args, *kwargs.values()]
    values += [item for value in values if isinstance(value, (list, tuple)) for item in value]
    if any(isinstance(value, DTensor) for value in values):
        return dispatch(name, function, args, kwargs)
    return function(*args, **kwargs)


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("__") or not hasattr(ops, name):
        raise AttributeError(name)

    def function(*args: Any, **kwargs: Any) -> Any:
        return call(name, *args, **kwargs)

    function.__name__ = name
    return function
