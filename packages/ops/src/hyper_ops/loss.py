"""Losses of element by element: mse, l1, smooth_l1, huber, binary_cross_entropy(_with_logits), kl_div.

Rule on one mesh axis, for input and target of one shape, and weights that broadcast against them::

    S(d) S(d) S(d) -> S(d)      reduction "none"
    S(d) S(d) S(d) -> P(sum)    every other reduction

A Replicate target or weight next to a sharded input is cut to this rank's part; a weight of size 1 in the
dim is taken as it is. The mean over all elements is the local mean times the local share; the weighted mean
of mse divides by the weight of all elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

from hyper_dispatch import Row, RowsOp, register_strategy
from hyper_dtensor import get_platform
from hyper_dtensor.collectives import vary
from hyper_layout import Layout, Partial, Replicate, Shard
from hyper_ops.pieces import axes_of_dims, cut, sum_over
from hyper_ops.reductions_by_name import check_reduction, reduction_of

Tensor = Any
_R = Replicate()
_WEIGHTS = ("weight", "pos_weight")


class _Operand(NamedTuple):
    """A target or weight: its layout, and the input dim that each of its dims meets (None for size 1)."""

    name: str
    layout: Layout
    meets: tuple[int | None, ...]

    def dim_of(self, dim: int) -> int | None:
        """Its dim that meets an input dim, or None where it is broadcast."""
        return self.meets.index(dim) if dim in self.meets else None

    def cuts(self, layout: Layout) -> list[tuple[int, tuple[int, ...]]]:
        """What to cut of it, where it is whole and the input of `layout` is split."""
        return [
            (own, layout.dim_axes[dim])
            for own, dim in enumerate(self.meets)
            if dim is not None and layout.dim_axes[dim] and not self.layout.dim_axes[own]
        ]


@register_strategy("loss")
class Loss(RowsOp):
    """`f(input, target, *, reduction, ...)`. See `_read` for the cache values.

    Args:
        op_name: The operation.
        mean_by_weight: Whether the mean divides by the sum of `weight`.
        batchmean: Whether it knows the reduction `batchmean`.
    """

    def __init__(self, op_name: str, mean_by_weight: bool = False, batchmean: bool = False) -> None:
        super().__init__(op_name)
        self.mean_by_weight = mean_by_weight
        self.batchmean = batchmean

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bound = self.bind(args, kwargs)
        options = {name: value for name, value in bound.items() if name not in ("size_average", "reduce")}
        options["reduction"] = reduction_of(bound)
        main, target = options.pop("input"), options.pop("target")
        names = [name for name in _WEIGHTS if options.get(name) is not None]
        weights = [options[name] for name in names]
        options.update({name: value.to_local() for name, value in zip(names, weights, strict=True)})
        ones = [tuple(size == 1 for size in weight.shape) for weight in weights]
        layouts = [operand._layout for operand in (main, target, *weights)]
        same_shape = tuple(main.shape) == tuple(target.shape)
        values = [*layouts, tuple(names), tuple(ones), options["reduction"], same_shape]
        return (main.to_local(), target.to_local()), options, values

    def rows(self, cache_values: Sequence[Any]) -> Sequence[Row]:
        main, others, reduction = _read(cache_values)
        check_reduction(reduction, *(("batchmean",) if self.batchmean else ()))
        rows = []
        for dim in range(main.ndim):
            after = Shard(dim) if reduction == "none" else Partial("sum")
            choices: list[tuple[Any, ...]] = [()]
            for other in others:
                own = other.dim_of(dim)
                tokens = (_R,) if own is None else (Shard(own), _R)
                choices = [(*choice, token) for choice in choices for token in tokens]
            rows += [Row((Shard(dim), *choice), (after,)) for choice in choices]
        return rows

    def output_ndims(self, cache_values: Sequence[Any]) -> Sequence[int]:
        main, _, reduction = _read(cache_values)
        return (main.ndim if reduction == "none" else 0,)

    def get_expand_impl(
        self, func: Any, infer_result: Any, cache_values: Sequence[Any]
    ) -> Callable[..., Any] | None:
        main, (target, *weights), reduction = _read(cache_values)
        axes = axes_of_dims(main, range(main.ndim))
        if not axes:
            return None
        mesh = main.mesh
        target_cuts = target.cuts(main)
        weight_cuts = {weight.name: weight.cuts(main) for weight in weights}
        by_weight = self.mean_by_weight and reduction == "mean" and bool(weights)
        shares = _shares(main, reduction)

        def impl(x: Tensor, target: Tensor, **options: Any) -> Tensor:
            for dim, axes_there in target_cuts:
                target = cut(target, dim, mesh, axes_there)
            for name, cuts in weight_cuts.items():
                for dim, axes_there in cuts:
                    options[name] = cut(options[name], dim, mesh, axes_there)
            if not by_weight:
                loss = func(x, target, **options)
                return loss if shares == 1 else loss / shares
            total = sum_over(get_platform().ops.sum(options["weight"]), mesh, axes)
            for axis in axes:
                # The same on all ranks, used by each for its own summand.
                total = vary(total, mesh, axis)
            return func(x, target, **{**options, "reduction": "sum"}) / total

        return impl


def _read(cache_values: Sequence[Any]) -> tuple[Layout, list[_Operand], str]:
    """Layout of the input, the other operands, the reduction.

    Raises:
        ValueError: If input and target have different shapes, or a weight has more dims than the input.
    """
    *layouts, names, ones, reduction, same_shape = cache_values
    main, target, *weights = layouts
    if not same_shape:
        raise ValueError("input and target must have one shape: expand the smaller one before")
    others = [_Operand("target", target, tuple(range(main.ndim)))]
    for name, layout, singles in zip(names, weights, ones, strict=True):
        missing = main.ndim - layout.ndim
        if missing < 0:
            raise ValueError(
                f"{name} must broadcast against the input: it has {layout.ndim} dims, not {main.ndim}"
            )
        meets = tuple(None if single else own + missing for own, single in enumerate(singles))
        others.append(_Operand(name, layout, meets))
    return main, others, reduction


def _shares(main: Layout, reduction: str) -> int:
    """By what a local loss is divided so that the ranks' add up to the whole one."""
    if reduction == "mean":
        return prod(main.shard_counts)
    return main.shard_counts[0] if reduction == "batchmean" and main.ndim else 1
