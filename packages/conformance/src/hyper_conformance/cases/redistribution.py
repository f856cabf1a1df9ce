"""Redistribution from every layout to every other: values and gradients (design section 3, rules 4, 5)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from hyper_conformance.case import case
from hyper_conformance.here import NUMPY, Here
from hyper_dtensor import DTensor, Spec, wrap
from hyper_dtensor.gradients import gradient_spec
from hyper_layout import DeviceMesh, Layout, LayoutError, Partial, Placement, Replicate, Shard, StridedShard

Placements: TypeAlias = tuple[Placement, ...]

R, S0, S1, P, AVG = Replicate(), Shard(0), Shard(1), Partial(), Partial("avg")
ONE_AXIS: list[Placement] = [R, S0, S1, P, AVG]
TWO_AXES: list[Placements] = [
    *product(ONE_AXIS, ONE_AXIS),
    (StridedShard(0, 2), S0),
    (StridedShard(1, 2), S1),
]
SHAPE = (4, 8)


def _states(layouts: Sequence[Placements]) -> dict[str, tuple[Placements, int]]:
    """Every gradient state of the layouts: the placements and the mask of varying axes, by name."""
    found: dict[str, tuple[Placements, int]] = {}
    for placements in layouts:
        replicated = [axis for axis, placement in enumerate(placements) if placement is R]
        for varying in product((0, 1), repeat=len(replicated)):
            mask = sum(bit << axis for axis, bit in zip(replicated, varying, strict=True))
            name = ",".join(p.notation + "v" * (mask >> a & 1) for a, p in enumerate(placements))
            found[name.replace(" ", "")] = (placements, mask)
    return found


def _check(
    here: Here, mesh: DeviceMesh, spec: Spec, targets: Sequence[Placements], second: bool = False
) -> None:
    """Values and gradients of the redistributions of one tensor.

    One gradient of all of them together, each with weights of its own: a mistake in any shows. By turns the
    consumer of the result uses it alike on all ranks, or each rank in its own way (rule 4).

    Args:
        here: The rank.
        mesh: The mesh.
        spec: Layout and gradient state of the tensor.
        targets: The layouts to redistribute to.
        second: Whether the derivative of the gradient is checked too.
    """
    f = here.platform.ops
    whole_ = (R,) * mesh.ndim
    value, direction = here.values(*SHAPE), here.values(*SHAPE, seed=1)
    share = here.share_along(mesh.size(), mesh.rank_list.index(here.rank))
    weights = [here.values(*SHAPE, seed=10 + number) for number in range(len(targets))]
    tensors = [here.tensor(w * (share if number % 2 else 1.0)) for number, w in enumerate(weights)]

    def loss(local: Any) -> Any:
        x = wrap(local, spec, SHAPE)
        total = None
        for number, (target, weight) in enumerate(zip(targets, tensors, strict=True)):
            layout = Layout(mesh, target, len(SHAPE))
            what = f"{spec} -> {layout.notation}"
            y = x.redistribute(target)
            assert y.layout is layout, what
            here.equal(tuple(y.shape), SHAPE, what)
            here.equal(tuple(y._local.shape), layout.local_shape(SHAPE), what)
            if not layout.partial_axes:
                here.close(y._local, value[layout.local_slice(SHAPE)], what)
            everywhere = y.redistribute(whole_)
            grads = (P,) * mesh.ndim if number % 2 else None
            used = everywhere.to_local(grad_placements=grads)
            here.close(used, value, what)
            term = f.sum(used * used * weight)
            total = term if total is None else total + term
        return total

    def along(local: Any) -> Any:
        _, (gradient,) = here.harness.gradients(loss, local)
        shown = wrap(gradient, gradient_spec(spec), SHAPE)
        return f.sum(shown.full_tensor() * here.tensor(direction))

    x = here.tensor(here.part(value, spec.layout))
    _, (gradient,) = here.harness.gradients(along if second else loss, x)
    expected = 2 * (direction if second else value) * sum(weights)
    names = ", ".join(Layout(mesh, target, len(SHAPE)).notation for target in targets)
    here.close(here.whole_gradient(spec, SHAPE, gradient), expected, f"gradient of {spec} -> {names}")


def _source(mesh: DeviceMesh, placements: Placements, varying: int) -> Spec:
    return Spec.of(Layout(mesh, placements, len(SHAPE)), varying)


@case(2, over=_states([(placement,) for placement in ONE_AXIS]))
def on_one_axis(here: Here, placements: Placements, varying: int) -> None:
    """To every placement: the values of the whole, and its gradient."""
    mesh = here.line()
    for target in ONE_AXIS:
        # For a consumer alike on all ranks, and for one by rank.
        _check(here, mesh, _source(mesh, placements, varying), [(target,), (target,)])


@case(2, ranks=(4,), over=_states(TWO_AXES))
def on_two_axes(here: Here, placements: Placements, varying: int) -> None:
    """To every layout of a 2 x 2 mesh: the values of the whole, and its gradient."""
    mesh = here.square()
    # Turned by one for every other source, so that each target meets both kinds of consumer.
    turn = TWO_AXES.index(placements) % 2
    targets = [*TWO_AXES[turn:], *TWO_AXES[:turn]]
    # A varying tensor differs in the first step of a plan only.
    _check(here, mesh, _source(mesh, placements, varying), targets[::5] if varying else targets)


@case(2, over=_states([(placement,) for placement in ONE_AXIS]))
def derivatives_of_gradients(here: Here, placements: Placements, varying: int) -> None:
    """Each backward is the differentiable partner of its forward."""
    mesh = here.line()
    for target in ONE_AXIS:
        _check(here, mesh, _source(mesh, placements, varying), [(target,), (target,)], second=True)


@case(2, over={op: (Partial(op),) for op in ("max", "min", "prod")})
def reductions_without_gradient(here: Here, partial: Placement) -> None:
    """Partial(max, min, prod): right values, from and to every placement."""
    mesh, value = here.line(), here.values(*SHAPE)
    for target in (R, S0, S1):
        here.close(here.distributed(value, mesh, [partial]).redistribute([target]), value, f"to {target}")
        here.close(here.distributed(value, mesh, [target]).redistribute([partial]), value, f"from {target}")


@case(2, ranks=(4,))
def reductions_without_gradient_on_two_axes(here: Here) -> None:
    """Partial(max, min, prod) beside every other placement."""
    mesh, value = here.square(), here.values(*SHAPE)
    for op in ("max", "min", "prod"):
        for other in (R, S0, S1, Partial(op)):
            for placements in ((Partial(op), other), (other, Partial(op))):
                t = here.distributed(value, mesh, placements)
                here.close(t, value, str(placements))
                here.close(t.redistribute((S1, S0)), value, str(placements))


@case(2, over={op: (Partial(op),) for op in ("max", "min", "prod")})
def what_carries_no_gradient_is_refused(here: Here, partial: Placement) -> None:
    """Partial(max, min, prod) of a tensor that needs a gradient is refused by every rank."""
    mesh = here.line()

    def loss(local: Any) -> Any:
        t = DTensor.from_local(local, mesh, [partial])
        for call in (lambda: t.redistribute([R]), t.to_local, t.full_tensor):
            here.refused(call, LayoutError, says="carries no gradient")
        return here.platform.ops.sum(local)

    here.harness.gradients(loss, here.tensor(here.values(*SHAPE)))


@case(2, dtypes=("f32", "f16", "bf16", "i64", "i32", "i8", "b"))
def of_every_dtype(here: Here, dtype: str) -> None:
    """Shards are moved unchanged, whatever they hold."""
    mesh = here.line()
    value = (np.abs(here.values(4, 8)) * 4).astype(np.int64).astype(NUMPY[dtype])
    for source, target in product((R, S0, S1), (R, S0, S1)):
        layout = Layout(mesh, (source,), 2)
        local = here.harness.tensor(np.ascontiguousarray(value[layout.local_slice(value.shape)]), dtype)
        t = DTensor.from_local(local, mesh, [source]).redistribute([target])
        here.equal(here.platform.dtype_name(t._local), dtype)
        here.identical(t, value, f"{source} -> {target}")


@case(2)
def a_tensor_that_is_there_stays(here: Here) -> None:
    """A redistribution to the same layout is the tensor itself; nothing is written by one to another."""
    mesh, value = here.line(), here.values(*SHAPE)
    for placement in ONE_AXIS:
        t = here.distributed(value, mesh, [placement])
        before = here.array(t._local).copy()
        assert t.redistribute([placement]) is t
        for target in ONE_AXIS:
            t.redistribute([target])
        here.identical(t._local, before, f"{placement}")


@case(2)
def what_does_not_fit_is_refused(here: Here) -> None:
    """Dims that do not divide, axes that are not there, another mesh: refused by every rank."""
    mesh = here.line()
    t = here.distributed(here.values(3, 8), mesh, [S1])
    here.refused(lambda: t.redistribute([S0]), ValueError, says="3")
    here.refused(lambda: t.redistribute([Shard(2)]), ValueError, says="out of range")
    here.refused(lambda: t.redistribute(dp=R), ValueError, says="dp")
