"""Every operator call with a DTensor among its arguments reaches the DTensor.

MindSpore asks the *first* tensor argument whose class has ``__fallback__``, and fails where a plain tensor
comes first or an operand hides in a keyword. So plain tensors and parameters get a ``__fallback__`` too, that
looks for a DTensor among all arguments. Calls on plain tensors alone are not intercepted at all.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from mindspore import Parameter, Tensor
from mindspore._c_expression import NoFallbackGuard, TensorPy
from mindspore.ops import primitive

from hyper_dtensor import DTensor
from hyper_platform_ms.checkpoints import is_saving, keep_parts
from hyper_platform_ms.functions import make_overridable
from hyper_platform_ms.graph_mode import refuse_in_graphs
from hyper_platform_ms.optimizers import watch_optimizers
from hyper_platform_ms.tensor import MindSporeDTensor

__all__ = ["intercept"]


def _find(values: Any) -> MindSporeDTensor | None:
    for value in values:
        if isinstance(value, MindSporeDTensor):
            return value
        if isinstance(value, (list, tuple)):
            found = _find(value)
            if found is not None:
                return found
    return None


def _forward(
    self: Tensor, func: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """``__fallback__`` of a plain tensor or parameter: the DTensor's, if there is one."""
    distributed = _find((*args, *(kwargs or {}).values()))
    if distributed is not None:
        return distributed.__fallback__(func, args, kwargs)
    with NoFallbackGuard():
        return func(*args, **(kwargs or {}))


class _LegacyCall:
    """A primitive whose tensors stand in a tuple, which MindSpore does not look into."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, primitive_: Any, name: str, args: Any) -> Any:
        return _run(primitive_, name, args)


_run = primitive._run_op


def _run_with_tuples(obj: Any, op_name: str, args: Any) -> Any:
    for value in args:
        if isinstance(value, (list, tuple)):
            distributed = _find(args)
            if distributed is not None:
                return distributed.__fallback__(_LegacyCall(op_name), (obj, op_name, tuple(args)), {})
            break
    return _run(obj, op_name, args)


def _set_requires_grad(self: Tensor, value: bool) -> None:
    self.requires_grad_(value)


def _init(self: Tensor, input_data: Any = None, *args: Any, **kwargs: Any) -> None:
    """``Tensor(x)`` copies the values of a DTensor that is whole, and is refused for others."""
    if isinstance(input_data, DTensor):
        input_data = input_data._local if is_saving() else input_data._whole("asnumpy()")
    TensorPy.__init__(self, input_data, *args, **kwargs)


def _takes_whole(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of plain tensors that exchanges their data: a part of a DTensor will not do."""

    @functools.wraps(method)
    def exchange(self: Tensor, data: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(data, DTensor):
            data = data._whole("asnumpy()")
        return method(self, data, *args, **kwargs)

    return exchange


def intercept() -> None:
    """Install the interception, for the whole process and once."""
    if hasattr(Tensor, "__fallback__"):
        return
    Tensor.__fallback__ = _forward
    # As PyTorch's attribute: whether operations on the tensor are recorded in a gradient computation.
    Tensor.requires_grad = property(operator.attrgetter("_requires_grad"), _set_requires_grad)
    primitive._run_op = _run_with_tuples
    Tensor.__init__ = _init
    Tensor.assign_value = _takes_whole(Tensor.assign_value)
    Parameter.set_data = _takes_whole(Parameter.set_data)
    make_overridable()
    keep_parts()
    watch_optimizers()
    refuse_in_graphs()
