"""Operators that are a few others on DTensors, because their arguments say more than one operation does.

A legacy primitive hands over itself first, with the attributes that are no arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

from mindspore import mint, ops
from mindspore._c_expression import typing as types

from hyper_dispatch import dispatcher
from hyper_platform_ms.local_ops import MindSporeOps

__all__ = ["COMPOSED", "LEGACY"]

_ops: Final = MindSporeOps()


def _run(name: str, *args: Any, **kwargs: Any) -> Any:
    return dispatcher.dispatch(name, getattr(_ops, name), args, kwargs)


# -- functions and methods -------------------------------------------------------------------------------
def _matmul(name: str, x: Any, y: Any, transpose_a: bool = False, transpose_b: bool = False) -> Any:
    """``MatMul``, ``BatchMatMul``: products of matrices that may be transposed."""
    if transpose_b and not transpose_a and len(y.shape) == 2:
        return _run("linear", x, y)
    x = _swapped(x) if transpose_a else x
    y = _swapped(y) if transpose_b else y
    return _run(name, x, y)


def _swapped(x: Any) -> Any:
    return mint.transpose(x, -1, -2)


def _softmax(name: str, x: Any, axis: Any = -1) -> Any:
    """``Softmax``, ``LogSoftmax``: over one axis, which may stand in a tuple."""
    if isinstance(axis, (tuple, list)):
        if len(axis) != 1:
            raise NotImplementedError(f"{name} of a DTensor takes one axis, got {tuple(axis)}")
        (axis,) = axis
    return _run(name, x, axis)


def _squeeze(x: Any, axis: Any = ()) -> Any:
    """``Squeeze``: all dims of size 1, or the named ones."""
    return _run("squeeze", x) if axis in ((), None) else _run("squeeze", x, axis)


def _transpose(x: Any, *axes: Any) -> Any:
    """``x.transpose(...)``: a permutation, or all dims reversed."""
    order = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
    return _run("permute", x, tuple(order) or tuple(reversed(range(len(x.shape)))))


def _cast(x: Any, dtype: Any) -> Any:
    """``Cast``: to a dtype that is given by its number."""
    return _run("to", x, types.type_id_to_type(dtype) if isinstance(dtype, int) else dtype)


def _to_dtype(x: Any, dtype: Any = None, **options: Any) -> Any:
    """``x.to(dtype)``, ``x.astype(dtype)``; without dtype nothing changes."""
    return x if dtype is None else _run("to", x, dtype)


def _max_with_index(name: str, x: Any, axis: int = 0, keep_dims: bool = False) -> Any:
    """``ArgMaxWithValue``: the index first."""
    values, places = _run(name, x, axis, keep_dims)
    return places, values


def _gather(x: Any, index: Any, axis: Any, batch_dims: int = 0) -> Any:
    """``Gather``: slices along an axis, in the shape of the index."""
    axis = int(axis)
    if batch_dims:
        raise NotImplementedError("Gather of a DTensor takes no batch_dims: use mint.gather")
    if axis % max(len(x.shape), 1) == 0 and len(x.shape) == 2:
        return _run("embedding", index, x)
    if len(index.shape) == 1:
        return _run("index_select", x, axis, index)
    axis %= len(x.shape)
    flat = _run("index_select", x, axis, mint.reshape(index, (prod(index.shape),)))
    return mint.reshape(flat, (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]))


def _bias_add(x: Any, bias: Any, data_format: Any = 0) -> Any:
    """``BiasAdd``: a bias along dim 1 (or the last: NHWC)."""
    ndim = len(x.shape)
    if ndim == 2 or data_format in (1, "NHWC"):
        return _run("add", x, bias)
    return _run("add", x, mint.reshape(bias, (-1, *(1,) * (ndim - 2))))


def _slice(x: Any, begin: Sequence[int], size: Sequence[int]) -> Any:
    """``Slice``: a piece of every dim; -1 is the rest."""
    for dim, (start, length) in enumerate(zip(begin, size, strict=True)):
        length = x.shape[dim] - start if length == -1 else length
        if (start, length) != (0, x.shape[dim]):
            x = _run("narrow", x, dim, start, length)
    return x


def _split_number(x: Any, axis: int = 0, number: int = 1) -> Any:
    """``Split``: so many equal pieces."""
    return _run("tensor_split", x, number, axis)


def _func_dropout(x: Any, p: float = 0.5, training: bool = True, *_: Any) -> Any:
    """``FuncDropoutExt``; the numbers are drawn from the random path and not from its generator."""
    return _run("dropout", x, p, training)


def _one_hot(x: Any, classes: int = -1, on: Any = 1, off: Any = 0, axis: int = -1) -> Any:
    """``OneHotExt``: of 1 and 0, along a new last dim."""
    if axis != -1 or int(on) != 1 or int(off) != 0:
        raise NotImplementedError("OneHotExt of a DTensor has the values 1 and 0 along a new last dim")
    return _run("one_hot", x, int(classes))


def _rms_norm(x: Any, weight: Any, epsilon: float = 1e-6) -> Any:
    """``RmsNorm``: the normalised tensor, and the reciprocal root that it was multiplied with."""
    dims = tuple(range(len(x.shape) - len(weight.shape), len(x.shape)))
    root = mint.rsqrt(mint.add(mint.mean(mint.square(x), dims, True), epsilon))
    return _run("rms_norm", x, tuple(weight.shape), weight, epsilon), root


# -- legacy primitives -----------------------------------------------------------------------------------
def _layer_norm(
    primitive: Any, x: Any, weight: Any, bias: Any, begin: int = 1, parameters: int = 1, eps: float = 1e-7
) -> Any:
    """``LayerNorm``: the normalised tensor, mean and variance."""
    begin %= len(x.shape)
    if len(weight.shape) != len(x.shape) - begin:
        raise NotImplementedError("LayerNorm of a DTensor needs begin_norm_axis equal to begin_params_axis")
    return _run("native_layer_norm", x, tuple(x.shape[begin:]), weight, bias, eps)


def _dropout(primitive: Any, x: Any, keep: float = 0.5, *_: Any) -> Any:
    """``Dropout``: the tensor, and the mask, which is not kept here."""
    return _run("dropout", x, 1 - keep), None


def _sort(primitive: Any, x: Any) -> Any:
    values, places = _run("sort", x, primitive.axis, primitive.descending)
    return values, _run("to", places, types.kInt32)


def _topk(primitive: Any, x: Any, k: Any) -> Any:
    values, places = _run("topk", x, int(k), -1, True, bool(primitive.sorted))
    return values, _run("to", places, types.kInt32)


def _cumsum(primitive: Any, x: Any, axis: Any, exclusive: bool = False, reverse: bool = False) -> Any:
    if exclusive or reverse:
        raise NotImplementedError("CumSum of a DTensor takes neither exclusive nor reverse")
    return _run("cumsum", x, int(axis))


def _argmax(primitive: Any, x: Any, axis: int = -1, output_type: Any = None) -> Any:
    places = _run("argmax", x, axis)
    return places if output_type is None else _cast(places, output_type)


def _flatten(primitive: Any, x: Any) -> Any:
    """``Flatten`` keeps dim 0."""
    return _run("flatten", x, 1) if len(x.shape) > 1 else _run("unsqueeze", x, 1)


def _unstack(primitive: Any, x: Any, *_: Any) -> Any:
    return _run("unbind", x, primitive.axis)


def _stack(primitive: Any, *tensors: Any) -> Any:
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    return _run("stack", tuple(given), primitive.axis)


def _add_n(primitive: Any, *tensors: Any) -> Any:
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    total = given[0]
    for each in given[1:]:
        total = _run("add", total, each)
    return total


def _scatter_elements(
    primitive: Any, x: Any, index: Any, updates: Any, axis: int = 0, reduction: Any = 0
) -> Any:
    if reduction in (1, "add"):
        return _run("scatter_add", x, axis, index, updates)
    if reduction not in (0, "none"):
        raise NotImplementedError("TensorScatterElements of a DTensor takes the reductions none and add")
    return _run("scatter", x, axis, index, updates)


def _gelu_tanh(*args: Any) -> Any:
    return _run("gelu", args[-1], approximate="tanh")


def _type_of(primitive: Any, x: Any, *_: Any) -> Any:
    return ops.typeof(x._local) if hasattr(ops, "typeof") else primitive(x._local)


def _collective(primitive: Any, *_: Any) -> Any:
    raise NotImplementedError(
        f"a collective of MindSpore ({primitive.name}) does not take a DTensor: use x.redistribute(...), or "
        "call it on x.to_local()"
    )


def _renamed(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    return lambda *args, **kwargs: function(name, *args, **kwargs)


def _without_primitive(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda primitive, *args: function(*args)


COMPOSED: Final[dict[str, Callable[..., Any]]] = {
    "MatMul": _renamed(_matmul, "matmul"),
    "BatchMatMul": _renamed(_matmul, "matmul"),
    "Softmax": _renamed(_softmax, "softmax"),
    "LogSoftmax": _renamed(_softmax, "log_softmax"),
    "Squeeze": _squeeze,
    "DeprecatedTranspose": _transpose,
    "Cast": _cast,
    "ToDtype": _to_dtype,
    "ArgMaxWithValue": _renamed(_max_with_index, "max"),
    "ArgMinWithValue": _renamed(_max_with_index, "min"),
    "DeprecatedGather": _gather,
    "Slice": _slice,
    "Split": _split_number,
    "RmsNorm": _rms_norm,
    "GeLU": _gelu_tanh,
    "FuncDropoutExt": _func_dropout,
    "OneHotExt": _one_hot,
}
"""By MindSpore's name, called with the arguments of the call."""

LEGACY: Final[dict[str, Callable[..., Any]]] = {
    "LayerNorm": _layer_norm,
    "Dropout": _dropout,
    "Sort": _sort,
    "TopK": _topk,
    "CumSum": _cumsum,
    "Argmax": _argmax,
    "Flatten": _flatten,
    "Unstack": _unstack,
    "Stack": _stack,
    "AddN": _add_n,
    "TensorScatterElements": _scatter_elements,
    "GeLU": _gelu_tanh,
    "typeof": _type_of,
    **dict.fromkeys(
        (
            "AllReduce",
            "AllGather",
            "ReduceScatter",
            "Broadcast",
            "AlltoAll",
            "AlltoAllV",
            "NeighborExchange",
            "Reduce",
            "CollectiveScatter",
            "CollectiveGather",
            "Send",
            "Receive",
        ),
        _collective,
    ),
    "Gather": _without_primitive(_gather),
    "BiasAdd": _without_primitive(_bias_add),
    "Slice": _without_primitive(_slice),
}
"""By MindSpore's name, called with the primitive and its arguments."""
