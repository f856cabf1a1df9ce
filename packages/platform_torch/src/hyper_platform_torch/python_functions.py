"""Running the body of a framework function that is written in Python on DTensors (design section 4).

Such a function asks first whether an argument overrides it and then hands itself over to
``__torch_function__``. Rebuilt over globals in which nobody overrides anything, it runs its body, and what it
calls there is dispatched call by call.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["python_body"]


def _no(*_: Any) -> bool:
    return False


_QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


class _Overlay:
    """A module with other values for some of its names; some functions ask ``torch.overrides`` itself."""

    def __init__(self, module: types.ModuleType, names: dict[str, Any]) -> None:
        self._module = module
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


_ANSWERS = dict.fromkeys(_QUESTIONS, _no)
_OVERRIDES = _Overlay(torch.overrides, _ANSWERS)
_TORCH = _Overlay(torch, {"overrides": _OVERRIDES})

# By the identity of a module's globals, which live as long as the module.
_globals: dict[int, dict[str, Any]] = {}


def _without_questions(names: dict[str, Any]) -> dict[str, Any]:
    known = _globals.get(id(names))
    if known is None:
        known = {**names, **_ANSWERS}
        if known.get("overrides") is torch.overrides:
            known["overrides"] = _OVERRIDES
        _globals[id(names)] = known
    return known


def _rebuild(func: types.FunctionType, made: dict[types.FunctionType, types.FunctionType]) -> Any:
    """``func`` and the functions it closes over (of a decorator, a choice by flag); they may form cycles."""
    if func in made:
        return made[func]
    cells = tuple(types.CellType() for _ in func.__closure__ or ())
    names = _without_questions(func.__globals__)
    if "overrides" in func.__code__.co_names and names.get("torch") is torch:
        names = {**names, "torch": _TORCH}
    helpers = [name for name in func.__code__.co_names if _hands_over(func.__globals__.get(name), func)]
    if helpers:
        names = dict(names)
    rebuilt = types.FunctionType(func.__code__, names, func.__name__, func.__defaults__, cells or None)
    rebuilt.__kwdefaults__ = func.__kwdefaults__
    made[func] = rebuilt
    names.update({name: _rebuild(func.__globals__[name], made) for name in helpers})
    for cell, old in zip(cells, func.__closure__ or (), strict=True):
        try:
            value = old.cell_contents
        except ValueError:  # a name that is not bound yet
            continue
        cell.cell_contents = _rebuild(value, made) if isinstance(value, types.FunctionType) else value
    return rebuilt


def _hands_over(helper: Any, func: types.FunctionType) -> bool:
    """Whether ``helper`` asks the questions in place of ``func``: run by its body, it would call it again."""
    if not isinstance(helper, types.FunctionType) or helper is func:
        return False
    names = helper.__code__.co_names
    return "handle_torch_function" in names and func.__name__ in names


@functools.cache
def python_body(func: Callable[..., Any]) -> Callable[..., Any] | None:
    """``func`` with its own body, in which no argument overrides anything; its parts are dispatched.

    Returns:
        The rebuilt function; ``None`` if ``func`` is a built-in.
    """
    return _rebuild(func, {}) if isinstance(func, types.FunctionType) else None
