"""Views: view, reshape, flatten, unflatten, ravel, view_as, reshape_as.

The rule: cut both shapes into groups of equal product. Within a group the axes of the input dims are
collected in order and handed, left to right, to the output dims; a dim takes axes until its local size
is 1. The block of a rank is then one contiguous piece of the group in both shapes, and the same one.
That needs that what stands before a split input dim in its group is cut to size 1, and that no axis is
left over. Partial and Replicate pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from operator import index
from typing import Any, Final

from hyper_dispatch import DistributedOp, Effects, RuleError, register_strategy
from hyper_dtensor import get_platform
from hyper_layout import Layout
from hyper_ops.dims import normal_dim
from hyper_ops.moved_dims import axis_names, integers

_EMPTY: Final = 2**61 - 1


@register_strategy("view")
class View(DistributedOp):
    """A tensor read under another shape of as many elements.

    Cache values: layout of the input (and of `other` in `view_as`), then the sizes of the input, then those
    of the output. The local implementation gets the global shape and uses the local one instead.
    """

    shapes_follow = True
    view_like = True
    preprocess_is_pure = True

    def __init__(self, op_name: str, form: str = "shape", local: str = "reshape") -> None:
        """Serve one operation.

        Args:
            op_name: Its name.
            form: What its arguments say: `shape`, `flatten`, `unflatten` or `other`.
            local: The local function: `view` raises where the memory does not allow a view, `reshape` copies.
        """
        super().__init__(op_name)
        self._target = _FORMS[form]
        self._local = local

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensor, shape, target, layouts = self._target(self, args, kwargs)
        return (tensor.to_local(), target), {}, [*layouts, *shape, *target]

    def infer_layout(self, cache_values: Sequence[Any]) -> Any:
        layout, shape, target = _read(cache_values)
        dim_axes = regrouped(self.op_name, layout, shape, target)
        output = Layout.from_dim_axes(layout.mesh, dim_axes, layout.partial)
        return (output,), Effects(shapes=(target,))

    def get_expand_impl(
        self, func: Callable[..., Any] | None, infer_result: Any, cache_values: Sequence[Any]
    ) -> Callable[..., Any]:
        output: Layout = infer_result[0][0]
        local_shape = output.local_shape(_read(cache_values)[2])
        local = getattr(get_platform().ops, self._local)

        def expand(x: Any, _target: tuple[int, ...]) -> Any:
            return local(x, local_shape)

        return expand


def _read(cache_values: Sequence[Any]) -> tuple[Layout, tuple[int, ...], tuple[int, ...]]:
    layout: Layout = cache_values[0]
    start = 2 if isinstance(cache_values[1], Layout) else 1
    sizes = tuple(cache_values[start:])
    return layout, sizes[: layout.ndim], sizes[layout.ndim :]


def _shape_form(op: View, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`x.view(2, 3)`, `x.view((2, 3))`, `torch.reshape(x, shape=(2, 3))`."""
    sizes = args[1:] or kwargs.get("shape") or kwargs.get("size")
    if "dtype" in kwargs or sizes is None or (len(sizes) == 1 and not _is_sizes(sizes[0])):
        raise NotImplementedError(
            f"{op.op_name} takes a shape; a view of another dtype is not supported on a DTensor: take it on "
            "x.to_local() where the layout allows it"
        )
    tensor = args[0]
    shape = tuple(tensor.shape)
    return tensor, shape, _resolved(shape, integers(sizes)), (tensor.layout,)


def _is_sizes(value: Any) -> bool:
    return isinstance(value, (tuple, list)) or hasattr(value, "__index__")


def _flatten_form(op: View, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`x.flatten(start_dim, end_dim)`, `x.ravel()`."""
    assert op.signature is not None
    bound = op.signature.bind(args, kwargs)
    tensor = bound["input"]
    shape = tuple(tensor.shape)
    start = normal_dim(bound.get("start_dim", 0), len(shape))
    end = normal_dim(bound.get("end_dim", -1), len(shape))
    if start > end:
        raise RuntimeError(f"{op.op_name}: start_dim {start} comes after end_dim {end}")
    target = (*shape[:start], prod(shape[start : end + 1]), *shape[end + 1 :])
    return tensor, shape, target, (tensor.layout,)


def _unflatten_form(op: View, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`x.unflatten(dim, sizes)`."""
    assert op.signature is not None
    bound = op.signature.bind(args, kwargs)
    tensor = bound["input"]
    shape = tuple(tensor.shape)
    dim = normal_dim(bound["dim"], len(shape))
    sizes = _resolved((shape[dim],), tuple(map(index, bound["sizes"])))
    return tensor, shape, (*shape[:dim], *sizes, *shape[dim + 1 :]), (tensor.layout,)


def _other_form(op: View, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`x.view_as(other)`: only the global shape of `other` counts."""
    assert op.signature is not None
    bound = op.signature.bind(args, kwargs)
    tensor, other = bound["input"], bound["other"]
    shape = tuple(tensor.shape)
    return tensor, shape, _resolved(shape, tuple(other.shape)), (tensor.layout, other.layout)


_FORMS: dict[str, Callable[[View, tuple[Any, ...], dict[str, Any]], Any]] = {
    "shape": _shape_form,
    "flatten": _flatten_form,
    "unflatten": _unflatten_form,
    "other": _other_form,
}


def _resolved(shape: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, ...]:
    """The target with its -1 replaced.

    Raises:
        RuntimeError: If it does not have as many elements; worded as PyTorch does.
    """
    count = prod(shape)
    open_dims = [dim for dim, size in enumerate(target) if size == -1]
    known = prod(size for size in target if size != -1)
    fits = known and count % known == 0 if open_dims else known == count
    if len(open_dims) > 1 or any(size < -1 for size in target) or not fits:
        raise RuntimeError(f"shape '{list(target)}' is invalid for input of size {count}")
    return tuple(count // known if size == -1 else size for size in target)


def groups(shape: Sequence[int], target: Sequence[int]) -> Iterator[tuple[range, range]]:
    """Cut two shapes of equal product into the smallest groups of consecutive dims of equal product."""
    if 0 in shape:
        # Read 0 as a size that no other is: an empty dim that stays in its place is a group of its own.
        shape, target = [size or _EMPTY for size in shape], [size or _EMPTY for size in target]
        if prod(shape) != prod(target):
            yield range(len(shape)), range(len(target))
            return
    i = j = 0
    while i < len(shape) or j < len(target):
        first_i, first_j, left, right = i, j, 1, 1
        if i < len(shape):
            left, i = shape[i], i + 1
        if j < len(target):
            right, j = target[j], j + 1
        while left != right:
            if left < right:
                left, i = left * shape[i], i + 1
            else:
                right, j = right * target[j], j + 1
        yield range(first_i, i), range(first_j, j)


def regrouped(
    op_name: str, layout: Layout, shape: Sequence[int], target: Sequence[int]
) -> list[tuple[int, ...]]:
    """Per output dim the axes that split it.

    Args:
        op_name: Name for messages.
        layout: Layout of the input.
        shape: Its global shape.
        target: The global shape of the output, of as many elements.

    Raises:
        RuleError: If no layout of the output gives every rank the elements that it holds.
    """
    dim_axes: list[tuple[int, ...]] = [()] * len(target)
    for sources, outputs in groups(shape, target):
        axes = _collected(op_name, layout, shape, target, sources, outputs)
        for dim in outputs:
            taken, left = 0, target[dim]
            while taken < len(axes):
                size = layout.mesh_shape[axes[taken]]
                if left % size:
                    break
                left //= size
                taken += 1
            dim_axes[dim], axes = tuple(axes[:taken]), axes[taken:]
            if axes and left != 1:
                cut = f"what is left of dim {dim} ({left} of {target[dim]}) is not cut evenly by"
                raise _refusal(op_name, layout, shape, target, sources, outputs, axes, cut)
        # Axes of size 1 on a dim of size 1 that vanishes cut nothing.
    return dim_axes


def _collected(
    op_name: str,
    layout: Layout,
    shape: Sequence[int],
    target: Sequence[int],
    sources: range,
    outputs: range,
) -> list[int]:
    """The axes that split a group's input dims, in order."""
    axes: list[int] = []
    open_dim = None
    for dim in sources:
        if layout.shard_counts[dim] > 1 and open_dim is not None:
            why = f"dim {open_dim} before dim {dim} is not cut to size 1, while dim {dim} is split by"
            raise _refusal(op_name, layout, shape, target, sources, outputs, layout.dim_axes[dim], why)
        axes += layout.dim_axes[dim]
        if shape[dim] != layout.shard_counts[dim] and open_dim is None:
            open_dim = dim
    return axes


def _refusal(
    op_name: str,
    layout: Layout,
    shape: Sequence[int],
    target: Sequence[int],
    sources: range,
    outputs: range,
    axes: Sequence[int],
    why: str,
) -> RuleError:
    names = tuple(layout.mesh.mesh_dim_names[axis] for axis in axes)
    old = " x ".join(str(shape[dim]) for dim in sources)
    new = " x ".join(str(target[dim]) for dim in outputs)
    split = ", ".join(f"dim {dim} by {axis_names(layout, dim)}" for dim in sources if layout.dim_axes[dim])
    reason = (
        f"dims {_span(sources)} of {{0}} ({old}, split: {split}) become dims {_span(outputs)} ({new}); {why} "
        f"{', '.join(map(repr, names))}: the pieces of the ranks are no blocks of the result"
    )
    return RuleError(op_name, tuple(axes), names, reason)


def _span(dims: range) -> str:
    return str(dims[0]) if len(dims) == 1 else f"{dims[0]}..{dims[-1]}"
