"""Dims that move, appear, vanish or repeat: transpose and its kin, squeeze, unsqueeze, expand, flip, repeat.

Rule on one mesh axis: an input dim that is an output dim carries its split there (`S(d) -> S(out of d)`); a
dim that the operation changes along (it is flipped, rolled, repeated, read diagonally) must not be split; a
new dim is not split; any Partial passes (`P(op) -> P(op)`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import Any

from hyper_dispatch import Row, RowsOp, register_strategy
from hyper_dtensor import get_platform
from hyper_layout import Layout, LayoutError, Partial, Replicate, Shard
from hyper_ops.dims import normal_dim
from hyper_ops.moved_dims import (
    PARTIAL_ROWS,
    REDUCE_OPS,
    dropped_rows,
    integers,
    moved_rows,
    ordered_dims,
    spread,
)

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Values = Sequence[Any]


class MovedDims(RowsOp):
    """Base: an operation on one tensor that is known by where its output dims come from.

    Cache values: the layout, then integers that say which dims move how.
    """

    shapes_follow = True

    def sources(self, cache_values: Values) -> Sequence[int | None]:
        """Per output dim the input dim whose split it carries, or None."""
        raise NotImplementedError

    def dropped(self, cache_values: Values) -> Sequence[int]:
        """Input dims of size 1 that vanish or are broadcast."""
        return ()

    def rows(self, cache_values: Values) -> list[Row]:
        moved = moved_rows(tuple(self.sources(cache_values)))
        return [*moved, *dropped_rows(tuple(self.dropped(cache_values))), *PARTIAL_ROWS]

    def output_ndims(self, cache_values: Values) -> tuple[int]:
        return (len(self.sources(cache_values)),)


@register_strategy("permute")
class Permute(MovedDims):
    """Every reordering of dims; the local implementation is one `permute`.

    Cache values: the layout, then per output dim the input dim.
    """

    view_like = True

    def __init__(self, op_name: str, form: str = "permute") -> None:
        """Serve one operation.

        Args:
            op_name: Its name.
            form: How its arguments name the order: `permute`, `swap`, `move`, `last_two`, `reverse`.
        """
        super().__init__(op_name)
        self._order = _ORDERS[form]

    def preprocess(self, args: Args, kwargs: Kwargs) -> Any:
        bound = self.bind(*spread(args, kwargs, "dims"))
        tensor = bound.pop("input")
        order = self._order(len(tensor.shape), **bound)
        return (tensor.to_local(), order), {}, [tensor.layout, *order]

    def sources(self, cache_values: Values) -> Sequence[int]:
        return tuple(cache_values[1:])

    def get_expand_impl(self, func: Any, infer_result: Any, cache_values: Values) -> Callable[..., Any]:
        permute: Callable[..., Any] = get_platform().ops.permute
        return permute


def _permute_order(ndim: int, dims: Any) -> tuple[int, ...]:
    order = ordered_dims(integers(dims), ndim)
    if len(order) != ndim:
        raise RuntimeError(f"permute names {len(order)} dims of a tensor that has {ndim}")
    return order


def _swap_order(ndim: int, dim0: Any, dim1: Any) -> tuple[int, ...]:
    order = list(range(ndim))
    first, second = normal_dim(dim0, ndim), normal_dim(dim1, ndim)
    if ndim:
        order[first], order[second] = second, first
    return tuple(order)


def _move_order(ndim: int, source: Any, destination: Any) -> tuple[int, ...]:
    sources, destinations = ordered_dims(source, ndim), ordered_dims(destination, ndim)
    if len(sources) != len(destinations):
        raise RuntimeError(f"movedim: {len(sources)} source dims but {len(destinations)} destinations")
    taken = dict(zip(destinations, sources, strict=True))
    others = iter(dim for dim in range(ndim) if dim not in sources)
    return tuple(taken[place] if place in taken else next(others) for place in range(ndim))


def _last_two_order(ndim: int) -> tuple[int, ...]:
    if ndim < 2:
        raise RuntimeError(f"the transpose of matrices needs a tensor of at least 2 dims, got {ndim}")
    return (*range(ndim - 2), ndim - 1, ndim - 2)


def _reverse_order(ndim: int) -> tuple[int, ...]:
    if ndim > 2:
        raise RuntimeError(f"t() and T take a tensor of at most 2 dims, got {ndim}; use mT or permute")
    return tuple(reversed(range(ndim)))


_ORDERS: dict[str, Callable[..., tuple[int, ...]]] = {
    "permute": _permute_order,
    "swap": _swap_order,
    "move": _move_order,
    "last_two": _last_two_order,
    "reverse": _reverse_order,
}


@register_strategy("squeeze")
class Squeeze(MovedDims):
    """Dims of global size 1 vanish; a dim whose local size alone is 1 does not.

    Cache values: the layout, then the dims that vanish.
    """

    view_like = True

    def preprocess(self, args: Args, kwargs: Kwargs) -> Any:
        bound = self.bind(args, kwargs)
        tensor = bound["input"]
        shape = tensor.shape
        named = bound["dim"]
        dims = range(len(shape)) if named is None else ordered_dims(named, len(shape))
        gone = tuple(sorted(dim for dim in dims if len(shape) and shape[dim] == 1))
        return (tensor.to_local(), gone), {}, [tensor.layout, *gone]

    def sources(self, cache_values: Values) -> Sequence[int]:
        gone = cache_values[1:]
        return tuple(dim for dim in range(cache_values[0].ndim) if dim not in gone)

    def dropped(self, cache_values: Values) -> Sequence[int]:
        return tuple(cache_values[1:])

    def get_expand_impl(self, func: Any, infer_result: Any, cache_values: Values) -> Callable[..., Any]:
        squeeze: Callable[..., Any] = get_platform().ops.squeeze
        return squeeze


@register_strategy("unsqueeze")
class Unsqueeze(MovedDims):
    """A new dim of size 1. Cache values: the layout, the place of the new dim."""

    view_like = True

    def preprocess(self, args: Args, kwargs: Kwargs) -> Any:
        bound = self.bind(args, kwargs)
        tensor = bound["input"]
        dim = normal_dim(bound["dim"], len(tensor.shape) + 1)
        return (tensor.to_local(), dim), {}, [tensor.layout, dim]

    def sources(self, cache_values: Values) -> Sequence[int | None]:
        layout, dim = cache_values
        return (*range(dim), None, *range(dim, layout.ndim))


@register_strategy("expand")
class Expand(RowsOp):
    """Dims of size 1, and new leading ones, are repeated without copying; the others keep their split.

    In `expand_as` a dim that is repeated takes the split that `other` has there: every block is alike.

    Cache values: layout of the input (and of `other`), the sizes of the input, the sizes of the output.
    """

    shapes_follow = True
    view_like = True

    def __init__(self, op_name: str, form: str = "sizes") -> None:
        """Serve one operation; its `form` is `sizes` or `other`."""
        super().__init__(op_name)
        self._form = form

    def preprocess(self, args: Args, kwargs: Kwargs) -> Any:
        if self._form == "other":
            bound = self.bind(args, kwargs)
            tensor, other = bound["input"], bound["other"]
            sizes, layouts = tuple(other.shape), [tensor.layout, other.layout]
        else:
            bound = self.bind(*spread(args, kwargs, "size"))
            tensor = bound["input"]
            sizes = integers(bound["size"])
            layouts = [tensor.layout]
        shape = tuple(tensor.shape)
        target = _broadcast(shape, sizes)
        return (tensor.to_local(), target), {}, [*layouts, *shape, *target]

    def rows(self, cache_values: Values) -> list[Row]:
        _, other, shape, target = _read_expand(cache_values)
        new = len(target) - len(shape)
        repeated = [dim for dim in range(len(target)) if dim < new or shape[dim - new] != target[dim]]
        kept = [dim for dim in range(len(target)) if dim not in repeated]
        if other is None:
            moved = moved_rows(tuple([dim - new if dim in kept else None for dim in range(len(target))]))
            return [
                *moved,
                *dropped_rows(tuple([dim - new for dim in repeated if dim >= new])),
                *PARTIAL_ROWS,
            ]
        rows = [Row((Replicate(), Shard(dim)), (Shard(dim),)) for dim in repeated]
        anything = [*map(Shard, range(other.ndim)), *map(Partial, REDUCE_OPS), Replicate()]
        for token in anything:
            rows += [Row((Shard(dim - new), token), (Shard(dim),)) for dim in kept]
            rows += [Row((row.inputs[0], token), row.outputs) for row in PARTIAL_ROWS]
            rows.append(Row((Replicate(), token), (Replicate(),)))
        return rows

    def output_ndims(self, cache_values: Values) -> tuple[int]:
        return (len(_read_expand(cache_values)[3]),)

    def output_shapes(self, cache_values: Values) -> tuple[tuple[int, ...]]:
        return (_read_expand(cache_values)[3],)

    def get_expand_impl(self, func: Any, infer_result: Any, cache_values: Values) -> Callable[..., Any]:
        output: Layout = infer_result[0][0]
        local_size = output.local_shape(_read_expand(cache_values)[3])
        local_expand = get_platform().ops.expand

        def expand(x: Any, _target: tuple[int, ...]) -> Any:
            return local_expand(x, local_size)

        return expand


def _read_expand(cache_values: Values) -> tuple[Layout, Layout | None, tuple[int, ...], tuple[int, ...]]:
    layout = cache_values[0]
    other = cache_values[1] if isinstance(cache_values[1], Layout) else None
    sizes = tuple(cache_values[1 if other is None else 2 :])
    return layout, other, sizes[: layout.ndim], sizes[layout.ndim :]


def _broadcast(shape: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape after `expand(sizes)`; -1 keeps a size."""
    new = len(sizes) - len(shape)
    if new < 0:
        raise RuntimeError(
            f"expand: the number of sizes provided ({len(sizes)}) must be greater or equal to the number of "
            f"dimensions in the tensor ({len(shape)})"
        )
    target = []
    for dim, size in enumerate(sizes):
        old = shape[dim - new] if dim >= new else None
        if (size < 0 and (size != -1 or old is None)) or (old not in (None, 1, size) and size != -1):
            raise RuntimeError(f"expand: shape {shape} cannot be expanded to {sizes} at dim {dim}")
        target.append(old if size == -1 and old is not None else size)
    return tuple(target)


@register_strategy("flip")
class Flip(MovedDims):
    """Elements change places along some dims: flip, roll. These must not be split, the others may.

    Cache values: the layout, then the dims along which elements change places (for `roll` without dims: all).
    """

    def __init__(self, op_name: str, form: str = "flip") -> None:
        """Serve one operation; its `form` is `flip` or `roll`."""
        super().__init__(op_name)
        self._rolls = form == "roll"

    def preprocess(self, args: Args, kwargs: Kwargs) -> Any:
        bound = self.bind(args, kwargs) if self._rolls else self.bind(*spread(args, kwargs, "dims"))
        tensor = bound["input"]
        ndim = len(tensor.shape)
        if not self._rolls:
            dims = ordered_dims(integers(bound["dims"]), ndim)
            return (tensor.to_local(), dims), {}, [tensor.layout, *sorted(dims)]
        shifts, dims = bound["shifts"], bound["dims"]
        if dims is None or dims == ():
            return (tensor.to_local(), shifts), {}, [tensor.layout, *range(ndim)]
        # `roll` may name a dim twice.
        several = dims if isinstance(dims, (tuple, list)) else (dims,)
        changed = {normal_dim(dim, ndim) for dim in several}
        return (tensor.to_local(), shifts, dims), {}, [tensor.layout, *sorted(changed)]

    def sources(self, cache_values: Values) -> Sequence[int | None]:
        changed = cache_values[1:]
        return tuple(None if dim in changed else dim for dim in range(cache_values[0].ndim))


@register_strategy("repeat")
class Repeat(MovedDims):
    """Copies of the whole tensor side by side: repeat, tile. A dim that is repeated must not be split.

    Cache values: the layout, then per output dim whether it is repeated.
    """

    def __init__(self, op_name: str, form: str = "repeat") -> None:
        """Serve one operation; its `form` is `repeat`, or `tile`, which takes fewer counts than dims too."""
        super().__init__(op_name)
        self._form = form

    def preprocess(self, args: Args, kwargs: Kwargs) -> Any:
        bound = self.bind(*spread(args, kwargs, "repeats", "dims"))
        tensor, counts = bound["input"], integers(bound["counts"])
        missing = len(tensor.shape) - len(counts)
        if self._form == "tile":
            counts = (1,) * missing + counts
        elif missing > 0:
            raise RuntimeError(
                "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor"
            )
        return (tensor.to_local(), counts), {}, [tensor.layout, *[count != 1 for count in counts]]

    def sources(self, cache_values: Values) -> Sequence[int | None]:
        layout, *repeated = cache_values
        new = len(repeated) - layout.ndim
        return tuple(None if often or dim < new else dim - new for dim, often in enumerate(repeated))

    def get_expand_impl(self, func: Any, infer_result: Any, cache_values: Values) -> Callable[..., Any]:
        repeat: Callable[..., Any] = get_platform().ops.tile
        return repeat


@register_strategy("repeat_interleave")
class RepeatInterleave(MovedDims):
    """Every element repeated `repeats` times in its place: a split dim stays split, each block by itself.

    Without `dim` the tensor is flattened first, so that only dim 0 may be split. Repeats that differ by
    element (a tensor) need an unsplit dim.

    Cache values: layout of the input (and of `repeats`), whether repeats differ, the dim or None.
    """

    shapes_follow = False  # but from the values of `repeats`

    def preprocess(self, args: Args, kwargs: Kwargs) -> Any:
        bound = self.bind(args, kwargs)
        tensor, repeats, dim = bound["input"], bound["repeats"], bound["dim"]
        layout = getattr(repeats, "layout", None)
        differ = layout is not None and layout.ndim > 0
        if dim is not None:
            dim = normal_dim(dim, len(tensor.shape))
        local_kwargs = {"dim": dim}
        if bound["output_size"] is not None and not differ:
            raise NotImplementedError("repeat_interleave: output_size has no use with one number of repeats")
        local_repeats = repeats if layout is None else repeats.to_local()
        layouts = [tensor.layout] if layout is None else [tensor.layout, layout]
        return (tensor.to_local(), local_repeats), local_kwargs, [*layouts, differ, dim]

    def sources(self, cache_values: Values) -> Sequence[int | None]:
        layout, differ, dim = cache_values[0], cache_values[-2], cache_values[-1]
        if dim is None:
            return (0,) if layout.ndim and not differ else (None,)
        return tuple(None if differ and d == dim else d for d in range(layout.ndim))

    def rows(self, cache_values: Values) -> list[Row]:
        rows = super().rows(cache_values)
        if not isinstance(cache_values[1], Layout):
            return rows
        return [Row((*row.inputs, Replicate()), row.outputs) for row in rows]


@register_strategy("diagonal")
class Diagonal(MovedDims):
    """The diagonal of two dims as a new last dim; neither may be split.

    Cache values: the layout, the two dims.
    """

    view_like = True

    def preprocess(self, args: Args, kwargs: Kwargs) -> Any:
        bound = self.bind(args, kwargs)
        tensor = bound["input"]
        dims = ordered_dims((bound["dim1"], bound["dim2"]), len(tensor.shape))
        local_args = (tensor.to_local(), index(bound["offset"]), *dims)
        return local_args, {}, [tensor.layout, *dims]

    def sources(self, cache_values: Values) -> Sequence[int | None]:
        layout, *gone = cache_values
        return (*(dim for dim in range(layout.ndim) if dim not in gone), None)


@register_strategy("shape_in_place")
class ShapeInPlace(RowsOp):
    """An operation that changes the shape of its tensor in place, which no distributed tensor can do."""

    inplace = True

    def preprocess(self, args: Args, kwargs: Kwargs) -> Any:
        return (), {}, [args[0].layout]

    def rows(self, cache_values: Values) -> list[Row]:
        raise LayoutError(
            f"{self.op_name} changes the shape of a tensor in place, and a distributed tensor keeps its "
            "shape; use the out-of-place form"
        )
