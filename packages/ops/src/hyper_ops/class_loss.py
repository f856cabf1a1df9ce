"""cross_entropy and nll_loss.

Rule on one mesh axis, for input [N, C, ...], target [N, ...] (or of the input's shape: probabilities) and
class weights [C]; `b` is any dim but that of the classes::

    S(b) S(b) R -> S(b)      reduction "none"        (a Replicate target is cut to this rank's part)
    S(b) S(b) R -> P(sum)    reduction "sum", "mean"
    S(c) R    R -> I         vocabulary-parallel     (also with probabilities or weights split by class)
    P    R    R -> P         nll_loss, which is linear in its input

The mean is the local sum over the weight of all targets that count, added up over every axis that splits the
batch together: never a mean of means. Over a sharded class dim the largest logit, the sum of exponentials
and the target's logit are all-reduced; nothing is gathered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from hyper_dispatch import INVARIANT, Row, RowsOp, register_strategy
from hyper_dtensor import get_platform
from hyper_layout import Layout, LayoutError, Partial, Replicate, Shard
from hyper_ops.pieces import (
    axes_of_dims,
    check_indices,
    check_inexact,
    cut,
    position,
    reduce_extreme,
    sum_over,
    total_over,
    widened,
)
from hyper_ops.reductions_by_name import check_reduction, reduction_of

Tensor = Any
_R = Replicate()


@register_strategy("class_loss")
class ClassLoss(RowsOp):
    """`cross_entropy(input, target, weight, ..., ignore_index, reduction, label_smoothing)`, `nll_loss`.

    Args:
        op_name: The operation.
        logits: Whether the input is logits (cross_entropy) or log-probabilities (nll_loss).
    """

    def __init__(self, op_name: str, logits: bool) -> None:
        super().__init__(op_name)
        self.logits = logits

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bound = self.bind(args, kwargs)
        reduction = reduction_of(bound)
        operands = [bound[name] for name in ("input", "target", "weight")]
        check_inexact(self.op_name, operands[0].to_local())
        _check_shapes(self.op_name, tuple(operands[0].shape), tuple(operands[1].shape))
        options = {"ignore_index": bound["ignore_index"], "reduction": reduction}
        if self.logits:
            options["label_smoothing"] = bound["label_smoothing"]
        locals_ = tuple(None if operand is None else operand.to_local() for operand in operands)
        layouts = [None if operand is None else operand._layout for operand in operands]
        weighted = locals_[2] is not None and get_platform().tracks_gradient(locals_[2])
        return locals_, options, [*layouts, reduction, weighted]

    def rows(self, cache_values: Sequence[Any]) -> Sequence[Row]:
        sides = _Sides(cache_values)
        check_reduction(sides.reduction)
        if cache_values[4] and sides.class_axes:
            raise LayoutError(
                f"{self.op_name} over a sharded class dim has no gradient for class weights: detach() them"
            )
        weights = () if sides.weight is None else (_R,)
        rows = []
        for dim in range(sides.input.ndim):
            if dim == sides.classes:
                continue
            of_target = sides.target_dim(dim)
            after = Shard(sides.output_dim(dim)) if sides.reduction == "none" else Partial("sum")
            rows += [Row((Shard(dim), target, *weights), (after,)) for target in (Shard(of_target), _R)]
        by_class = Shard(sides.classes)
        for target in (by_class, _R) if sides.probabilities else (_R,):
            for weight in ((), (_R,), (Shard(0),)):
                if bool(weight) == bool(weights):
                    rows.append(Row((by_class, target, *weight), (INVARIANT,)))
        if not self.logits:
            rows += [Row((Partial(op), _R, *weights), (Partial(op),)) for op in ("sum", "avg")]
        return rows

    def output_ndims(self, cache_values: Sequence[Any]) -> Sequence[int]:
        sides = _Sides(cache_values)
        return (sides.input.ndim - 1 if sides.reduction == "none" else 0,)

    def get_expand_impl(
        self, func: Any, infer_result: Any, cache_values: Sequence[Any]
    ) -> Callable[..., Any] | None:
        sides = _Sides(cache_values)
        if sides.class_axes:
            return _over_all_classes(sides, self.logits)
        if sides.target_cuts or (sides.reduction == "mean" and sides.batch_axes):
            return _over_part_of_batch(func, sides)
        return None


def _check_shapes(op_name: str, shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    """Refuse targets of another batch, which the sums over a sharded class dim would broadcast or cut.

    Raises:
        ValueError: Names the shapes. Ranks that do not fit are refused by the rule.
    """
    batch = shape[:1] + shape[2:] if len(shape) > 1 else ()
    if target not in (shape, batch) and len(target) in (len(shape), len(batch)):
        raise ValueError(
            f"{op_name}: the target of an input of shape {shape} has the shape {batch} (class indices) or "
            f"{shape} (probabilities), got {target}"
        )


class _Sides:
    """Who has which dim, and which axes split it. Read from the cache values."""

    def __init__(self, cache_values: Sequence[Any]) -> None:
        self.input: Layout = cache_values[0]
        self.target: Layout = cache_values[1]
        self.weight: Layout | None = cache_values[2]
        self.reduction: str = cache_values[3]
        self.mesh = self.input.mesh
        ndim = self.input.ndim
        self.classes = 1 if ndim > 1 else 0
        self.probabilities = self.target.ndim == ndim
        if not ndim or not (self.probabilities or self.target.ndim == ndim - 1):
            raise ValueError(
                f"the input of a class loss has rank 1 or more, and the target that rank (probabilities) or "
                f"one less (class indices); got {ndim} and {self.target.ndim}"
            )
        batch = [dim for dim in range(ndim) if dim != self.classes]
        self.class_axes = self.input.dim_axes[self.classes]
        self.class_blocks = self.input.shard_counts[self.classes]
        self.batch_axes = axes_of_dims(self.input, batch)
        self.batch_blocks = prod(self.input.mesh_shape[axis] for axis in self.batch_axes)
        dims = range(ndim) if self.probabilities else batch
        of_input = {self.target_dim(dim): self.input.dim_axes[dim] for dim in dims}
        self.target_cuts = [
            (dim, axes) for dim, axes in of_input.items() if axes and not self.target.dim_axes[dim]
        ]
        self.target_axes = [axis for axes in self.target.dim_axes for axis in axes]

    def output_dim(self, dim: int) -> int:
        """Where a batch dim of the input is in the output."""
        return dim - (dim > self.classes)

    def target_dim(self, dim: int) -> int:
        """Where a dim of the input is in the target."""
        return dim if self.probabilities else self.output_dim(dim)

    def cut_target(self, target: Tensor) -> Tensor:
        """This rank's part of a target that is whole where the input is split."""
        for dim, axes in self.target_cuts:
            target = cut(target, dim, self.mesh, axes)
        return target


def _over_part_of_batch(func: Callable[..., Tensor], sides: _Sides) -> Callable[..., Tensor]:
    """Every rank has all classes of a part of the batch."""
    reduction = sides.reduction

    def impl(x: Tensor, target: Tensor, weight: Tensor | None = None, **options: Any) -> Tensor:
        target = sides.cut_target(target)
        if reduction != "mean":
            return func(x, target, weight, **options)
        wide = widened(x)
        weight = weight if weight is None else widened(weight)
        total = func(wide, target, weight, **{**options, "reduction": "sum"})
        if sides.probabilities:
            count: Any = _samples(x, sides)
        else:
            count = _counted_weight(
                target, _weight_of(target, weight, options["ignore_index"]), options, sides
            )
        return (total / count).to(x.dtype)

    return impl


def _over_all_classes(sides: _Sides, logits: bool) -> Callable[..., Tensor]:
    """Every rank has some of the classes, of all or a part of the batch."""
    reduction = sides.reduction

    def impl(x: Tensor, target: Tensor, weight: Tensor | None = None, **options: Any) -> Tensor:
        ops = get_platform().ops
        if not sides.probabilities:
            # Before it is cut, so that every rank sees what every other sees.
            _check_range(target, x.shape[sides.classes] * sides.class_blocks, options["ignore_index"], sides)
        target = sides.cut_target(target)
        scores, normaliser = _normalised(widened(x), sides) if logits else (x, None)
        side = _ClassSide(sides, scores, normaliser, None if weight is None else widened(weight))
        smoothing = options.get("label_smoothing", 0.0)
        if sides.probabilities:
            each = side.loss_of_probabilities(target, smoothing)
            count: Any = _samples(x, sides)
        else:
            each, weight_of_target = side.loss_of_indices(target, smoothing, options["ignore_index"])
            count = None
        if reduction == "none":
            return each.to(x.dtype)
        total = ops.sum(each)
        if reduction == "mean":
            if count is None:
                count = _counted_weight(target, weight_of_target, options, sides)
            total = total / count
        return total.to(x.dtype)

    return impl


def _normalised(x: Tensor, sides: _Sides) -> tuple[Tensor, Tensor]:
    """Logits less the largest, and the logarithm of the sum of their exponentials over all classes.

    The loss does not depend on what is subtracted, so that needs no gradient.
    """
    platform = get_platform()
    ops = platform.ops
    largest = ops.amax(platform.detach(x), sides.classes, True)
    shifted = x - reduce_extreme(largest, sides.mesh, sides.class_axes, "max")
    total = sum_over(ops.sum(ops.exp(shifted), sides.classes), sides.mesh, sides.class_axes)
    return shifted, ops.log(total)


@dataclass
class _ClassSide:
    """This rank's classes: `scores - normaliser` are log-probabilities (without one, `scores` are)."""

    sides: _Sides
    scores: Tensor
    normaliser: Tensor | None
    weight: Tensor | None

    def loss_of_indices(
        self, target: Tensor, smoothing: float, ignore_index: int
    ) -> tuple[Tensor, Tensor | None]:
        """The loss of each target, zero for ignored ones, and the targets' weights."""
        ops, sides = get_platform().ops, self.sides
        ignored = target == ignore_index
        here = self.scores.shape[sides.classes]
        number = here * sides.class_blocks
        local = target - position(sides.mesh, sides.class_axes) * here
        owned = (local >= 0) & (local < here)
        local = ops.where(owned, local, ops.zeros_like(local))
        score = ops.squeeze(
            ops.gather(self.scores, sides.classes, ops.unsqueeze(local, sides.classes)), sides.classes
        )
        each = -self._of_owner(score, owned)
        if self.normaliser is not None:
            each = each + self.normaliser
        weight_of_target = self._weight_of_target(target, local, owned, ignored)
        if weight_of_target is not None:
            each = each * weight_of_target
        if smoothing > 0:
            each = (1 - smoothing) * each + (smoothing / number) * self._weighted(None)
        return ops.where(ignored, ops.zeros_like(each), each), weight_of_target

    def loss_of_probabilities(self, target: Tensor, smoothing: float) -> Tensor:
        """The loss of each target that gives a probability for every class."""
        sides = self.sides
        if smoothing > 0:
            number = self.scores.shape[sides.classes] * sides.class_blocks
            target = target * (1 - smoothing) + smoothing / number
        return self._weighted(target)

    def _weighted(self, factor: Tensor | None) -> Tensor:
        """Minus the sum over all classes of factor times class weight times log-probability."""
        ops, sides = get_platform().ops, self.sides
        if self.weight is not None:
            shape = [1] * len(self.scores.shape)
            shape[sides.classes] = -1
            weight = ops.reshape(self._own_weights(), shape)
            factor = weight if factor is None else factor * weight
        summands = self.scores if factor is None else self.scores * factor
        loss = -self._sum(ops.sum(summands, sides.classes))
        if self.normaliser is None:
            return loss
        mass = ops.ones_like(self.scores) if factor is None else factor + ops.zeros_like(self.scores)
        return loss + self.normaliser * self._sum(ops.sum(mass, sides.classes))

    def _own_weights(self) -> Tensor:
        layout = self.sides.weight
        assert layout is not None
        return (
            self.weight if layout.dim_axes[0] else cut(self.weight, 0, self.sides.mesh, self.sides.class_axes)
        )

    def _weight_of_target(
        self, target: Tensor, local: Tensor, owned: Tensor, ignored: Tensor
    ) -> Tensor | None:
        layout = self.sides.weight
        if layout is None or self.weight is None:
            return None
        if layout.dim_axes[0]:
            return self._of_owner(self.weight[local], owned)
        ops = get_platform().ops
        return self.weight[ops.where(ignored, ops.zeros_like(target), target)]

    def _of_owner(self, value: Tensor, owned: Tensor) -> Tensor:
        """The value of the rank that owns the target's class."""
        ops = get_platform().ops
        return self._sum(ops.where(owned, value, ops.zeros_like(value)))

    def _sum(self, summands: Tensor) -> Tensor:
        return sum_over(summands, self.sides.mesh, self.sides.class_axes)


def _check_range(target: Tensor, number: int, ignore_index: int, sides: _Sides) -> None:
    """Refuse a target that no rank has the class of; its loss would be a finite number."""
    bad = (target != ignore_index) & ((target < 0) | (target >= number))
    message = f"a target is out of range of {number} classes and is not ignore_index ({ignore_index})"
    check_indices(bad, sides.mesh, sides.target_axes, message)


def _weight_of(target: Tensor, weight: Tensor | None, ignore_index: int) -> Tensor | None:
    if weight is None:
        return None
    ops = get_platform().ops
    return weight[ops.where(target == ignore_index, ops.zeros_like(target), target)]


def _counted_weight(
    target: Tensor, weight_of_target: Tensor | None, options: dict[str, Any], sides: _Sides
) -> Tensor:
    """The weight of all targets that count, over every axis that splits the batch."""
    ops = get_platform().ops
    counts = target != options["ignore_index"]
    if weight_of_target is not None:
        counts = ops.where(counts, weight_of_target, ops.zeros_like(weight_of_target))
    return total_over(ops.sum(counts), sides.mesh, sides.batch_axes)


def _samples(x: Tensor, sides: _Sides) -> float:
    """Number of targets in the whole batch."""
    here: int = x.shape[sides.classes]
    return float(prod(x.shape) * sides.batch_blocks / here)
