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
def _run() -> Callable[..., Any]:
    """The dispatcher over all operations that are installed; a few local rules where there is none.

    Imported here: the tests of hyper_dtensor and hyper_tensor_parallel run where it is not installed.
    """
    if importlib.util.find_spec("hyper_dispatch") is None:
        return importlib.import_module("tests.support.simulated.local_rules").run  # type: ignore[no-any-return]
    if importlib.util.find_spec("hyper_ops") is not None:
        importlib.import_module("hyper_ops").load_ops()
    return importlib.import_module("hyper_dispatch").OpDispatcher().dispatch  # type: ignore[no-any-return]


def dispatch(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run one operation on distributed tensors."""
    with _lock:
        run = _run()
    return run(name, function, args, kwargs)


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
