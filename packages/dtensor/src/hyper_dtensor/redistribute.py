"""Redistribution: the steps of a plan, each as a differentiable map (design section 3, rules 4 and 5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from hyper_dtensor import collectives, gradients
from hyper_dtensor.copied import mark_copied
from hyper_dtensor.platform import Platform, get_platform
from hyper_dtensor.spec import Spec
from hyper_layout import DeviceMesh, Layout, Placement, Step, plan

if TYPE_CHECKING:
    from hyper_dtensor.dtensor import DTensor

__all__ = ["redistribute", "target_layout"]

Tensor: TypeAlias = Any


def target_layout(t: DTensor, placements: Any, args: Sequence[Any], by_axis: dict[str, Placement]) -> Layout:
    """The layout that the arguments of ``DTensor.redistribute`` ask for.

    Raises:
        ValueError: If they do not fit the tensor or each other.
    """
    mesh = t._spec.layout.mesh
    if not args and not by_axis and isinstance(placements, (tuple, list)):
        return Layout.from_placements(mesh, placements, len(t._shape))
    target: Any = by_axis.pop("device_mesh", mesh)
    if isinstance(placements, DeviceMesh):
        target, placements, args = placements, args[0] if args else None, args[1:]
    if target is not mesh:
        raise ValueError(f"redistribute cannot move a tensor to another mesh: it is on {mesh}, got {target}")
    if args:
        raise ValueError(
            "redistribute takes the placements as one list: x.redistribute([Shard(0), Replicate()])"
        )
    if (placements is None) == (not by_axis):
        raise ValueError(
            "redistribute takes either placements, one per mesh axis, or axis names: x.redistribute(tp=R)"
        )
    if placements is not None:
        return Layout(mesh, tuple(placements), t.ndim)
    layout = t.layout
    for name, placement in by_axis.items():
        layout = layout.replace(name, placement)
    return layout


def redistribute(t: DTensor, target: Layout) -> DTensor:
    """``t`` in the layout ``target`` of the same mesh and rank, by the cheapest plan."""
    layout = t._spec.layout
    if layout is target:
        return t
    platform = get_platform()
    for step in plan(layout, target, t._shape, platform.itemsize(t._local)):
        t = _STEPS[step.kind](platform, t, step)
    return t


def _wrap(platform: Platform, t: DTensor, local: Tensor, step: Step) -> DTensor:
    """The result of ``step``; only its own axis changes its gradient state, to invariant."""
    spec = t._spec
    out = platform.wrap(local, Spec.of(step.layout, spec.varying & ~(1 << step.axis)), t._shape)
    gradients.mark_untracked(out, t)
    return mark_copied(out, t) if spec.copied else out


def _dim(step: Step) -> int:
    assert step.dim is not None
    return step.dim


def _op(step: Step) -> str:
    assert step.reduce_op is not None
    return step.reduce_op


def _no_gradient(platform: Platform, t: DTensor, step: Step) -> bool:
    """Whether the source's reduction on the axis carries no gradient.

    Raises:
        LayoutError: If one is needed.
    """
    if step.reduce_op in ("max", "min", "prod"):
        if platform.tracks_gradient(t._local):
            gradients.refuse_gradient(t, "redistribute")
        return True
    return False


def _all_gather(platform: Platform, t: DTensor, step: Step) -> DTensor:
    mesh, axis, dim = step.layout.mesh, step.axis, _dim(step)
    source = t._local
    if not platform.tracks_gradient(source):
        return _wrap(platform, t, collectives.all_gather(source, mesh, axis, dim), step)
    out = _wrap(platform, t, collectives.gather_invariant(source, mesh, axis, dim), step)
    bit = 1 << axis

    def view(gathered: Tensor, axes: int) -> Tensor:
        others = axes & ~bit
        base = gradients.varying_view(t, others) if others else source
        gather = collectives.gather_varying if axes & bit else collectives.gather_invariant
        return gather(base, mesh, axis, dim, platform.detach(gathered))

    gradients.set_origin(out, t, view)
    return out


def _all_reduce(platform: Platform, t: DTensor, step: Step) -> DTensor:
    mesh, axis, op = step.layout.mesh, step.axis, _op(step)
    if _no_gradient(platform, t, step):
        return _wrap(platform, t, collectives.all_reduce(t._local, mesh, axis, op), step)
    local = collectives.reduce_sum(t._local, mesh, axis)
    return _wrap(platform, t, _average(local, op, mesh, axis), step)


def _reduce_scatter(platform: Platform, t: DTensor, step: Step) -> DTensor:
    mesh, axis, op, dim = step.layout.mesh, step.axis, _op(step), _dim(step)
    if _no_gradient(platform, t, step):
        return _wrap(platform, t, collectives.reduce_scatter(t._local, mesh, axis, dim, op), step)
    local = collectives.scatter_sum(t._local, mesh, axis, dim)
    return _wrap(platform, t, _average(local, op, mesh, axis), step)


def _average(local: Tensor, op: str, mesh: DeviceMesh, axis: int) -> Tensor:
    return local / mesh.mesh_shape[axis] if op == "avg" else local


def _all_to_all(platform: Platform, t: DTensor, step: Step) -> DTensor:
    assert step.to_dim is not None
    local = collectives.exchange(t._local, step.layout.mesh, step.axis, step.to_dim, _dim(step))
    return _wrap(platform, t, local, step)


def _slice(platform: Platform, t: DTensor, step: Step) -> DTensor:
    mesh, axis, dim = step.layout.mesh, step.axis, _dim(step)
    if not t._spec.varying >> axis & 1:
        return _wrap(platform, t, collectives.cut(t._local, mesh, axis, dim), step)
    # A varying tensor has the plain derivative, a zero-padded slice: nothing is sent (rule 5).
    ops = platform.ops
    length = t._local.shape[dim] // mesh.mesh_shape[axis]
    piece = ops.narrow(t._local, dim, mesh.get_local_rank(axis) * length, length)
    return _wrap(platform, t, ops.clone(piece), step)


def _to_partial(platform: Platform, t: DTensor, step: Step) -> DTensor:
    mesh, axis, op = step.layout.mesh, step.axis, _op(step)
    varying = bool(t._spec.varying >> axis & 1)
    ops = platform.ops
    if op == "sum":
        return _wrap(platform, t, collectives.enter_once(t._local, mesh, axis, varying=varying), step)
    if _no_gradient(platform, t, step):
        neutral = op == "prod" and mesh.get_local_rank(axis) != 0
        return _wrap(platform, t, ops.ones_like(t._local) if neutral else ops.clone(t._local), step)
    local = t._local if varying else collectives.vary(t._local, mesh, axis)
    return _wrap(platform, t, ops.clone(local), step)


_STEPS: dict[str, Callable[[Platform, DTensor, Step], DTensor]] = {
    "all_gather": _all_gather,
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "slice": _slice,
    "to_partial": _to_partial,
}
