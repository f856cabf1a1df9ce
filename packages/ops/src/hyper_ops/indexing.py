"""Indexing and writing through an index: getitem, select, narrow, setitem.

Reading, on one mesh axis (`d -> o`: an input dim and the output dim that a slice of it gives)::

    S(d) R   -> S(o)      a dim that is not indexed, or by a slice that every rank can take of its own part
    S(d) R   -> P(sum)    by an integer or an integer tensor: the owner has the value, the others zeros
    R    S(k) -> S(o)     a split index tensor of an unsplit tensor
    P(op) R  -> P(op)

Booleans have Partial(max) for Partial(sum). A real slice of a split dim is refused: its pieces would differ
in size from rank to rank. A boolean mask reads unsplit dims only, for the same reason.

The result of a plain index (integers, slices, None) is a view of the local tensor, so that what is written
into it reaches the tensor. An integer on a split dim is the exception: its result is a copy, and the
dispatcher refuses to write into it (`Effects.copies`).

Writing (`x[index] = value`) goes to the local tensor. The value is laid out as the result of reading would
be, with the axes left out that split the dims which integers and slices pick from: every rank gets the whole
value there and keeps what falls on its block.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import index as to_index
from typing import Any

from hyper_dispatch import NO_EFFECTS, ONCE, Effects, Row, RowsOp, Token, layouts_of, register_strategy
from hyper_dtensor import get_platform, is_dtensor
from hyper_layout import DeviceMesh, Layout, Partial, Replicate, Shard
from hyper_ops.dims import normal_dim
from hyper_ops.index_code import (
    ADVANCED,
    DISTRIBUTED,
    INTEGERS,
    Element,
    IndexCode,
    checked_integer,
    normal_index,
    read_code,
    tensor_dim,
)
from hyper_ops.moved_dims import REDUCE_OPS
from hyper_ops.pieces import check_indices, number_once, position

Values = Sequence[Any]
Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Tensor = Any

_R = Replicate()


@register_strategy("getitem")
class Getitem(RowsOp):
    """Reading through an index.

    Cache values: layouts of the tensor and of the index tensors, the code of the index (`index_code`),
    whether the values are booleans. The integers and slices themselves are not among them.
    """

    view_like = True

    def __init__(self, op_name: str, form: str = "index") -> None:
        """Serve one operation; its `form` is `index`, `select` or `narrow`."""
        super().__init__(op_name)
        self._index = _FORMS[form]

    def preprocess(self, args: Args, kwargs: Kwargs) -> Any:
        tensor, index = self._index(self.bind(args, kwargs))
        items, code, layouts = normal_index(tensor, index)
        local = tensor.to_local()
        boolean = get_platform().dtype_name(local) == "b"
        return (local, items), {}, [tensor.layout, *layouts, code, boolean]

    def views(self, cache_values: Values) -> bool:
        """An index with tensors gives a copy, on a single device too."""
        return not read_code(cache_values[-2]).advanced

    def rows(self, cache_values: Values) -> tuple[Row, ...]:
        return _rows(cache_values[-2], len(cache_values) - 2, cache_values[-1])

    def output_ndims(self, cache_values: Values) -> tuple[int]:
        return (read_code(cache_values[-2]).ndim,)

    def infer_layout(self, cache_values: Values) -> Any:
        outputs, _ = super().infer_layout(cache_values)
        code, layout = read_code(cache_values[-2]), cache_values[0]
        if not code.advanced:
            for element in code.elements:
                if element.token in INTEGERS and layout.shard_counts[element.dim] > 1:
                    return outputs, Effects(copies=True)
        return outputs, NO_EFFECTS

    def get_expand_impl(self, func: Any, infer_result: Any, cache_values: Values) -> Callable[..., Any]:
        code = read_code(cache_values[-2])
        layouts = layouts_of(cache_values)
        picked = [_Picked(place, element, layouts[0]) for place, element in _picking(code, layouts[0])]
        if not picked:
            return operator.getitem
        split_by = sorted({axis for layout in layouts[1:] for axes in layout.dim_axes for axis in axes})

        def read_owned(x: Tensor, items: tuple[Any, ...]) -> Tensor:
            items, mine = _on_this_rank(x, items, picked, split_by)
            values = x[items]
            if not isinstance(mine, bool):
                trailing = values.ndim - code.block - code.block_ndim
                mine = mine.reshape(tuple(mine.shape) + (1,) * trailing)
            return _zero_unless(mine, values)

        return read_owned


def _index_form(bound: dict[str, Any]) -> tuple[Any, Any]:
    return bound["input"], bound["index"]


def _select_form(bound: dict[str, Any]) -> tuple[Any, Any]:
    tensor = bound["input"]
    dim = normal_dim(bound["dim"], tensor.layout.ndim)
    return tensor, (*(slice(None),) * dim, to_index(bound["index"]))


def _narrow_form(bound: dict[str, Any]) -> tuple[Any, Any]:
    tensor = bound["input"]
    dim = normal_dim(bound["dim"], tensor.layout.ndim)
    size, start, length = tensor.shape[dim], to_index(bound["start"]), to_index(bound["length"])
    if not -size <= start <= size:
        raise IndexError(f"start out of range (expected to be in range of [{-size}, {size}], got {start})")
    start += size if start < 0 else 0
    if length < 0 or start + length > size:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({size})")
    return tensor, (*(slice(None),) * dim, slice(start, start + length))


_FORMS: dict[str, Callable[[dict[str, Any]], tuple[Any, Any]]] = {
    "index": _index_form,
    "select": _select_form,
    "narrow": _narrow_form,
}


@lru_cache(maxsize=1024)
def _rows(text: str, operands: int, booleans: bool) -> tuple[Row, ...]:
    """The rule of an index of this code; the tensor and the tensors of the index are the operands."""
    code = read_code(text)
    others = (_R,) * (operands - 1)
    owned = Partial("max" if booleans else "sum")
    rows = [Row((Partial(op), *others), (Partial(op),)) for op in REDUCE_OPS]
    for element in code.elements:
        kind, dim = element.token[0], Shard(element.dim)
        if kind == ":":
            rows.append(Row((dim, *others), (Shard(element.out),)))
        elif kind in "iItl":
            rows.append(Row((dim, *others), (owned,)))
    return (*rows, *_split_index_rows(code))


def _split_index_rows(code: IndexCode) -> Iterator[Row]:
    """Rows for index tensors that are split alike, on a tensor that is not."""
    tokens = [element.token for element in code.elements if element.token[0] in ADVANCED]
    if any(token[0] == "m" for token in tokens):
        return
    for out in range(code.block_ndim):
        dims = [tensor_dim(token, code.block_ndim, out) for token in tokens]
        if any(token[0] == "l" and dim is not None for token, dim in zip(tokens, dims, strict=True)):
            continue
        distributed = [dim for element in code.elements for dim in _index_dims(element.token, code, out)]
        if any(dim is not None for dim in distributed):
            inputs = (_R, *[_R if dim is None else Shard(dim) for dim in distributed])
            yield Row(inputs, (Shard(code.block + out),))


def _index_dims(token: str, code: IndexCode, out: int) -> tuple[int | None, ...]:
    """Which dim of a distributed index gives dim `out` of the block; empty for an element that is none."""
    if token[0] not in DISTRIBUTED:
        return ()
    return (tensor_dim(token, code.block_ndim, out) if token[0] == "t" else None,)


def _picking(code: IndexCode, layout: Layout) -> Iterator[tuple[int, Element]]:
    """The elements that pick from a split dim, with their places in the index."""
    for place, element in enumerate(code.elements):
        if element.token[0] in "iItl" and layout.shard_counts[element.dim] > 1:
            yield place, element


@dataclass(frozen=True, slots=True)
class _Picked:
    """An element of an index that picks from a split dim."""

    place: int
    element: Element
    layout: Layout

    @property
    def dim(self) -> int:
        return self.element.dim

    @property
    def mesh(self) -> DeviceMesh:
        return self.layout.mesh

    def before(self, size: int) -> int:
        """Where this rank's block of `size` begins."""
        return position(self.mesh, self.layout.dim_axes[self.dim]) * size

    def total(self, size: int) -> int:
        """The global size of the dim."""
        return size * self.layout.shard_counts[self.dim]


def _on_this_rank(
    x: Tensor, items: tuple[Any, ...], picked: Sequence[_Picked], split_by: Sequence[int]
) -> tuple[tuple[Any, ...], Any]:
    """An index in terms of this rank's block, and where it really falls on it.

    What falls on other blocks reads an allowed place here.

    Args:
        x: The local tensor.
        items: The index in global terms.
        picked: Its elements that pick from split dims.
        split_by: The axes that split the index tensors, along which bad indices are reported.

    Returns:
        The local index, and a bool, or a boolean tensor of the block of dims that the index tensors give.

    Raises:
        IndexError: If an index tensor is out of the global range, on every rank alike.
    """
    ops = get_platform().ops
    local = list(items)
    mine: Any = True
    for each in picked:
        size = x.shape[each.dim]
        before, total = each.before(size), each.total(size)
        wanted = items[each.place]
        if each.element.token in INTEGERS:
            here = checked_integer(wanted, total, each.dim) - before
            mine = mine & (0 <= here < size)
            local[each.place] = min(max(here, 0), size - 1)
            continue
        message = f"index out of range in dimension {each.dim} with size {total}"
        check_indices((wanted < -total) | (wanted >= total), each.mesh, split_by, message)
        here = ops.where(wanted < 0, wanted + total, wanted) - before
        mine = ((here >= 0) & (here < size)) & mine
        local[each.place] = ops.clamp(here, 0, size - 1)
    return tuple(local), mine


def _zero_unless(mine: Any, values: Tensor) -> Tensor:
    """The values where they are this rank's, zeros elsewhere; the same graph on every rank (rule 8)."""
    ops = get_platform().ops
    drop = ops.full((), not mine, device=values.device) if isinstance(mine, bool) else ~mine
    return ops.masked_fill(values, drop, 0)


@register_strategy("setitem")
class Setitem(RowsOp):
    """Writing through an index.

    Cache values: layouts of the tensor, the index tensors and the value, whether the value needs a gradient,
    the code of the index, and of the value one character per dim (`1` for size 1, else `.`), or `number`.
    """

    inplace = True

    def preprocess(self, args: Args, kwargs: Kwargs) -> Any:
        bound = self.bind(args, kwargs)
        tensor, value = bound["input"], bound["value"]
        items, code, layouts = normal_index(tensor, bound["index"])
        if is_dtensor(value):
            layouts.append(value.layout)
            sizes = "".join("1" if size == 1 else "." for size in value.shape)
            value = value.to_local()
            needs_grad = get_platform().tracks_gradient(value)
        else:
            sizes, needs_grad = "number", False
        return (tensor.to_local(), items, value), {}, [tensor.layout, *layouts, needs_grad, code, sizes]

    def rows(self, cache_values: Values) -> list[Row]:
        target = _Target.of(cache_values)
        rows = []
        for element in target.code.elements:
            if element.token == ":":
                rows.append(target.row(Shard(element.dim), target.value_token(element.out)))
            elif element.token in ("|", *INTEGERS):
                rows.append(target.row(Shard(element.dim), _R))
            elif element.token[0] == "m" and target.one_value:
                rows += target.mask_rows(element)
        return [*rows, *target.partial_rows()]

    def output_ndims(self, cache_values: Values) -> tuple[int]:
        return (cache_values[0].ndim,)

    def get_expand_impl(self, func: Any, infer_result: Any, cache_values: Values) -> Callable[..., Any]:
        code = read_code(cache_values[-2])
        layout: Layout = cache_values[0]
        masked = [
            _Picked(place, element, layout)
            for place, element in enumerate(code.elements)
            if element.token in ("|", *INTEGERS) and layout.shard_counts[element.dim] > 1
        ]
        once = [axis for axis, op in enumerate(layout.partial) if op == "sum"]
        write = _writer(code, masked) if masked else operator.setitem
        if cache_values[-1] != "number" or not once:
            return write

        def write_once(x: Tensor, items: tuple[Any, ...], value: Any) -> None:
            # Added over the ranks the summands are the number: it is written on one of them, 0 on the others.
            write(x, items, number_once(value, x, layout.mesh, once))

        return write_once


@dataclass(frozen=True, slots=True)
class _Target:
    """What the rows of `setitem` are made of."""

    code: IndexCode
    sizes: str
    needs_grad: bool
    index_tokens: tuple[str, ...]

    @classmethod
    def of(cls, cache_values: Values) -> _Target:
        code = read_code(cache_values[-2])
        tokens = tuple(element.token for element in code.elements if element.token[0] in DISTRIBUTED)
        return cls(code, cache_values[-1], cache_values[-3], tokens)

    @property
    def is_number(self) -> bool:
        return self.sizes == "number"

    @property
    def one_value(self) -> bool:
        """Whether the value is the same everywhere."""
        return self.is_number or "." not in self.sizes

    def row(self, target: Token, value: Token, index: Sequence[Token] | None = None) -> Row:
        """A row that leaves the target as it is."""
        others = index if index is not None else (_R,) * len(self.index_tokens)
        return Row((target, *others) if self.is_number else (target, *others, value), (target,))

    def value_token(self, out: int) -> Token:
        """How the value is split where dim `out` of what is written to is."""
        if self.is_number:
            return _R
        dim = out - (self.code.ndim - len(self.sizes))
        return Shard(dim) if dim >= 0 and self.sizes[dim] != "1" else _R

    def mask_rows(self, element: Element) -> Iterator[Row]:
        """Rows for a mask that is split as the dims that it covers."""
        number = [each for each in self.code.elements if each.token[0] in DISTRIBUTED].index(element)
        for dim in range(int(element.token[1:])):
            index: list[Token] = [_R] * len(self.index_tokens)
            index[number] = Shard(dim)
            yield self.row(Shard(element.dim + dim), _R, index)

    def partial_rows(self) -> Iterator[Row]:
        """Rows for a Partial target: the value is Partial alike, enters once, or is one of all ranks.

        Partial(max) and Partial(min) carry no gradient.
        """
        for op in REDUCE_OPS:
            if not self.is_number:
                yield self.row(Partial(op), Partial(op))
            if op == "sum":
                yield self.row(Partial(op), ONCE)
            elif op == "avg" or (op != "prod" and not self.needs_grad):
                yield self.row(Partial(op), _R)


def _writer(code: IndexCode, masked: Sequence[_Picked]) -> Callable[[Tensor, tuple[Any, ...], Any], None]:
    """Write what falls on this rank's block and leave the rest as it is; the same graph on every rank."""

    def write(x: Tensor, items: tuple[Any, ...], value: Any) -> None:
        ops = get_platform().ops
        local = list(items)
        pieces: list[tuple[int, Any]] = []
        mine: Any = True
        for each in masked:
            size = x.shape[each.dim]
            before = each.before(size)
            wanted = items[each.place]
            if each.element.token in INTEGERS:
                here = checked_integer(wanted, each.total(size), each.dim) - before
                mine = mine & (0 <= here < size)
                local[each.place] = min(max(here, 0), size - 1)
                continue
            length = len(range(wanted.start, wanted.stop, wanted.step))
            if not length:
                return
            rest = ops.arange(size, device=x.device) + (before - wanted.start)
            number = rest // wanted.step
            inside = (rest % wanted.step == 0) & (number >= 0) & (number < length)
            trailing = code.ndim - each.element.out - 1
            mine = inside.reshape((size,) + (1,) * trailing) & mine
            local[each.place] = slice(None)
            pieces.append((trailing, (ops.clamp(number, 0, length - 1), length)))
        here_values = x[tuple(local)]
        new = _value_like(value, here_values)
        for trailing, (number, length) in pieces:
            dim = new.ndim - 1 - trailing
            if dim >= 0 and new.shape[dim] != 1:
                if new.shape[dim] != length:
                    given = new.shape[dim]
                    raise RuntimeError(f"shape mismatch: a slice of {length} elements is given {given}")
                new = ops.index_select(new, dim, number)
        keep = ops.full((), mine, device=x.device) if isinstance(mine, bool) else mine
        x[tuple(local)] = ops.where(keep, new, here_values)

    return write


def _value_like(value: Any, other: Tensor) -> Tensor:
    """The value as a tensor of the dtype that is written to: `where` would promote what is there."""
    platform = get_platform()
    if platform.is_tensor(value):
        return value if value.dtype == other.dtype else value.to(other.dtype)
    return platform.ops.full((), value, dtype=other.dtype, device=other.device)
