"""How a framework function is called in the operator registry.

``torch.add``, ``Tensor.add``, ``x + y`` and ``torch.nn.functional`` forms all reach one entry. A form whose
arguments differ from the registered signature is rearranged here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F

__all__ = ["Known", "describe"]

Arrange: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]


class Known(NamedTuple):
    """A framework function as the dispatcher sees it.

    Attributes:
        name: The name in the operator registry.
        func: The function to run on local tensors.
        arrange: Puts the arguments of this form into those of ``func``; ``None`` if they are alike.
    """

    name: str
    func: Callable[..., Any]
    arrange: Arrange | None = None


def _swap(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (args[1], args[0], *args[2:]), kwargs


def _softmax_form(
    input: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if dim is None:
        dim = F._get_softmax_dim("softmax", input.dim(), _stacklevel)
    return (input, dim), {} if dtype is None else {"dtype": dtype}


def _softmax(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return _softmax_form(*args, **kwargs)


def _no_args(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args[:1], {}


_FORMS: dict[Any, Known] = {
    F.softmax: Known("softmax", torch.softmax, _softmax),
    F.log_softmax: Known("log_softmax", torch.log_softmax, _softmax),
    torch.rsub: Known("sub", torch.sub, _swap),
    F.relu: Known("relu", torch.relu, None),
    F.tanh: Known("tanh", torch.tanh, None),
    F.sigmoid: Known("sigmoid", torch.sigmoid, None),
}

_DUNDERS = {
    "truediv": "div",
    "itruediv": "div_",
    "idiv": "div_",
    "floordiv": "floor_divide",
    "ifloordiv": "floor_divide_",
    "mod": "remainder",
    "imod": "remainder_",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "iand": "bitwise_and_",
    "ior": "bitwise_or_",
    "ixor": "bitwise_xor_",
    "invert": "bitwise_not",
    "iadd": "add_",
    "isub": "sub_",
    "imul": "mul_",
    "ipow": "pow_",
}

_SWAPPED = {
    "__radd__": "add",
    "__rmul__": "mul",
    "__rand__": "bitwise_and",
    "__ror__": "bitwise_or",
    "__rxor__": "bitwise_xor",
}


def describe(func: Callable[..., Any]) -> Known:
    """The registry's view of a framework function, method, operator or property getter."""
    found = _FORMS.get(func)
    if found is not None:
        return found
    name = getattr(func, "__name__", repr(func))
    if name in ("__get__", "__set__"):
        # A property: its descriptor has the name. A getter is called with the tensor alone.
        owner = getattr(func, "__self__", None)
        return Known(
            getattr(owner, "__name__", name) + ("_set" if name == "__set__" else ""),
            func,
            _no_args if name == "__get__" else None,
        )
    if name in _SWAPPED:
        return Known(_SWAPPED[name], getattr(torch, _SWAPPED[name]), _swap)
    if name.startswith("__") and name.endswith("__"):
        bare = name[2:-2]
        return Known(_DUNDERS.get(bare, bare), func)
    return Known(name, func)
