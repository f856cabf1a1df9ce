"""Functions on ``SimTensor`` under PyTorch's names, signatures and meaning, with gradients.

Each gradient is written with these same functions, so that second derivatives come for free.
"""

from __future__ import annotations

import builtins
import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tests.support.simulated import tape
from tests.support.simulated.tensor import SimTensor

T: TypeAlias = SimTensor
Dims: TypeAlias = "int | Sequence[int] | None"

float64, float32, float16 = np.dtype("float64"), np.dtype("float32"), np.dtype("float16")
int64, int32, bool_ = np.dtype("int64"), np.dtype("int32"), np.dtype("bool")


def _array(value: Any, like: Any = None) -> Any:
    """The array of a tensor; a Python number takes the dtype of the tensor it meets, as in PyTorch."""
    if isinstance(value, SimTensor):
        return value.array
    if isinstance(like, SimTensor) and isinstance(value, (bool, int, float)):
        floating = isinstance(value, float) and like.array.dtype.kind != "f"
        if floating or isinstance(value, bool):
            return np.asarray(value)
        return np.asarray(value, dtype=like.dtype)
    return np.asarray(value)


def _pair(a: Any, b: Any) -> tuple[Any, Any]:
    return _array(a, b), _array(b, a)


def _shape(operand: Any) -> tuple[int, ...] | None:
    """The shape of a tensor; None for a number. A backward keeps this instead of the operand."""
    return operand.shape if isinstance(operand, SimTensor) else None


def _to_shape(gradient: T, shape: tuple[int, ...] | None) -> T | None:
    """Undo broadcasting, for an operand that is a tensor."""
    return None if shape is None else _sum_to(gradient, shape)


def _sum_to(gradient: T, shape: tuple[int, ...]) -> T:
    """Sum over the dims that grew from ``shape``."""
    if gradient.shape == shape:
        return gradient
    extra = gradient.ndim - len(shape)
    grown = [extra + i for i, n in enumerate(shape) if n == 1 and gradient.shape[extra + i] != 1]
    dims = [*range(extra), *grown]
    return reshape(sum(gradient, dims) if dims else gradient, shape)


def _dims(dim: Dims, ndim: int) -> tuple[int, ...]:
    if dim is None or (isinstance(dim, Sequence) and not dim):
        return tuple(range(ndim))
    return tuple(d % ndim for d in ([dim] if isinstance(dim, int) else dim))


# -- elementwise ------------------------------------------------------------------------------------------
def add(input: Any, other: Any, *, alpha: float = 1) -> T:
    """``input + alpha * other``."""
    if alpha != 1:
        other = mul(other, alpha)
    a, b = _pair(input, other)
    input_shape, other_shape = _shape(input), _shape(other)
    return tape.record(
        T(a + b), "add", (input, other), lambda g: (_to_shape(g, input_shape), _to_shape(g, other_shape))
    )


def sub(input: Any, other: Any, *, alpha: float = 1) -> T:
    """``input - alpha * other``."""
    if alpha != 1:
        other = mul(other, alpha)
    a, b = _pair(input, other)
    input_shape, other_shape = _shape(input), _shape(other)
    return tape.record(
        T(a - b), "sub", (input, other), lambda g: (_to_shape(g, input_shape), _to_shape(neg(g), other_shape))
    )


def mul(input: Any, other: Any) -> T:
    """``input * other``."""
    a, b = _pair(input, other)
    input_shape, other_shape = _shape(input), _shape(other)
    return tape.record(
        T(a * b),
        "mul",
        (input, other),
        lambda g: (
            _to_shape(mul(g, other), input_shape) if _needs(input) else None,
            _to_shape(mul(g, input), other_shape) if _needs(other) else None,
        ),
        saved=(other if _needs(input) else None, input if _needs(other) else None),
    )


def div(input: Any, other: Any) -> T:
    """``input / other``."""
    a, b = _pair(input, other)
    input_shape, other_shape = _shape(input), _shape(other)
    return tape.record(
        T(a / b),
        "div",
        (input, other),
        lambda g: (
            _to_shape(div(g, other), input_shape) if _needs(input) else None,
            _to_shape(neg(div(mul(g, input), mul(other, other))), other_shape) if _needs(other) else None,
        ),
        saved=(other, input if _needs(other) else None),
    )


def pow(input: Any, exponent: Any) -> T:
    """``input ** exponent`` for a number ``exponent``."""
    if isinstance(exponent, SimTensor):
        raise NotImplementedError("pow takes a number as exponent here")
    return _unary("pow", input, input.array**exponent, lambda: mul(pow(input, exponent - 1), exponent))


def _needs(value: Any) -> bool:
    return isinstance(value, SimTensor) and value.requires_grad


def _unary(name: str, x: T, array: Any, derivative: Callable[[], T]) -> T:
    return tape.record(T(array), name, (x,), lambda g: (mul(g, derivative()),), saved=(x,))


def neg(input: T) -> T:
    """``-input``."""
    return tape.record(T(-input.array), "neg", (input,), lambda g: (neg(g),))


def exp(input: T) -> T:
    """Exponential."""
    return _unary("exp", input, np.exp(input.array), lambda: exp(input))


def log(input: T) -> T:
    """Natural logarithm."""
    return _unary("log", input, np.log(input.array), lambda: div(1.0, input))


def sqrt(input: T) -> T:
    """Square root."""
    return _unary("sqrt", input, np.sqrt(input.array), lambda: div(0.5, sqrt(input)))


def square(input: T) -> T:
    """``input * input``."""
    return mul(input, input)


def rsqrt(input: T) -> T:
    """One over the square root."""
    return div(1.0, sqrt(input))


def tanh(input: T) -> T:
    """Hyperbolic tangent."""
    return _unary("tanh", input, np.tanh(input.array), lambda: sub(1.0, pow(tanh(input), 2)))


def sigmoid(input: T) -> T:
    """Logistic function."""
    return div(1.0, add(exp(neg(input)), 1.0))


def silu(input: T) -> T:
    """``input * sigmoid(input)``."""
    return mul(input, sigmoid(input))


def relu(input: T) -> T:
    """The positive part."""
    return _unary("relu", input, np.maximum(input.array, 0), lambda: T((input.array > 0).astype(input.dtype)))


def abs(input: T) -> T:
    """Absolute value."""
    return _unary("abs", input, np.abs(input.array), lambda: T(np.sign(input.array)))


def clamp(input: T, min: float | None = None, max: float | None = None) -> T:
    """``input`` cut to the range."""
    inside = np.ones(input.shape, dtype=bool)
    if min is not None:
        inside &= input.array >= min
    if max is not None:
        inside &= input.array <= max
    return _unary("clamp", input, np.clip(input.array, min, max), lambda: T(inside.astype(input.dtype)))


def where(condition: T, input: Any, other: Any) -> T:
    """``input`` where the condition holds, else ``other``."""
    a, b = _pair(input, other)
    input_shape, other_shape = _shape(input), _shape(other)

    def backward(g: T) -> tuple[T | None, ...]:
        return (
            None,
            _to_shape(where(condition, g, 0.0), input_shape),
            _to_shape(where(condition, 0.0, g), other_shape),
        )

    return tape.record(
        T(np.where(condition.array, a, b)), "where", (None, input, other), backward, saved=(condition,)
    )


def masked_fill(input: T, mask: T, value: Any) -> T:
    """``value`` where the mask holds."""
    return where(mask, value, input)


def maximum(input: Any, other: Any) -> T:
    """The larger of both; the gradient of a tie is halved."""
    return _extremum(np.maximum, input, other)


def minimum(input: Any, other: Any) -> T:
    """The smaller of both; the gradient of a tie is halved."""
    return _extremum(np.minimum, input, other)


def _extremum(function: Any, input: Any, other: Any) -> T:
    a, b = _pair(input, other)
    input_shape, other_shape = _shape(input), _shape(other)
    result = function(a, b)

    def backward(g: T) -> tuple[T | None, ...]:
        share_a, share_b = ((a == result) - 0.5 * (a == b)), ((b == result) - 0.5 * (a == b))
        return _to_shape(mul(g, T(share_a)), input_shape), _to_shape(mul(g, T(share_b)), other_shape)

    return tape.record(T(result), function.__name__, (input, other), backward, saved=(input, other))


def _comparison(function: Any) -> Callable[[Any, Any], T]:
    def compare(input: Any, other: Any) -> T:
        return T(function(*_pair(input, other)))

    compare.__doc__ = f"NumPy's ``{function.__name__}``."
    return compare


eq, ne, lt = _comparison(np.equal), _comparison(np.not_equal), _comparison(np.less)
le, gt, ge = _comparison(np.less_equal), _comparison(np.greater), _comparison(np.greater_equal)
logical_and, logical_or = _comparison(np.logical_and), _comparison(np.logical_or)


def logical_not(input: T) -> T:
    """The opposite."""
    return T(np.logical_not(input.array))


def isnan(input: T) -> T:
    """Where the value is not a number."""
    return T(np.isnan(input.array))


def to(input: T, dtype: Any) -> T:
    """``input`` in another dtype; itself if it has that dtype already."""
    dtype = np.dtype(dtype)
    if dtype == input.dtype:
        return input
    source = input.dtype
    return tape.record(T(input.array.astype(dtype)), "to", (input,), lambda g: (to(g, source),))


def type_as(input: T, other: T) -> T:
    """``input`` in the dtype of ``other``."""
    return to(input, other.dtype)


# -- matrix products --------------------------------------------------------------------------------------
def matmul(input: T, other: T) -> T:
    """Matrix product of tensors of rank 2 or more; leading dims broadcast."""
    if input.ndim < 2 or other.ndim < 2:
        raise NotImplementedError("matmul takes tensors of rank 2 or more here")
    input_shape, other_shape = input.shape, other.shape
    return tape.record(
        T(np.matmul(input.array, other.array)),
        "matmul",
        (input, other),
        lambda g: (
            _to_shape(matmul(g, transpose(other, -1, -2)), input_shape) if _needs(input) else None,
            _to_shape(matmul(transpose(input, -1, -2), g), other_shape) if _needs(other) else None,
        ),
        saved=(input, other),
    )


mm = bmm = matmul


def linear(input: T, weight: T, bias: T | None = None) -> T:
    """``input @ weight.T + bias``; weight ``[out_features, in_features]``."""
    product = matmul(input, transpose(weight, 0, 1))
    return product if bias is None else add(product, bias)


# -- reductions -------------------------------------------------------------------------------------------
def sum(input: T, dim: Dims = None, keepdim: bool = False) -> T:
    """Sum over dims; all of them by default."""
    dims = _dims(dim, input.ndim)
    kept = tuple(1 if d in dims else n for d, n in enumerate(input.shape))
    shape = input.shape
    array = np.sum(input.array, axis=dims, keepdims=keepdim, dtype=None if input.dtype.kind != "b" else int64)
    return tape.record(T(array), "sum", (input,), lambda g: (expand(reshape(g, kept), shape),))


def mean(input: T, dim: Dims = None, keepdim: bool = False) -> T:
    """Mean over dims; all of them by default."""
    count = math.prod(input.shape[d] for d in _dims(dim, input.ndim))
    return div(sum(input, dim, keepdim), count)


def amax(input: T, dim: Dims = None, keepdim: bool = False) -> T:
    """Maximum over dims; ties share the gradient."""
    return _reduce_extremum(np.max, input, dim, keepdim)


def amin(input: T, dim: Dims = None, keepdim: bool = False) -> T:
    """Minimum over dims; ties share the gradient."""
    return _reduce_extremum(np.min, input, dim, keepdim)


def _reduce_extremum(function: Any, input: T, dim: Dims, keepdim: bool) -> T:
    dims = _dims(dim, input.ndim)
    kept = function(input.array, axis=dims, keepdims=True)
    shape = tuple(n for d, n in enumerate(input.shape) if d not in dims)

    def backward(g: T) -> tuple[T]:
        hit = (input.array == kept).astype(input.dtype)
        share = T(hit / hit.sum(axis=dims, keepdims=True))
        return (mul(reshape(g, kept.shape), share),)

    return tape.record(
        T(kept if keepdim else kept.reshape(shape)), "amax", (input,), backward, saved=(input,)
    )


def any(input: T, dim: Dims = None, keepdim: bool = False) -> T:
    """Whether any is true."""
    return T(np.any(input.array, axis=_dims(dim, input.ndim), keepdims=keepdim))


def all(input: T, dim: Dims = None, keepdim: bool = False) -> T:
    """Whether all are true."""
    return T(np.all(input.array, axis=_dims(dim, input.ndim), keepdims=keepdim))


def argmax(input: T, dim: int | None = None, keepdim: bool = False) -> T:
    """Index of the first maximum."""
    return T(np.argmax(input.array, axis=dim, keepdims=keepdim))


def log_softmax(input: T, dim: int) -> T:
    """``log(softmax(input))``."""
    shifted = sub(input, amax(input.detach(), dim, keepdim=True))
    return sub(shifted, log(sum(exp(shifted), dim, keepdim=True)))


def softmax(input: T, dim: int) -> T:
    """Normalised exponential."""
    return exp(log_softmax(input, dim))


# -- views ------------------------------------------------------------------------------------------------
def _view(name: str, x: T, take: Callable[[Any], Any], back: Callable[[T], T]) -> T:
    """A result that shares storage and version with ``x`` and follows its history."""
    out = tape.record(T(take(x.array), meta=x.is_meta), name, (x,), lambda g: (back(g),))
    if np.shares_memory(out.array, x.array) or x.is_meta:
        if tape.grad_enabled():
            out.follow(x, lambda base: _view(name, base, take, back))
        out.counter = x.counter
    return out


def reshape(input: T, *shape: Any) -> T:
    """Another shape; a view where NumPy can give one."""
    wanted = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
    before = input.shape
    return _view("reshape", input, lambda a: a.reshape(wanted), lambda g: reshape(g, before))


view = reshape


def flatten(input: T, start_dim: int = 0, end_dim: int = -1) -> T:
    """Join the dims from ``start_dim`` to ``end_dim``."""
    start, end = start_dim % input.ndim, end_dim % input.ndim
    return reshape(input, (*input.shape[:start], -1, *input.shape[end + 1 :]))


def permute(input: T, *dims: Any) -> T:
    """The dims in another order."""
    order = tuple(dims[0]) if len(dims) == 1 and isinstance(dims[0], Sequence) else dims
    order = tuple(d % input.ndim for d in order)
    inverse = tuple(int(i) for i in np.argsort(order))
    return _view("permute", input, lambda a: a.transpose(order), lambda g: permute(g, inverse))


def transpose(input: T, dim0: int, dim1: int) -> T:
    """Two dims swapped."""
    order = list(range(input.ndim))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return permute(input, order)


def t(input: T) -> T:
    """The transpose of a matrix."""
    return transpose(input, 0, 1)


def expand(input: T, *shape: Any) -> T:
    """Dims of size 1 repeated; -1 keeps a size."""
    wanted = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
    extra = len(wanted) - input.ndim
    wanted = tuple(input.shape[i - extra] if n == -1 else n for i, n in enumerate(wanted))
    before = input.shape
    return _view("expand", input, lambda a: np.broadcast_to(a, wanted), lambda g: _sum_to(g, before))


def unsqueeze(input: T, dim: int) -> T:
    """A dim of size 1 put in."""
    dim = dim % (input.ndim + 1)
    return reshape(input, (*input.shape[:dim], 1, *input.shape[dim:]))


def squeeze(input: T, dim: int) -> T:
    """A dim of size 1 taken out."""
    dim = dim % input.ndim
    return reshape(input, (*input.shape[:dim], *input.shape[dim + 1 :])) if input.shape[dim] == 1 else input


def narrow(input: T, dim: int, start: int, length: int) -> T:
    """``length`` entries of a dim from ``start``."""
    if not 0 <= start <= start + length <= input.shape[dim]:
        raise IndexError(f"narrow: {start} + {length} is out of range for dim {dim} of shape {input.shape}")
    return getitem(input, (*(slice(None),) * (dim % input.ndim), slice(start, start + length)))


def getitem(input: T, index: Any) -> T:
    """NumPy's basic indexing, and by one integer tensor."""
    plain = _plain_index(index)
    shape, dtype = input.shape, input.dtype
    return _view("getitem", input, lambda a: a[plain], lambda g: _put(g, plain, shape, dtype))


def _plain_index(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(_plain_index(entry) for entry in index)
    return index.array if isinstance(index, SimTensor) else index


def _put(gradient: T, index: Any, shape: tuple[int, ...], dtype: Any) -> T:
    """Zeros with ``gradient`` added at ``index``."""
    array = np.zeros(shape, dtype)
    np.add.at(array, index, gradient.array)
    return tape.record(T(array), "put", (gradient,), lambda g: (getitem(g, index),))


def select(input: T, dim: int, index: int) -> T:
    """One entry of a dim, which goes."""
    return getitem(input, (*(slice(None),) * (dim % input.ndim), index))


def clone(input: T) -> T:
    """A copy with history."""
    if input.is_meta:
        return T(input.array, meta=True)
    return tape.record(T(input.array.copy()), "clone", (input,), lambda g: (g,))


def contiguous(input: T) -> T:
    """Itself, or a contiguous copy."""
    return input if input.array.flags.c_contiguous else clone(input)


def detach(input: T) -> T:
    """An alias without history."""
    out = T(input.array, meta=input.is_meta)
    out.counter = input.counter
    return out


# -- joining and cutting ----------------------------------------------------------------------------------
def cat(tensors: Sequence[T], dim: int = 0) -> T:
    """Tensors joined along a dim."""
    lengths = [tensor.shape[dim] for tensor in tensors]

    def backward(g: T) -> list[T]:
        starts = np.cumsum([0, *lengths])
        return [narrow(g, dim, int(start), length) for start, length in zip(starts, lengths, strict=False)]

    return tape.record(T(np.concatenate([x.array for x in tensors], axis=dim)), "cat", tensors, backward)


def stack(tensors: Sequence[T], dim: int = 0) -> T:
    """Tensors joined along a new dim."""
    return cat([unsqueeze(x, dim) for x in tensors], dim)


def split(input: T, split_size: Any, dim: int = 0) -> tuple[T, ...]:
    """Pieces of ``split_size`` entries, or of the sizes listed."""
    total = input.shape[dim]
    if isinstance(split_size, int):
        sizes = [builtins.min(split_size, total - start) for start in range(0, total, split_size)]
    else:
        sizes = list(split_size)
    starts = np.cumsum([0, *sizes])
    return tuple(narrow(input, dim, int(start), size) for start, size in zip(starts, sizes, strict=False))


def chunk(input: T, chunks: int, dim: int = 0) -> tuple[T, ...]:
    """``chunks`` pieces, as equal as may be."""
    return split(input, -(-input.shape[dim] // chunks), dim)


def unbind(input: T, dim: int = 0) -> tuple[T, ...]:
    """The entries of a dim, one by one."""
    return tuple(select(input, dim, i) for i in range(input.shape[dim]))


# -- by index ---------------------------------------------------------------------------------------------
def gather(input: T, dim: int, index: T) -> T:
    """Entries of ``dim`` picked by ``index``."""
    dim = dim % input.ndim
    grid = list(np.indices(index.shape, sparse=True))
    grid[dim] = index.array
    return getitem(input, tuple(T(entry) for entry in grid))


def index_select(input: T, dim: int, index: T) -> T:
    """Entries of ``dim`` picked by a vector."""
    return getitem(input, (*(slice(None),) * (dim % input.ndim), index))


def embedding(
    input: T,
    weight: T,
    padding_idx: int | None = None,
    max_norm: Any = None,
    norm_type: Any = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> T:
    """Rows of ``weight`` picked by the ids ``input``; the row ``padding_idx`` gets no gradient."""
    if max_norm is not None or scale_grad_by_freq or sparse:
        raise NotImplementedError("embedding knows padding_idx only here")
    if input.array.size and not 0 <= input.array.min() <= input.array.max() < weight.shape[0]:
        raise IndexError("index out of range in embedding")
    rows = getitem(weight, input)
    if padding_idx is None:
        return rows
    return where(unsqueeze(eq(input, padding_idx), -1), detach(rows), rows)


def nll_loss(input: T, target: T, reduction: str = "mean") -> T:
    """Negative log likelihood of classes (dim 1) given log probabilities ``[N, C]``."""
    picked = neg(squeeze(gather(input, 1, unsqueeze(target, 1)), 1))
    if reduction == "none":
        return picked
    return mean(picked) if reduction == "mean" else sum(picked)


# -- creation ---------------------------------------------------------------------------------------------
def tensor(data: Any, dtype: Any = None, requires_grad: bool = False) -> T:
    """A leaf of these values; a copy."""
    return T(np.array(data, dtype=dtype), requires_grad=requires_grad)


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> T:
    """A tensor of these values; a tensor of that dtype itself; there is one device."""
    made = data if isinstance(data, SimTensor) else tensor(data)
    return made if dtype is None else to(made, dtype)


def zeros(*shape: Any, dtype: Any = float64) -> T:
    """Zeros."""
    return T(np.zeros(shape[0] if len(shape) == 1 else shape, dtype))


def ones(*shape: Any, dtype: Any = float64) -> T:
    """Ones."""
    return T(np.ones(shape[0] if len(shape) == 1 else shape, dtype))


def arange(*bounds: Any, dtype: Any = None, device: Any = None) -> T:
    """Numbers from start to end; there is one device."""
    return T(np.arange(*bounds, dtype=dtype))


def full(shape: Sequence[int], fill_value: Any, dtype: Any = None, device: Any = None) -> T:
    """A filled tensor, of the dtype of the value if none is given; there is one device."""
    return T(np.full(tuple(shape), fill_value, dtype))


def full_like(input: T, fill_value: Any, dtype: Any = None) -> T:
    """The same shape, filled."""
    if input.is_meta:
        return T(input.array, meta=True)
    return T(np.full(input.shape, fill_value, dtype or input.dtype))


def zeros_like(input: T, dtype: Any = None) -> T:
    """The same shape, zeros."""
    return full_like(input, 0, dtype)


def ones_like(input: T, dtype: Any = None) -> T:
    """The same shape, ones."""
    return full_like(input, 1, dtype)


def fingerprint(input: T) -> str:
    """A digest of shape, dtype and values."""
    return hashlib.sha256(repr((input.shape, input.dtype.str)).encode() + input.array.tobytes()).hexdigest()


# -- in place ---------------------------------------------------------------------------------------------
def _in_place(name: str, x: T, compute: Callable[[T], T]) -> T:
    """Write ``compute(x)`` into ``x`` and make its history that of ``x``."""
    tracked = tape.grad_enabled() and x.requires_grad
    if tracked and x.is_leaf:
        raise RuntimeError(f"{name}: a leaf that requires grad is being used in an in-place operation")
    if tracked and x.is_view:
        raise NotImplementedError(f"{name}: the tape does not follow in-place operations on views")
    before = T(x.array.copy())  # what the gradient needs is not overwritten
    before.set_node(x.node)
    result = compute(before)
    if np.broadcast_shapes(result.shape, x.shape) != x.shape:
        raise RuntimeError(f"{name}: shape {result.shape} does not fit {x.shape}")
    x.array[...] = result.array
    x.counter.count += 1
    if tape.grad_enabled() and result.node is not None:
        if x.is_view:
            raise NotImplementedError(f"{name}: the tape does not follow in-place operations on views")
        x.set_node(result.node)
    return x


def add_(input: T, other: Any, *, alpha: float = 1) -> T:
    """``input += alpha * other``."""
    return _in_place("add_", input, lambda x: add(x, other, alpha=alpha))


def sub_(input: T, other: Any, *, alpha: float = 1) -> T:
    """``input -= alpha * other``."""
    return _in_place("sub_", input, lambda x: sub(x, other, alpha=alpha))


def mul_(input: T, other: Any) -> T:
    """``input *= other``."""
    return _in_place("mul_", input, lambda x: mul(x, other))


def fill_(input: T, value: Any) -> T:
    """All values replaced by one."""
    return _in_place("fill_", input, lambda x: where(T(np.zeros(x.shape, bool_)), x, value))


def zero_(input: T) -> T:
    """All values replaced by zero."""
    return fill_(input, 0)


def copy_(input: T, source: T) -> T:
    """The values of ``source``."""
    return _in_place(
        "copy_", input, lambda x: add(where(T(np.zeros(x.shape, bool_)), x, 0), to(source, x.dtype))
    )


def setitem(input: T, index: Any, value: Any) -> None:
    """``input[index] = value`` for basic indexing."""
    plain = _plain_index(index)

    def compute(x: T) -> T:
        mask = np.zeros(x.shape, bool_)
        mask[plain] = True
        source = value if isinstance(value, SimTensor) else T(np.asarray(value, x.dtype))
        placed = _put(expand(source, x.array[plain].shape), plain, x.shape, x.dtype)
        return where(T(mask), placed, x)

    _in_place("setitem", input, compute)


_METHODS = """
    add sub mul div pow neg exp log sqrt square rsqrt tanh sigmoid silu relu abs clamp masked_fill maximum minimum
    eq ne lt le gt ge logical_and logical_or logical_not isnan to type_as
    matmul mm bmm sum mean amax amin any all argmax log_softmax softmax
    reshape view flatten permute transpose t expand unsqueeze squeeze narrow select clone contiguous detach
    split chunk unbind gather index_select add_ sub_ mul_ fill_ zero_ copy_
"""
METHODS = frozenset(_METHODS.split())
"""The functions that are methods of ``SimTensor`` too."""
