"""Running the body of a framework function that is written in Python on DTensors (design section 4)."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

__all__ = ["python_body"]


def _no(*_: Any) -> bool:
    return False


_ANSWERS = {"has_torch_function": _no, "has_torch_function_unary": _no, "has_torch_function_variadic": _no}


@functools.cache
def python_body(func: Callable[..., Any]) -> Callable[..., Any] | None:
    """``func`` over globals in which nobody is asked for ``__torch_function__``: its parts are dispatched.

    Returns:
        The rebuilt function; ``None`` if ``func`` is a built-in.
    """
    inner = getattr(func, "__wrapped__", func)
    if not isinstance(inner, types.FunctionType):
        return None
    rebuilt = types.FunctionType(
        inner.__code__,
        {**inner.__globals__, **_ANSWERS},
        inner.__name__,
        inner.__defaults__,
        inner.__closure__,
    )
    rebuilt.__kwdefaults__ = inner.__kwdefaults__
    return rebuilt
