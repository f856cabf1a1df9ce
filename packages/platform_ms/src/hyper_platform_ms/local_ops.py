"""The namespace of local functions that operator strategies compute with.

PyTorch's names, signatures and meaning over MindSpore's functions. Chosen are those that have kernels on CPU
too; where there is none, a few others make up for it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import mindspore
from mindspore import Tensor, mint, ops
from mindspore.mint.nn import functional as F

from hyper_platform_ms import local_layers
from hyper_platform_ms.all_reduce_only import to_numpy
from hyper_platform_ms.local_basics import (
    as_dims,
    cat,
    clone,
    full,
    masked_fill,
    unsqueeze,
    vector_norm,
    where,
)
from hyper_platform_ms.local_einsum import einsum
from hyper_platform_ms.local_writes import IN_PLACE

__all__ = ["LOCAL_OPS", "MindSporeOps"]


def add(x: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """``x + alpha * other``."""
    return mint.add(x, other) if alpha == 1 else mint.add(x, mint.mul(other, alpha))


def sub(x: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """``x - alpha * other``."""
    return mint.sub(x, other) if alpha == 1 else mint.sub(x, mint.mul(other, alpha))


def div(x: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """The quotient, true or rounded down or towards zero."""
    if rounding_mode is None:
        return mint.div(x, other)
    return x // other if rounding_mode == "floor" else mint.trunc(mint.div(x, other)).astype(x.dtype)


def pow_(x: Any, exponent: Any) -> Tensor:
    """``x ** exponent``; either may be a number."""
    return ops.pow(x, exponent) if not isinstance(x, Tensor) else mint.pow(x, exponent)


def remainder(x: Any, other: Any) -> Tensor:
    """The remainder with the sign of the divisor."""
    return mint.remainder(x, other)


def floor_divide(x: Any, other: Any) -> Tensor:
    """The quotient rounded down."""
    return x // other


def bitwise_and(x: Tensor, other: Any) -> Tensor:
    """Bit by bit; booleans logically."""
    return _bitwise(mint.bitwise_and, mint.logical_and, x, other)


def bitwise_or(x: Tensor, other: Any) -> Tensor:
    """Bit by bit; booleans logically."""
    return _bitwise(mint.bitwise_or, mint.logical_or, x, other)


def bitwise_xor(x: Tensor, other: Any) -> Tensor:
    """Bit by bit; booleans logically."""
    return _bitwise(mint.bitwise_xor, mint.logical_xor, x, other)


def _bitwise(bits: Callable[..., Tensor], logical: Callable[..., Tensor], x: Tensor, other: Any) -> Tensor:
    if not isinstance(other, Tensor):
        other = Tensor(other, x.dtype)
    return logical(x, other) if x.dtype == mindspore.bool_ else bits(x, other)


def bitwise_not(x: Tensor) -> Tensor:
    """Bit by bit; booleans logically."""
    return mint.logical_not(x) if x.dtype == mindspore.bool_ else ops.invert(x)


def lerp(x: Tensor, end: Tensor, weight: Any) -> Tensor:
    """``x + weight * (end - x)``."""
    return mint.add(x, mint.mul(mint.sub(end, x), weight))


def addcmul(x: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Tensor:
    """``x + value * tensor1 * tensor2``."""
    return mint.add(x, mint.mul(mint.mul(tensor1, value), tensor2))


def addcdiv(x: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Tensor:
    """``x + value * tensor1 / tensor2``."""
    return mint.add(x, mint.div(mint.mul(tensor1, value), tensor2))


def round_(x: Tensor, *, decimals: int = 0) -> Tensor:
    """Rounded to the nearest, halves to even."""
    return mint.round(x) if decimals == 0 else mint.round(x, decimals=decimals)


def isnan(x: Tensor) -> Tensor:
    """Where a value is no number."""
    return mint.ne(x, x)


def clamp(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Limited to ``min`` and ``max``."""
    return mint.clamp(x, min, max)


# -- reductions ------------------------------------------------------------------------------------------
def sum_(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum; integers and booleans are counted in int64."""
    x = x if dtype is None else x.astype(dtype)
    if x.dtype == mindspore.bool_:
        x = x.astype(mindspore.int64)
    return mint.sum(x) if dim is None and not keepdim else mint.sum(x, as_dims(x, dim), keepdim)


def mean(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean."""
    x = x if dtype is None else x.astype(dtype)
    return mint.mean(x) if dim is None and not keepdim else mint.mean(x, as_dims(x, dim), keepdim)


def prod(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The product."""
    x = x if dtype is None else x.astype(dtype)
    if dim is None:
        return mint.prod(x)
    return mint.prod(x, dim[0] if isinstance(dim, tuple) else dim, keepdim)


def amax(x: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """The largest value."""
    return _as_int(mint.amax, x, as_dims(x, dim), keepdim)


def amin(x: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """The smallest value."""
    return _as_int(mint.amin, x, as_dims(x, dim), keepdim)


def _as_int(reduce: Callable[..., Tensor], x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    if not x.shape:
        return clone(x)
    if x.dtype == mindspore.bool_:
        return reduce(x.astype(mindspore.int32), dims, keepdim).astype(mindspore.bool_)
    return reduce(x, dims, keepdim)


def max_(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The largest value, or along one dim the largest values and where they are."""
    return mint.max(x) if dim is None else tuple(mint.max(x, dim, keepdim))


def min_(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The smallest value, or along one dim the smallest values and where they are."""
    return mint.min(x) if dim is None else tuple(mint.min(x, dim, keepdim))


def any_(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether any value is true."""
    return _of_booleans(ops.ReduceAny, x, dim, keepdim)


def all_(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether all values are true."""
    return _of_booleans(ops.ReduceAll, x, dim, keepdim)


def _of_booleans(primitive: Any, x: Tensor, dim: Any, keepdim: bool) -> Tensor:
    if not x.shape:
        return x.astype(mindspore.bool_)
    return primitive(keepdim)(x.astype(mindspore.bool_), as_dims(x, dim))


def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Where the largest value is; of the flattened tensor without ``dim``."""
    return ops.argmax(x, dim, keepdim).astype(mindspore.int64)


def argmin(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Where the smallest value is; of the flattened tensor without ``dim``."""
    if dim is None:
        return ops.argmin(mint.reshape(x, (-1,)), 0).astype(mindspore.int64)
    return ops.argmin(x, dim, keepdim).astype(mindspore.int64)


def count_nonzero(x: Tensor, dim: Any = None) -> Tensor:
    """How many values are not zero."""
    return sum_(mint.ne(x, 0), dim)


def logsumexp(x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """The logarithm of the sum of exponentials."""
    dims = as_dims(x, dim)
    largest = ops.stop_gradient(mint.amax(x, dims, True))
    largest = where(mint.isfinite(largest), largest, 0.0)
    total = mint.add(mint.log(mint.sum(mint.exp(x - largest), dims, True)), largest)
    return total if keepdim else squeeze(total, dims)


def var(x: Tensor, *, dim: Any = None, correction: float = 1, keepdim: bool = False) -> Tensor:
    """The variance."""
    dims = as_dims(x, dim)
    centred = x - mint.mean(x, dims, True)
    count = math.prod(x.shape[d] for d in dims)
    total = mint.sum(mint.square(centred), dims, keepdim)
    return mint.div(total, ops.full_like(total, max(count - correction, 0)))


def std(x: Tensor, *, dim: Any = None, correction: float = 1, keepdim: bool = False) -> Tensor:
    """The standard deviation."""
    return mint.sqrt(var(x, dim=dim, correction=correction, keepdim=keepdim))


# -- shapes ----------------------------------------------------------------------------------------------
def squeeze(x: Tensor, dim: Any) -> Tensor:
    """Without dims of size 1."""
    for each in sorted(as_dims(x, dim), reverse=True):
        if x.shape[each] == 1:
            x = mint.squeeze(x, each)
    return x


def permute(x: Tensor, dims: Any) -> Tensor:
    """With its dims in another order."""
    return mint.permute(x, tuple(dims))


def reshape(x: Tensor, shape: Any) -> Tensor:
    """Under another shape."""
    return mint.reshape(x, tuple(shape))


def expand(x: Tensor, size: Any) -> Tensor:
    """Repeated along dims of size 1."""
    return mint.broadcast_to(x, tuple(size))


def tile(x: Tensor, dims: Any) -> Tensor:
    """Copies side by side."""
    return mint.tile(x, tuple(dims))


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Joined along a new dim."""
    return cat([unsqueeze(x, dim) for x in tensors], dim)


def unbind(x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along a dim."""
    return tuple([mint.squeeze(mint.narrow(x, dim, index, 1), dim) for index in range(x.shape[dim])])


def split(x: Tensor, pieces: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of one size (the last may be smaller), or of these sizes."""
    size = x.shape[dim]
    sizes = pieces if isinstance(pieces, (list, tuple)) else _sizes(size, int(pieces))
    return _narrowed(x, sizes, dim)


def chunk(x: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most so many equal pieces."""
    return split(x, max(-(-x.shape[dim] // chunks), 1), dim)


def tensor_split(x: Tensor, sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """So many pieces, or cut at these places."""
    size = x.shape[dim]
    if isinstance(sections, (list, tuple)):
        cuts = [0, *(min(cut, size) for cut in sections), size]
        return _narrowed(x, [max(stop - start, 0) for start, stop in pairwise(cuts)], dim)
    small, longer = divmod(size, int(sections))
    return _narrowed(x, [small + (index < longer) for index in range(int(sections))], dim)


def _sizes(size: int, length: int) -> list[int]:
    return [min(length, size - start) for start in range(0, size, length)] or [0]


def _narrowed(x: Tensor, sizes: Sequence[int], dim: int) -> tuple[Tensor, ...]:
    found, start = [], 0
    for size in sizes:
        found.append(mint.narrow(x, dim, start, size))
        start += size
    return tuple(found)


def roll(x: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """With elements moved along dims, around the end."""
    if dims is None:
        return mint.reshape(roll(mint.reshape(x, (-1,)), shifts, 0), x.shape)
    several = zip(
        shifts if isinstance(shifts, (tuple, list)) else (shifts,),
        dims if isinstance(dims, (tuple, list)) else (dims,),
        strict=True,
    )
    for shift, dim in several:
        size = x.shape[dim]
        start = -shift % size if size else 0
        if start:
            x = cat([mint.narrow(x, dim, start, size - start), mint.narrow(x, dim, 0, start)], dim)
    return x


def repeat_interleave(x: Tensor, repeats: Any, dim: int | None = None) -> Tensor:
    """Every element so often in its place."""
    if dim is None:
        x, dim = mint.reshape(x, (-1,)), 0
    if not isinstance(repeats, Tensor):
        wide = expand(unsqueeze(x, dim + 1), (*x.shape[: dim + 1], repeats, *x.shape[dim + 1 :]))
        return mint.reshape(wide, (*x.shape[:dim], x.shape[dim] * repeats, *x.shape[dim + 1 :]))
    places = [index for index, often in enumerate(repeats.asnumpy().tolist()) for _ in range(often)]
    return ops.gather(x, Tensor(places, mindspore.int64), dim)


# -- along a dim, and by index ---------------------------------------------------------------------------
def sort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> tuple[Tensor, Tensor]:
    """Sorted values, and where they were. MindSpore's sort is stable on CPU, and asked to be elsewhere."""
    if mindspore.get_current_device().device_target == "CPU":
        return tuple(ops.sort(x, dim, descending))
    return tuple(mint.sort(x, dim=dim, descending=descending, stable=stable))


def argsort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """Where the sorted values were."""
    return sort(x, dim, descending, stable)[1]


def topk(
    x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor]:
    """The ``k`` largest (or smallest) values, and where they are."""
    return tuple(ops.topk(x, k, dim, largest, sorted))


def cumsum(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Sums up to each place."""
    return ops.cumsum(x if dtype is None else x.astype(dtype), dim)


def gather(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Values along a dim, picked by an index for each place."""
    return mint.gather(x, dim, index)


def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Slices along a dim, picked by index."""
    return ops.gather(x, index, dim)


def scatter(x: Tensor, dim: int, index: Tensor, source: Any, *, reduce: str | None = None) -> Tensor:
    """A copy with values written along a dim by an index for each place."""
    if not isinstance(source, Tensor):
        source = full(index.shape, source, dtype=x.dtype)
    kind = {None: "none", "add": "add", "multiply": "mul"}[reduce]
    return ops.tensor_scatter_elements(x, index, source, dim, kind)


def scatter_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy with values added along a dim by an index for each place."""
    return ops.tensor_scatter_elements(x, index, source, dim, "add")


def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangle."""
    return ops.tril(x, diagonal)


def one_hot(x: Tensor, num_classes: int = -1) -> Tensor:
    """A new last dim of classes, of which the one that ``x`` names is 1."""
    count = int(x.max()) + 1 if num_classes < 0 else num_classes
    classes = arange(count)
    return mint.eq(unsqueeze(x, -1), classes).astype(mindspore.int64)


def nonzero(x: Tensor, *, as_tuple: bool = False) -> Any:
    """Where values are not zero."""
    places = ops.nonzero(x)
    return unbind(places, 1) if as_tuple else places


# -- creation, products ----------------------------------------------------------------------------------
def arange(start: int, end: int | None = None, *, dtype: Any = None, device: Any = None) -> Tensor:
    """``start``, ``start + 1``, ... up to ``end``; from 0 where one number is given."""
    bounds = (start,) if end is None else (start, end)
    return ops.arange(*bounds, dtype=mindspore.int64 if dtype is None else dtype)


def as_tensor(value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of nested lists of numbers; a tensor as it is."""
    return value if isinstance(value, Tensor) else Tensor(value, dtype)


def full_like(x: Tensor, value: Any) -> Tensor:
    """A tensor like ``x``, filled."""
    return full(x.shape, value, dtype=x.dtype)


def zeros_like(x: Tensor, dtype: Any = None) -> Tensor:
    """Zeros like ``x``."""
    return ops.zeros_like(x, dtype=dtype)


def ones_like(x: Tensor, dtype: Any = None) -> Tensor:
    """Ones like ``x``."""
    return ops.ones_like(x, dtype=dtype)


def new_zeros(x: Tensor, size: Any, *, dtype: Any = None) -> Tensor:
    """Zeros of the dtype of ``x``."""
    return ops.zeros(tuple(size), x.dtype if dtype is None else dtype)


def new_ones(x: Tensor, size: Any, *, dtype: Any = None) -> Tensor:
    """Ones of the dtype of ``x``."""
    return ops.ones(tuple(size), x.dtype if dtype is None else dtype)


def new_full(x: Tensor, size: Any, fill_value: Any, *, dtype: Any = None) -> Tensor:
    """One value in the dtype of ``x``."""
    return full(tuple(size), fill_value, dtype=x.dtype if dtype is None else dtype)


def mm(x: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices."""
    return mint.matmul(x, mat2)


def mv(x: Tensor, vec: Tensor) -> Tensor:
    """The product of a matrix and a vector."""
    return mint.matmul(x, vec)


def dot(x: Tensor, other: Tensor) -> Tensor:
    """The product of two vectors."""
    return mint.sum(mint.mul(x, other))


def outer(x: Tensor, vec2: Tensor) -> Tensor:
    """All products of the elements of two vectors."""
    return mint.mul(unsqueeze(x, 1), unsqueeze(vec2, 0))


def addmm(x: Tensor, left: Tensor, right: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta * x + alpha * left @ right``; of batches too."""
    return mint.add(mint.mul(x, beta), mint.mul(mint.matmul(left, right), alpha))


def fingerprint(x: Tensor) -> bytes:
    """A digest of dtype, shape and values: equal tensors have equal ones."""
    head = f"{x.dtype} {tuple(x.shape)}".encode()
    return hashlib.blake2b(head + to_numpy(x).tobytes(), digest_size=16).digest()


def to(x: Tensor, dtype: Any) -> Tensor:
    """In another dtype; itself where nothing changes."""
    return x if x.dtype == dtype else x.astype(dtype)


def type_as(x: Tensor, other: Tensor) -> Tensor:
    """In the dtype of the other."""
    return to(x, other.dtype)


def norm(x: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The vector norm of order ``p``; ``fro`` is 2.

    Raises:
        NotImplementedError: For a matrix norm.
    """
    if p in (None, "fro"):
        p = 2
    if isinstance(p, str):
        raise NotImplementedError(f"the matrix norm {p!r} is not there on MindSpore")
    return vector_norm(x, p, dim, keepdim, dtype=dtype)


def linalg_norm(
    x: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    """The vector norm of an order; the one of no order is 2.

    Raises:
        NotImplementedError: For a matrix norm.
    """
    several = len(x.shape) > 1 if dim is None else isinstance(dim, (tuple, list)) and len(dim) > 1
    if ord not in (None, "fro") and several:
        raise NotImplementedError(f"the matrix norm of order {ord!r} is not there on MindSpore")
    return norm(x, ord, dim, keepdim, dtype=dtype)


LOCAL_OPS: dict[str, Callable[..., Any]] = {
    "pow": pow_,
    "round": round_,
    "sum": sum_,
    "max": max_,
    "min": min_,
    "any": any_,
    "all": all_,
    "view": reshape,
    "linear": F.linear,
    "matmul": mint.matmul,
    "bmm": mint.bmm,
    "baddbmm": addmm,
    "multiply": mint.mul,
    "cat": cat,
    "clone": clone,
    "full": full,
    "masked_fill": masked_fill,
    "unsqueeze": unsqueeze,
    "vector_norm": vector_norm,
    "where": where,
    "einsum": einsum,
    "triu": ops.triu,
    "masked_select": ops.masked_select,
    "detach": ops.stop_gradient,
    "linalg_vector_norm": vector_norm,
    "expand_as": lambda x, other: expand(x, other.shape),
    "flip": lambda x, dims: mint.flip(x, tuple(dims)),
    "hardtanh": lambda x, min_val=-1.0, max_val=1.0: mint.clamp(x, min_val, max_val),
    "repeat": tile,
    "select": lambda x, dim, index: mint.squeeze(mint.narrow(x, dim, index, 1), dim),
    "t": lambda x: mint.transpose(x, 0, 1) if len(x.shape) == 2 else x,
    **{
        function.__name__: function
        for function in (
            add, sub, div, remainder, floor_divide, bitwise_and, bitwise_or, bitwise_xor, bitwise_not, lerp,
            addcmul, addcdiv, isnan, clamp, mean, prod, amax, amin, argmax, argmin, count_nonzero, logsumexp,
            var, std, squeeze, permute, reshape, expand, tile, stack, unbind, split, chunk, tensor_split,
            roll, repeat_interleave, sort, argsort, topk, cumsum, gather, index_select, scatter, scatter_add,
            tril, one_hot, nonzero, arange, as_tensor, full_like, zeros_like, ones_like, new_zeros, new_ones,
            new_full, mm, mv, dot, outer, addmm, fingerprint, to, type_as, norm, linalg_norm,
        )
    },
    **local_layers.LAYERS,
    **IN_PLACE,
}  # fmt: skip
"""What is not MindSpore's own function of the name."""


class MindSporeOps:
    """The local functions; found once, then an attribute."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        found = LOCAL_OPS.get(name)
        for namespace in (mint, F, ops):
            found = found or getattr(namespace, name, None)
        if found is None:
            raise AttributeError(f"the MindSpore adapter has no local function {name!r}")
        setattr(self, name, found)
        return found
