"""Reductions: sum, mean, max, min, amax, amin, prod, any, all, argmax, argmin, logsumexp, var, std ...

Rule on one mesh axis, for a reduction over some dims::

    S(kept)    -> S(where the dim is afterwards)
    S(reduced) -> P(sum)           sum, mean, count_nonzero
    S(reduced) -> P(max | min)     amax, amin, max, min (whole tensor), any, all   unless a gradient is needed
    S(reduced) -> P(prod)          prod                                            unless a gradient is needed
    S(reduced) -> I                all others: the implementation joins what the ranks found

    P(op)      -> P(op)            sum and mean of sum and avg; max of max, min of min, prod of prod

Partial(max, min, prod) carries no gradient (docs/gradients.md), so that with a gradient these reduce at once.
The mean over a sharded dim is the local mean times the local share.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, ClassVar

from hyper_dispatch import INVARIANT, Row, RowsOp, Token, find_op, register_strategy
from hyper_dtensor import get_platform
from hyper_dtensor.collectives import all_gather, gather_invariant, vary
from hyper_layout import DeviceMesh, Layout, LayoutError, Partial, Shard
from hyper_ops.dims import normal_dims
from hyper_ops.pieces import (
    axes_of_dims,
    check_inexact,
    gather_stack,
    position,
    squeeze_dims,
    sum_over,
    tied_extreme,
    widened,
)

Impl = Callable[..., Any]
Values = Sequence[Any]

_SUM = Partial("sum")


class Reduction(RowsOp):
    """Common part. Cache values: the layout, `dim` as written, `keepdim`, then what a family adds."""

    needs_signature = True
    shapes_follow = True

    def statics(self, bound: dict[str, Any]) -> tuple[Any, ...]:
        dim = bound.get("dim")
        plain_dim = tuple(dim) if isinstance(dim, list) else dim
        return (plain_dim, bound.get("keepdim", False), *self.facts(bound))

    def facts(self, bound: dict[str, Any]) -> tuple[Any, ...]:
        """Further static values of the family."""
        return ()

    def dims(self, values: Values) -> tuple[int, ...]:
        """The reduced dims, in ascending order."""
        layout, dim = values[0], values[1]
        # An empty tuple reduces all dims, as the frameworks have it.
        return normal_dims(None if dim == () else dim, layout.ndim)

    def reduced(self, values: Values) -> Token:
        """What a shard of a reduced dim becomes."""
        raise NotImplementedError

    def partials(self, values: Values) -> Sequence[str]:
        """The Partial reductions that flow through."""
        return ()

    def output_count(self, values: Values) -> int:
        """Number of results: all have the same layout."""
        return 1

    def rows(self, values: Values) -> Sequence[Row]:
        layout, keepdim, count = values[0], values[2], self.output_count(values)
        rows = _shard_rows(layout.ndim, self.dims(values), bool(keepdim), self.reduced(values), count)
        return (*rows, *[Row((Partial(op),), (Partial(op),) * count) for op in self.partials(values)])

    def output_ndims(self, values: Values) -> Sequence[int]:
        layout, keepdim = values[0], values[2]
        ndim = layout.ndim if keepdim else layout.ndim - len(self.dims(values))
        return (ndim,) * self.output_count(values)

    def get_expand_impl(self, func: Any, infer_result: Any, values: Values) -> Impl | None:
        layout = values[0]
        dims = self.dims(values)
        axes = axes_of_dims(layout, dims)
        return self.joined(func, layout, dims, axes, values) if axes else None

    def joined(
        self, func: Any, layout: Layout, dims: tuple[int, ...], axes: tuple[int, ...], values: Values
    ) -> Impl | None:
        """The implementation over dims that `axes` split, or None if the local one does."""
        return None


@lru_cache(maxsize=1024)
def _shard_rows(
    ndim: int, dims: tuple[int, ...], keepdim: bool, reduced: Token, count: int
) -> tuple[Row, ...]:
    """The row of each dim of the input, for `count` results; what a split one of the reduced dims becomes."""
    rows = []
    for dim in range(ndim):
        output = reduced if dim in dims else Shard(dim if keepdim else dim - bisect_left(dims, dim))
        rows.append(Row((Shard(dim),), (output,) * count))
    return tuple(rows)


class Linear(Reduction):
    """Sums: Partial operands flow through, casts of them between floating dtypes only."""

    def facts(self, bound: dict[str, Any]) -> tuple[Any, ...]:
        operand, dtype = bound["input"], bound.get("dtype")
        if not operand._layout.partial_axes:
            return (None, None)
        name = get_platform().dtype_name(operand.to_local())
        return (name, None if dtype is None else "float" in str(dtype).lower())

    def reduced(self, values: Values) -> Token:
        return _SUM

    def partials(self, values: Values) -> Sequence[str]:
        name, to_floating = values[3], values[4]
        if name is None:
            return ()
        if name == "b":
            raise LayoutError("a Partial of booleans has no sum: cast it to a number before it is split")
        if to_floating is not None and not (to_floating and "f" in name):
            raise LayoutError(
                "a Partial is cast between floating dtypes only: reduce it before, or cast after"
            )
        return ("sum", "avg")


@register_strategy("sum")
class Sum(Linear):
    """`sum(input, dim=None, keepdim=False, *, dtype=None)`."""


@register_strategy("mean")
class Mean(Linear):
    """`mean(input, dim=None, keepdim=False, *, dtype=None)`: local mean times local share."""

    def joined(self, func: Any, layout: Layout, dims: Any, axes: tuple[int, ...], values: Values) -> Impl:
        blocks = prod(layout.mesh_shape[axis] for axis in axes)

        def local_share(*args: Any, **kwargs: Any) -> Any:
            return func(*args, **kwargs) / blocks

        return local_share


@register_strategy("sum_of_function")
class SumOfFunction(Reduction):
    """Sums of a function of the elements that is not linear: `count_nonzero`, `nansum`."""

    def reduced(self, values: Values) -> Token:
        return Partial("sum")


@register_strategy("any_all")
class AnyAll(Reduction):
    """`any`, `all`: the largest, the smallest of booleans.

    Args:
        op_name: The operation.
        op: max for any, min for all.
    """

    def __init__(self, op_name: str, op: str) -> None:
        super().__init__(op_name)
        self.op = op

    def facts(self, bound: dict[str, Any]) -> tuple[Any, ...]:
        return (get_platform().dtype_name(bound["input"].to_local()) == "b",)

    def dims(self, values: Values) -> tuple[int, ...]:
        # Unlike the others, these reduce nothing when told to reduce no dims.
        return normal_dims(values[1], values[0].ndim)

    def reduced(self, values: Values) -> Token:
        return Partial(self.op)

    def partials(self, values: Values) -> Sequence[str]:
        return (self.op,) if values[3] else ()


class Extreme(Reduction):
    """Common part of the extremes: Partial unless a gradient is needed.

    Args:
        op_name: The operation.
        op: max or min.
    """

    nan_ties: ClassVar[bool]

    def __init__(self, op_name: str, op: str) -> None:
        super().__init__(op_name)
        self.op = op

    def facts(self, bound: dict[str, Any]) -> tuple[Any, ...]:
        return (get_platform().tracks_gradient(bound["input"].to_local()),)

    def reduced(self, values: Values) -> Token:
        return INVARIANT if values[3] else Partial(self.op)

    def partials(self, values: Values) -> Sequence[str]:
        return () if values[3] else (self.op,)

    def joined(
        self, func: Any, layout: Layout, dims: tuple[int, ...], axes: tuple[int, ...], values: Values
    ) -> Impl | None:
        if not values[3]:
            return None
        mesh, op, nan_ties, keepdim = layout.mesh, self.op, self.nan_ties, values[2]

        def at_once(x: Any, *_: Any, **__: Any) -> Any:
            whole = tied_extreme(x, dims, mesh, axes, op, nan_ties=nan_ties)
            return whole if keepdim else squeeze_dims(whole, dims)

        return at_once


@register_strategy("amax_amin")
class AmaxAmin(Extreme):
    """`amax(input, dim=(), keepdim=False)`, `amin`: the gradient is shared by all that tie."""

    nan_ties = False


@register_strategy("max_min")
class MaxMin(Extreme):
    """`max`, `min`: of the whole tensor, along one dim with indices, or of two tensors.

    The whole-tensor form shares its gradient among all that tie, NaN among NaNs. Along a dim the gradient
    goes to the first of them, which is the index returned. The form with two tensors is `maximum`, `minimum`.
    """

    nan_ties = True

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bound = self.bind(args, kwargs)
        if getattr(bound["dim"], "_layout", None) is None:
            return super().preprocess(args, kwargs)
        return self._binary().preprocess((bound["input"], bound["dim"]), {})

    def infer_layout(self, cache_values: Values) -> Any:
        if _is_binary(cache_values):
            return self._binary().infer_layout(cache_values)
        return super().infer_layout(cache_values)

    def get_expand_impl(self, func: Any, infer_result: Any, values: Values) -> Impl | None:
        if _is_binary(values):
            return self._binary().get_expand_impl(func, infer_result, values)  # type: ignore[no-any-return]
        return super().get_expand_impl(func, infer_result, values)

    def output_count(self, values: Values) -> int:
        return 1 if values[1] is None else 2

    def reduced(self, values: Values) -> Token:
        # Indices must not be mixed, so the form with indices is joined at once.
        return super().reduced(values) if values[1] is None else INVARIANT

    def partials(self, values: Values) -> Sequence[str]:
        return super().partials(values) if values[1] is None else ()

    def joined(
        self, func: Any, layout: Layout, dims: tuple[int, ...], axes: tuple[int, ...], values: Values
    ) -> Impl | None:
        if values[1] is None:
            return super().joined(func, layout, dims, axes, values)
        mesh, keepdim, (dim,) = layout.mesh, values[2], dims

        def first_of_all(x: Any, *_: Any, **__: Any) -> Any:
            ops = get_platform().ops
            # A dim in front stands for a 0-d tensor too; every rank's first index is the first of its block.
            best = func(x, dim, True)
            value, place = best
            place = place + position(mesh, axes) * x.shape[dim]
            for axis in reversed(axes):
                value = gather_invariant(value, mesh, axis, dim)
                place = all_gather(place, mesh, axis, dim)
            value, rank = func(value, dim, True)
            place = ops.gather(place, dim, rank)
            if not keepdim:
                value, place = ops.squeeze(value, dim), ops.squeeze(place, dim)
            return type(best)((value, place))

        return first_of_all

    def _binary(self) -> Any:
        name = {"max": "maximum", "min": "minimum"}[self.op]
        found = find_op(name)
        if found is None:
            raise LayoutError(f"{self.op_name} of two tensors is {name}, which is not registered")
        return found


def _is_binary(values: Values) -> bool:
    return isinstance(values[1], Layout)


@register_strategy("prod")
class Product(Reduction):
    """`prod(input, dim=None, keepdim=False, *, dtype=None)`.

    With a gradient the ranks' products are gathered and multiplied, so that zeros are exact.
    """

    def facts(self, bound: dict[str, Any]) -> tuple[Any, ...]:
        return (get_platform().tracks_gradient(bound["input"].to_local()),)

    def reduced(self, values: Values) -> Token:
        return INVARIANT if values[3] else Partial("prod")

    def partials(self, values: Values) -> Sequence[str]:
        return () if values[3] else ("prod",)

    def joined(
        self, func: Any, layout: Layout, dims: tuple[int, ...], axes: tuple[int, ...], values: Values
    ) -> Impl | None:
        if not values[3]:
            return None
        mesh = layout.mesh

        def of_products(*args: Any, **kwargs: Any) -> Any:
            return get_platform().ops.prod(gather_stack(func(*args, **kwargs), mesh, axes), 0)

        return of_products


@register_strategy("argmax_argmin")
class ArgExtreme(Reduction):
    """`argmax(input, dim=None, keepdim=False)`, `argmin`: global indices, of the first extreme.

    Args:
        op_name: The operation.
        op: max or min.
    """

    def __init__(self, op_name: str, op: str) -> None:
        super().__init__(op_name)
        self.op = op

    def reduced(self, values: Values) -> Token:
        return INVARIANT

    def joined(
        self, func: Any, layout: Layout, dims: tuple[int, ...], axes: tuple[int, ...], values: Values
    ) -> Impl | None:
        mesh, op, dim, keepdim = layout.mesh, self.op, values[1], values[2]

        def first_of_all(x: Any, *_: Any, **__: Any) -> Any:
            platform = get_platform()
            ops = platform.ops
            x = platform.detach(x)
            local = func(x, dim, True) if dim is not None else func(x)
            if dim is None:
                value = ops.reshape(x, (-1,))[local]
                place = _global_flat_index(local, x.shape, layout)
            else:
                value = ops.gather(x, dims[0], local)
                place = local + position(mesh, axes) * x.shape[dims[0]]
            # Stacked in any order: among equals the smallest global index counts.
            values_of_ranks, places = value[None], place[None]
            for axis in axes:
                values_of_ranks = all_gather(values_of_ranks, mesh, axis, 0)
                places = all_gather(places, mesh, axis, 0)
            extreme = ops.amax if op == "max" else ops.amin
            best = extreme(values_of_ranks, 0, True)
            found = (values_of_ranks == best) | ((values_of_ranks != values_of_ranks) & (best != best))
            place = ops.amin(ops.where(found, places, ops.amax(places, 0, True)), 0)
            if dim is None:
                return ops.reshape(place, (1,) * layout.ndim) if keepdim else place
            return place if keepdim else ops.squeeze(place, dims[0])

        return first_of_all


def _global_flat_index(index: Any, shape: Sequence[int], layout: Layout) -> Any:
    """The row-major index in the whole tensor of a row-major index in this rank's block."""
    flat, stride = 0, 1
    for dim in reversed(range(layout.ndim)):
        place = index % shape[dim] + position(layout.mesh, layout.dim_axes[dim]) * shape[dim]
        flat = flat + place * stride
        index = index // shape[dim]
        stride *= shape[dim] * layout.shard_counts[dim]
    return flat


@register_strategy("logsumexp")
class LogSumExp(Reduction):
    """`logsumexp(input, dim, keepdim=False)`: that of the ranks' own, which is exact for -inf too."""

    def reduced(self, values: Values) -> Token:
        return INVARIANT

    def joined(
        self, func: Any, layout: Layout, dims: tuple[int, ...], axes: tuple[int, ...], values: Values
    ) -> Impl:
        mesh = layout.mesh

        def of_ranks(x: Any, *args: Any, **kwargs: Any) -> Any:
            own = func(widened(x), *args, **kwargs)
            whole = func(gather_stack(own, mesh, axes), 0)
            return whole.to(x.dtype) if get_platform().is_floating(x) else whole

        return of_ranks


@register_strategy("var_std")
class VarStd(Reduction):
    """`var`, `std`: `(input, dim=None, *, correction=1, keepdim=False)` and the forms with `unbiased`.

    Over a sharded dim the global mean is subtracted first. std is the norm of what remains, so that its
    gradient is zero, not NaN, where all values are equal.

    Args:
        op_name: The operation.
        root: Whether it is std.
    """

    def __init__(self, op_name: str, root: bool) -> None:
        super().__init__(op_name)
        self.root = root

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bound = self.bind(args, kwargs)
        dim, unbiased, correction = bound["dim"], bound["unbiased"], bound["correction"]
        if isinstance(dim, bool):
            # var(input, unbiased)
            dim, unbiased = None, dim
        if correction is None:
            correction = 1 if unbiased is None or unbiased else 0
        dim = tuple(dim) if isinstance(dim, list) else dim
        options = {"dim": dim, "correction": correction, "keepdim": bound["keepdim"]}
        operand = bound["input"]
        check_inexact(self.op_name, operand.to_local())
        return (operand.to_local(),), options, [operand._layout, dim, bound["keepdim"]]

    def reduced(self, values: Values) -> Token:
        return INVARIANT

    def joined(
        self, func: Any, layout: Layout, dims: tuple[int, ...], axes: tuple[int, ...], values: Values
    ) -> Impl:
        root, keepdim = self.root, values[2]

        def about_global_mean(x: Any, *, correction: float, **_: Any) -> Any:
            spread = _root_of_squares if root else _sum_of_squares
            count = prod(x.shape[dim] * layout.shard_counts[dim] for dim in dims)
            freedom = max(0, count - correction)  # 0 for NaN, as PyTorch has it
            centred = _centred(widened(x), dims, count, layout.mesh, axes)
            whole = spread(centred, dims, layout.mesh, axes)
            # Division by a tensor: by zero it gives inf or NaN, as the local operation does.
            whole = whole / get_platform().ops.full_like(whole, freedom**0.5 if root else freedom)
            whole = whole if keepdim else squeeze_dims(whole, dims)
            return whole if x.is_complex() else whole.to(x.dtype)

        return about_global_mean


def _centred(x: Any, dims: Sequence[int], count: int, mesh: DeviceMesh, axes: Sequence[int]) -> Any:
    """`x` less its global mean, which is the same on all ranks and meets each rank's own values: a view."""
    mean = sum_over(get_platform().ops.sum(x, dims, True), mesh, axes) / count
    for axis in axes:
        mean = vary(mean, mesh, axis)
    return x - mean


def _sum_of_squares(x: Any, dims: Sequence[int], mesh: DeviceMesh, axes: Sequence[int]) -> Any:
    ops = get_platform().ops
    return sum_over(ops.sum(ops.square(ops.abs(x)), dims, True), mesh, axes)


def _root_of_squares(x: Any, dims: Sequence[int], mesh: DeviceMesh, axes: Sequence[int]) -> Any:
    norm = get_platform().ops.vector_norm
    return norm(gather_stack(norm(x, 2, dims, True), mesh, axes), 2, 0)
