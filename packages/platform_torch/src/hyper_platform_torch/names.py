"""How a framework function is called in the operator registry.

``torch.add``, ``Tensor.add``, ``x + y`` and ``torch.nn.functional`` forms all reach one entry. A form whose
arguments differ from the registered signature is rearranged here; a built-in that shares its name with
another function, but not its arguments, gets a name of its own.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F

from hyper_platform_torch.unseen_writes import SEEN

__all__ = ["Known", "describe"]

Call: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
Arrange: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], Call]


class Known(NamedTuple):
    """A framework function as the dispatcher sees it.

    Attributes:
        name: The name in the operator registry; ``None`` for a function that is called with the DTensors
            themselves and not dispatched.
        func: The function to run on local tensors (or to call).
        arrange: Puts the arguments of this form into those of ``func``; ``None`` if they are alike.
    """

    name: str | None
    func: Callable[..., Any]
    arrange: Arrange | None = None


def _swap(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    return (args[1], args[0], *args[2:]), kwargs


def _softmax_form(input: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Call:
    if dim is None:
        dim = F._get_softmax_dim("softmax", input.dim(), _stacklevel)  # type: ignore[attr-defined]
    return (input, dim), {} if dtype is None else {"dtype": dtype}


def _softmax(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    return _softmax_form(*args, **kwargs)


def _embedding_form(
    weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Call:
    # -1 stands for no padding index in the built-in, for the last row in the functional form.
    return (indices, weight), {
        "padding_idx": None if padding_idx == -1 else padding_idx,
        "scale_grad_by_freq": scale_grad_by_freq,
        "sparse": sparse,
    }


def _embedding(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    return _embedding_form(*args, **kwargs)


def _where_form(self: Any, condition: Any, other: Any) -> Call:
    return (condition, self, other), {}


def _where(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    return _where_form(*args, **kwargs)


def _first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    return args[:1], {}


_FORMS: dict[Any, Known] = {
    F.rms_norm: Known("rms_norm", torch.rms_norm),
    F.softmax: Known("softmax", torch.softmax, _softmax),
    F.log_softmax: Known("log_softmax", torch.log_softmax, _softmax),
    torch.rsub: Known("sub", torch.sub, _swap),
    torch.embedding: Known("embedding", F.embedding, _embedding),
    torch.Tensor.where: Known("where", torch.where, _where),
    **{kernel: Known(kernel.__name__, seen) for kernel, seen in SEEN.items()},
}

_OPERATORS = {
    "abs": "abs",
    "add": "add",
    "and": "bitwise_and",
    "div": "div",
    "eq": "eq",
    "floordiv": "floor_divide",
    "ge": "ge",
    "getitem": "getitem",
    "gt": "gt",
    "invert": "bitwise_not",
    "le": "le",
    "lshift": "bitwise_left_shift",
    "lt": "lt",
    "matmul": "matmul",
    "mod": "remainder",
    "mul": "mul",
    "ne": "ne",
    "neg": "neg",
    "or": "bitwise_or",
    "pos": "positive",
    "pow": "pow",
    "rshift": "bitwise_right_shift",
    "setitem": "setitem",
    "sub": "sub",
    "truediv": "div",
    "xor": "bitwise_xor",
}
"""Methods behind operators, without their underscores. All other such methods (``__array__``,
``__complex__``) keep theirs: ``complex`` is another function."""

_COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge"}
_IN_PLACE = {f"i{name}": f"{value}_" for name, value in _OPERATORS.items() if name not in _COMPARISONS}

# The built-in methods of this kind; the others are written in Python and swap the operands themselves.
_SWAPPED = {
    "__radd__": "add",
    "__rmul__": "mul",
    "__rand__": "bitwise_and",
    "__ror__": "bitwise_or",
    "__rxor__": "bitwise_xor",
}

_SPECIAL = {
    "linalg_matmul": "matmul",
    "special_digamma": "digamma",
    "special_erf": "erf",
    "special_erfc": "erfc",
    "special_erfinv": "erfinv",
    "special_exp2": "exp2",
    "special_expit": "sigmoid",
    "special_expm1": "expm1",
    "special_gammaln": "lgamma",
    "special_i0": "i0",
    "special_log1p": "log1p",
    "special_log_softmax": "log_softmax",
    "special_logit": "logit",
    "special_logsumexp": "logsumexp",
    "special_psi": "digamma",
    "special_round": "round",
    "special_sinc": "sinc",
    "special_softmax": "softmax",
    "special_xlogy": "xlogy",
}
"""Other names of functions that are registered."""

_FUNCTIONAL = {name for name, value in vars(F).items() if isinstance(value, types.FunctionType)}
_LIKE_FUNCTIONAL = {
    "alpha_dropout",
    "celu",
    "dropout",
    "elu",
    "group_norm",
    "hardtanh",
    "layer_norm",
    "leaky_relu",
    "log_softmax",
    "relu",
    "rms_norm",
    "rrelu",
    "selu",
    "sigmoid",
    "softmax",
    "tanh",
    "threshold",
}
"""Built-ins that take the arguments of the function of their name in ``torch.nn.functional``."""


def describe(func: Callable[..., Any]) -> Known:
    """The registry's view of a framework function, method, operator or property getter."""
    found = _FORMS.get(func)
    if found is not None:
        return found
    inner = getattr(func, "__wrapped__", None)
    if inner is not None and not isinstance(inner, types.FunctionType):
        func = inner  # the built-in itself: the wrapper turns a wrong type into NotImplemented
    name = getattr(func, "__name__", None) or repr(func)
    if name in ("__get__", "__set__", "__delete__"):
        # A property: its descriptor has the name. A getter is called with the tensor alone.
        owner = getattr(func, "__self__", None)
        owner_name = getattr(owner, "__name__", repr(owner))
        return Known(owner_name, func, _first) if name == "__get__" else Known(f"{owner_name}{name}", func)
    if name in _SWAPPED:
        return Known(_SWAPPED[name], getattr(torch, _SWAPPED[name]), _swap)
    if name.startswith("__") and name.endswith("__"):
        bare = name[2:-2]
        return Known(_OPERATORS.get(bare) or _IN_PLACE.get(bare) or name, func)
    if hasattr(func, "overloadpacket") or hasattr(func, "overloads"):
        # An operator of torch.ops: its arguments are those of the C++ schema.
        return Known(f"torch.ops.{func}", func)
    if name in _SPECIAL:
        return Known(_SPECIAL[name], func)
    if name in _FUNCTIONAL and not isinstance(func, types.FunctionType) and name not in _LIKE_FUNCTIONAL:
        return Known(f"torch.{name}", func)
    return Known(name, func)
