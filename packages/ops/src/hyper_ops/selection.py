"""Reading and adding by index tensors: index_select, gather, take_along_dim, scatter, scatter_add, index_add.

Reading, on one mesh axis (the GatherD scheme of the guide): along a split dim every rank offsets the indices
by where its block begins, reads those that fall on it, and has zeros for the others (`S(dim) R -> P(sum)`;
Partial(max) for booleans). Along an unsplit dim the indices may be split (`R S -> S`). Dims that input and
indices have in common are split alike (`S(k) S(k) -> S(k)`). Any Partial passes.

Writing: along a split dim every rank writes what falls on its block (`S(dim) R R -> S(dim)`). What is added
may be split where the input is not: every rank adds its part (`+ S(dim) S(dim) -> P(sum)`). Sums pass, the
Replicate ones of input and source entering once.

A global index that is out of range raises on every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hyper_dispatch import ONCE, Row, RowsOp, Token, register_strategy
from hyper_dtensor import get_platform, is_dtensor
from hyper_layout import Layout, Partial, Replicate, Shard
from hyper_ops.dims import normal_dim
from hyper_ops.moved_dims import REDUCE_OPS
from hyper_ops.pieces import axes_of_dims, check_indices, position

Values = Sequence[Any]
Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Tensor = Any
Impl = Callable[..., Any]

_R = Replicate()


def _on_block(
    x: Tensor, dim: int, index: Tensor, layout: Layout, index_layout: Layout
) -> tuple[Tensor, Tensor]:
    """Indices along the split dim of `x` as places in this rank's block, and which of them fall on it.

    Raises:
        IndexError: If one is out of the global range, on every rank alike.
    """
    ops = get_platform().ops
    size = x.shape[dim]
    total = size * layout.shard_counts[dim]
    split_by = axes_of_dims(index_layout, range(index_layout.ndim))
    message = f"index out of range in dimension {dim} with size {total}"
    check_indices((index < 0) | (index >= total), layout.mesh, split_by, message)
    here = index - position(layout.mesh, layout.dim_axes[dim]) * size
    inside = (here >= 0) & (here < size)
    return ops.clamp(here, 0, size - 1), inside


def _along(mask: Tensor, dim: int, ndim: int) -> Tensor:
    """A mask over one dim, shaped to be broadcast over `ndim` dims."""
    return mask.reshape((-1,) + (1,) * (ndim - 1 - dim))


@register_strategy("pick")
class Pick(RowsOp):
    """Reading by an index tensor along one dim.

    Cache values: layouts of input and index, the dim (None: both are flattened), whether the values are
    booleans, then one character per common dim: `=` same size, `x` the input and `i` the index is broadcast,
    `!` for any other sizes. `index_select` has no common dims.
    """

    def __init__(self, op_name: str, form: str = "gather") -> None:
        """Serve one operation; its `form` is `gather`, `take_along` or `select`."""
        super().__init__(op_name)
        self._form = form

    def preprocess(self, args: Args, kwargs: Kwargs) -> Any:
        bound = self.bind(args, kwargs)
        tensor, index, dim = bound["input"], bound["index"], bound["dim"]
        ndim = tensor.layout.ndim
        dim = None if dim is None else normal_dim(dim, ndim)
        local = tensor.to_local()
        sizes = "" if self._form == "select" or dim is None else _compared(tensor.shape, index.shape)
        boolean = get_platform().dtype_name(local) == "b"
        values = [tensor.layout, index.layout, dim, boolean, sizes]
        if self._form == "take_along":
            return (local, index.to_local(), dim), {}, values
        return (local, dim, index.to_local()), {}, values

    def rows(self, cache_values: Values) -> list[Row]:
        layout, index, dim, boolean, sizes = cache_values
        rows = [Row((Partial(op), _R), (Partial(op),)) for op in REDUCE_OPS]
        if dim is None:
            return rows
        rows.append(Row((Shard(dim), _R), (Partial("max" if boolean else "sum"),)))
        if self._form == "select":
            rows += [Row((Shard(k), _R), (Shard(k),)) for k in range(layout.ndim) if k != dim]
            return [*rows, *([Row((_R, Shard(0)), (Shard(dim),))] if index.ndim else [])]
        rows.append(Row((_R, Shard(dim)), (Shard(dim),)))
        for k, size in enumerate(sizes):
            tokens = {"=": (Shard(k), Shard(k)), "x": (_R, Shard(k)), "i": (Shard(k), _R)}.get(size)
            if k != dim and tokens is not None:
                rows.append(Row(tokens, (Shard(k),)))
        return rows

    def output_ndims(self, cache_values: Values) -> tuple[int]:
        return (cache_values[0].ndim if cache_values[2] is not None else 1,)

    def get_expand_impl(self, func: Any, infer_result: Any, cache_values: Values) -> Impl | None:
        layout, index_layout, dim = cache_values[:3]
        if dim is None or layout.shard_counts[dim] == 1:
            return None
        form, run = self._form, func

        def read(x: Tensor, index: Tensor, call: Callable[[Tensor], Tensor]) -> Tensor:
            here, inside = _on_block(x, dim, index, layout, index_layout)
            values = call(here)
            if form == "select":
                inside = _along(inside, dim, values.ndim)
            return get_platform().ops.masked_fill(values, ~inside, 0)

        def take_along(x: Tensor, index: Tensor, _dim: int) -> Tensor:
            return read(x, index, lambda here: run(x, here, dim))

        def gather(x: Tensor, _dim: int, index: Tensor) -> Tensor:
            return read(x, index, lambda here: run(x, dim, here))

        return take_along if form == "take_along" else gather


def _compared(shape: Sequence[int], other: Sequence[int]) -> str:
    """Per dim how two sizes relate; see `Pick`."""
    marks = []
    for size, other_size in zip(shape, other, strict=True):
        marks.append("=" if size == other_size else "x" if size == 1 else "i" if other_size == 1 else "!")
    return "".join(marks)


@register_strategy("put")
class Put(RowsOp):
    """Writing or adding by an index tensor along one dim: scatter, scatter_add, index_add, index_copy.

    Cache values: layouts of input, index and source (if it is a tensor), the dim, whether other than plain
    writing or adding is asked for, then one character per dim: `=` where input, index and source have the
    same size, `s` where index and source have, `!` otherwise.
    """

    def __init__(self, op_name: str, adds: bool = False, form: str = "scatter") -> None:
        """Serve one operation.

        Args:
            op_name: Its name.
            adds: Whether it adds; else it writes.
            form: `scatter` (the index has the dims of the source) or `index` (it names slices along the dim).
        """
        super().__init__(op_name)
        self._adds = adds
        self._form = form

    def preprocess(self, args: Args, kwargs: Kwargs) -> Any:
        bound = self.bind(args, kwargs)
        tensor, index, source = bound["input"], bound["index"], bound["source"]
        ndim = tensor.layout.ndim
        dim = normal_dim(bound["dim"], ndim)
        layouts = [tensor.layout, index.layout]
        local_source = source
        if is_dtensor(source):
            layouts.append(source.layout)
            local_source = source.to_local()
        options = {name: bound[name] for name in ("alpha", "reduce") if name in bound}
        if options.get("reduce", "") is None:
            options = {}
        local_args = (tensor.to_local(), dim, index.to_local(), local_source)
        sizes = self._sizes(tensor.shape, index.shape, getattr(source, "shape", None), dim)
        return local_args, options, [*layouts, dim, "reduce" in options, sizes]

    def _sizes(self, shape: Any, index: Any, source: Any, dim: int) -> str:
        if self._form == "index":
            return "".join("s" if k == dim else "=" for k in range(len(shape)))
        source = index if source is None or not len(source) else source
        return "".join(
            "!" if of_index != of_source else "=" if of_index == size else "s"
            for size, of_index, of_source in zip(shape, index, source, strict=True)
        )

    def rows(self, cache_values: Values) -> list[Row]:
        *layouts, dim, reduces, sizes = cache_values
        from_tensor = len(layouts) == 3 and layouts[2].ndim > 0

        def row(x: Token, index: Token, source: Token, out: Token) -> Row:
            return Row((x, index, source)[: len(layouts)], (out,))

        rows = []
        for k, size in enumerate(sizes):
            if k != dim and size == "=":
                index = _R if self._form == "index" else Shard(k)
                rows.append(row(Shard(k), index, Shard(k) if from_tensor else _R, Shard(k)))
        if reduces:
            return rows
        rows.append(row(Shard(dim), _R, _R, Shard(dim)))
        if len(layouts) < 3:
            return rows
        for op, other in (("sum", ONCE), ("avg", _R)):
            sums: Token = Partial(op)
            rows += [row(x, _R, s, sums) for x, s in ((sums, sums), (sums, other), (other, sums))]
        if self._adds and sizes[dim] in "=s":
            index = Shard(0) if self._form == "index" else Shard(dim)
            rows.append(row(ONCE, index, Shard(dim), Partial("sum")))
        return rows

    def output_ndims(self, cache_values: Values) -> tuple[int]:
        return (cache_values[0].ndim,)

    def get_expand_impl(self, func: Any, infer_result: Any, cache_values: Values) -> Impl | None:
        layout, index_layout = cache_values[:2]
        dim = cache_values[-3]
        if layout.shard_counts[dim] == 1:
            return None
        adds, along, inplace, run = self._adds, self._form == "index", self.inplace, func

        def add(x: Tensor, _dim: int, index: Tensor, source: Tensor, **options: Any) -> Tensor:
            here, inside = _on_block(x, dim, index, layout, index_layout)
            if along:
                mask = _along(inside, dim, source.ndim)
            else:
                source = _cut_to(source, index.shape)
                mask = inside
            return run(x, dim, here, get_platform().ops.masked_fill(source, ~mask, 0), **options)

        def write(x: Tensor, _dim: int, index: Tensor, source: Any) -> Tensor:
            # What falls on other blocks is written to one place more, which is cut off again.
            ops = get_platform().ops
            here, inside = _on_block(x, dim, index, layout, index_layout)
            size = x.shape[dim]
            longer = ops.cat([x, ops.narrow(x, dim, 0, 1)], dim)
            longer = run_plain(longer, dim, ops.where(inside, here, size), source)
            written = ops.narrow(longer, dim, 0, size)
            return x.copy_(written) if inplace else ops.clone(written)

        run_plain = getattr(get_platform().ops, self.op_name.rstrip("_"))
        return add if adds else write


def _cut_to(source: Tensor, shape: Sequence[int]) -> Tensor:
    """The part of the source that the index reads."""
    ops = get_platform().ops
    for dim, size in enumerate(shape):
        if source.shape[dim] != size:
            source = ops.narrow(source, dim, 0, size)
    return source


@register_strategy("whole")
class Whole(RowsOp):
    """An operation whose result's size depends on all values: nothing may be split or Partial.

    Cache values: the layouts, the ranks of the outputs.
    """

    def __init__(self, op_name: str, form: str = "vector") -> None:
        """Serve one operation; its `form` is `vector` (masked_select) or `places` (nonzero)."""
        super().__init__(op_name)
        self._form = form

    def preprocess(self, args: Args, kwargs: Kwargs) -> Any:
        bound = self.bind(args, kwargs)
        tensors = [value for value in bound.values() if is_dtensor(value)]
        layouts = [tensor.layout for tensor in tensors]
        local = tuple(tensor.to_local() for tensor in tensors)
        if self._form == "vector":
            return local, {}, [*layouts, 1]
        as_tuple = bool(bound["as_tuple"])
        ranks = (1,) * max(layouts[0].ndim, 1) if as_tuple else (2,)
        return local, {"as_tuple": as_tuple} if as_tuple else {}, [*layouts, *ranks]

    def rows(self, cache_values: Values) -> list[Row]:
        return []

    def output_ndims(self, cache_values: Values) -> tuple[int, ...]:
        return tuple(value for value in cache_values if not isinstance(value, Layout))
