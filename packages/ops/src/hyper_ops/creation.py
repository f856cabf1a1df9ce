"""New tensors shaped like another, and triangles: zeros_like, new_zeros, rand_like ..., tril, triu, one_hot.

Rule on one mesh axis, for a tensor like another: it is split as the other (`S(d) -> S(d)`); it is a constant,
so that where the other is Partial it is Replicate and invariant (`P -> I`). `x.new_zeros(size)` is laid out
like `x` where it has its shape, else it is Replicate. Random ones take the dispatcher's random path.

`tril` and `triu` work on split dims too: the diagonal is counted from where this rank's block lies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import Any

from hyper_dispatch import INVARIANT, Row, RowsOp, register_strategy
from hyper_layout import Layout, Partial, Replicate, Shard
from hyper_ops.moved_dims import PARTIAL_ROWS, REDUCE_OPS, integers, moved_rows, spread
from hyper_ops.pieces import position

Values = Sequence[Any]


@register_strategy("like")
class Like(RowsOp):
    """A new tensor of the same shape. Cache values: the layout."""

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensor = args[0] if args else kwargs["input"]
        others = {name: value for name, value in kwargs.items() if name != "input"}
        return (tensor.to_local(), *args[1:]), others, [tensor.layout]

    def rows(self, cache_values: Values) -> list[Row]:
        constant = [Row((Partial(op),), (INVARIANT,)) for op in REDUCE_OPS]
        return [*moved_rows(tuple(range(cache_values[0].ndim))), *constant, Row((Replicate(),), (INVARIANT,))]

    def output_ndims(self, cache_values: Values) -> tuple[int]:
        return (cache_values[0].ndim,)


@register_strategy("new")
class New(RowsOp):
    """A new tensor of a given global shape: new_zeros, new_ones, new_empty, new_full.

    Cache values: layout of the tensor that lends dtype, device and, if the shape is its own, its layout;
    whether it is; the shape.
    """

    def __init__(self, op_name: str, fills: bool = False) -> None:
        """Serve one operation; `fills` if it takes a value to fill with."""
        super().__init__(op_name)
        self._fills = fills

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensor, *rest = args
        if self._fills:
            bound = self.bind(args, {name: kwargs[name] for name in ("size", "fill_value") if name in kwargs})
            size, values = integers((bound["size"],)), [bound["fill_value"]]
            others = {name: value for name, value in kwargs.items() if name not in ("size", "fill_value")}
        else:
            (_, *rest), others = spread(args, kwargs, "size")
            size, values = integers(rest), []
        like = size == tuple(tensor.shape)
        return (tensor.to_local(), size, *values), others, [tensor.layout, like, *size]

    def rows(self, cache_values: Values) -> list[Row]:
        layout, like = cache_values[:2]
        kept = [Row((Shard(dim),), (Shard(dim) if like else INVARIANT,)) for dim in range(layout.ndim)]
        constant = [Row((Partial(op),), (INVARIANT,)) for op in REDUCE_OPS]
        return [*kept, *constant, Row((Replicate(),), (INVARIANT,))]

    def output_ndims(self, cache_values: Values) -> tuple[int]:
        return (len(cache_values) - 2,)

    def output_shapes(self, cache_values: Values) -> tuple[tuple[int, ...]]:
        return (tuple(cache_values[2:]),)

    def get_expand_impl(
        self, func: Callable[..., Any] | None, infer_result: Any, cache_values: Values
    ) -> Callable[..., Any] | None:
        output: Layout = infer_result[0][0]
        local_size = output.local_shape(tuple(cache_values[2:]))
        assert func is not None
        run = func

        def expand(x: Any, _size: tuple[int, ...], *values: Any, **options: Any) -> Any:
            return run(x, local_size, *values, **options)

        return expand


@register_strategy("triangle")
class Triangle(RowsOp):
    """The lower or upper triangle of matrices (the last two dims), which may be split.

    Row `i` and column `j` of this rank's block lie at `i + rows before` and `j + columns before`, so that
    `j - i <= diagonal` there is the local diagonal plus `rows before` minus `columns before`.

    Cache values: the layout.
    """

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bound = self.bind(args, kwargs)
        tensor = bound["input"]
        return (tensor.to_local(), index(bound["diagonal"])), {}, [tensor.layout]

    def rows(self, cache_values: Values) -> list[Row]:
        return [*moved_rows(tuple(range(cache_values[0].ndim))), *PARTIAL_ROWS]

    def output_ndims(self, cache_values: Values) -> tuple[int]:
        return (cache_values[0].ndim,)

    def get_expand_impl(
        self, func: Callable[..., Any] | None, infer_result: Any, cache_values: Values
    ) -> Callable[..., Any] | None:
        layout: Layout = cache_values[0]
        if layout.ndim < 2 or not (layout.dim_axes[-2] or layout.dim_axes[-1]):
            return None
        assert func is not None
        run, mesh = func, layout.mesh
        row_axes, column_axes = layout.dim_axes[-2], layout.dim_axes[-1]

        def expand(x: Any, diagonal: int) -> Any:
            before = position(mesh, row_axes) * x.shape[-2] - position(mesh, column_axes) * x.shape[-1]
            return run(x, diagonal + before)

        return expand


@register_strategy("one_hot")
class OneHot(RowsOp):
    """A new last dim of classes, of which the one that the input names is 1.

    Cache values: the layout, whether the number of classes is given.
    """

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bound = self.bind(args, kwargs)
        tensor, classes = bound["input"], index(bound["num_classes"])
        return (tensor.to_local(), classes), {}, [tensor.layout, classes >= 0]

    def rows(self, cache_values: Values) -> list[Row]:
        layout, given = cache_values
        # Without a number of classes each rank would count as many as its own part shows.
        return [*moved_rows(tuple(range(layout.ndim)))] if given else []

    def output_ndims(self, cache_values: Values) -> tuple[int]:
        return (cache_values[0].ndim + 1,)
