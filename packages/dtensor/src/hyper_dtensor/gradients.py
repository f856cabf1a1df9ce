"""Gradient states (design section 3): how a local tensor enters a computation so that gradients are exact.

An *invariant* Replicate tensor carries the whole gradient on every rank; a *varying* one a summand. This
module makes the views through which a local enters an op, remembers them, and knows what a gradient looks
like from outside. It holds no operator knowledge and no framework.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from hyper_dtensor.collectives import divide, enter_once, share, vary
from hyper_dtensor.platform import get_platform
from hyper_dtensor.spec import Spec
from hyper_layout import Layout, LayoutError, Partial, Replicate

if TYPE_CHECKING:
    from hyper_dtensor.dtensor import DTensor

__all__ = [
    "check_tracked",
    "derive_origin",
    "enter",
    "gradient_spec",
    "grads_of",
    "mark_untracked",
    "plain_views",
    "sensitivity",
    "set_origin",
    "untrack",
    "varying_view",
]

Tensor: TypeAlias = Any


def axes_of(mask: int) -> list[int]:
    """The mesh axes whose bit is set in ``mask``, in ascending order."""
    return [axis for axis in range(mask.bit_length()) if mask >> axis & 1]


def enter(t: DTensor, view_axes: int, once_axes: int) -> Tensor:
    """The local of ``t`` as an operand of an op (rule 2).

    Args:
        t: The operand.
        view_axes: Axes on which the op varies and ``t`` is invariant: it enters through its varying view.
        once_axes: Axes on which it is added once into a Partial output: it enters as its value on
            coordinate 0 and zeros elsewhere, which costs no backward collective (rule 5).
    """
    local = varying_view(t, view_axes) if view_axes else t._local
    if not once_axes:
        return local
    for axis in axes_of(once_axes):
        local = enter_once(local, t._spec.layout.mesh, axis, varying=bool(t._spec.varying >> axis & 1))
    return local


def varying_view(t: DTensor, axes: int) -> Tensor:
    """The varying view of ``t`` on ``axes``: identity forward, all-reduce backward (rules 2 to 4).

    It is remembered, so that several consumers share one backward collective, under the axes and the
    gradient stamp of the local; neither made nor read where no gradient is tracked.
    The all-reduce of a parameter may wait for the end of the backward (`coalesced`).

    Args:
        t: An operand that is Replicate-invariant on ``axes``.
        axes: Bit mask of mesh axes; not empty.

    Returns:
        The view, or the bare local where it needs no gradient.
    """
    platform = get_platform()
    local = t._local
    stamp = platform.gradient_stamp(local)
    if stamp is None:
        return local
    mesh = t._spec.layout.mesh
    views = t._views
    if views is None:
        views = t._views = {}
    key = (mesh, axes)
    known = views.get(key)
    if known is not None and known[0] == stamp:
        return known[1]
    origin = t._origin
    if origin is not None:
        view = origin(local, axes)
        if view is not None:
            views[key] = (stamp, view, True)
            return view
        t._origin = None
    view = platform.deferred_view(t, axes)
    if view is None:
        view = local
        for axis in axes_of(axes):
            view = vary(view, mesh, axis)
    views[key] = (stamp, view, False)
    return view


def derive_origin(
    output: DTensor, source: DTensor, rerun: Callable[[Tensor], Any], index: int | None
) -> None:
    """Let the varying view of ``output`` be the op applied to the varying view of ``source`` (rule 4).

    Args:
        output: Result of a view op, floating cast or split.
        source: Its operand.
        rerun: Repeats the op on another local of ``source``.
        index: Which result of the op ``output`` is, for an op with several.
    """

    def view(_: Tensor, axes: int) -> Tensor:
        result = rerun(varying_view(source, axes & source._spec.invariant))
        return result if index is None else result[index]

    set_origin(output, source, view)


def set_origin(output: DTensor, source: DTensor, view: Callable[[Tensor, int], Tensor]) -> None:
    """Let the varying view of ``output`` be made from ``source``, as long as both are what they are now.

    Args:
        output: Made of ``source``.
        source: What the gradient of ``output`` goes to.
        view: The varying view of ``output`` on mesh axes (a bit mask), from its local.
    """
    stamp = get_platform().gradient_stamp
    source_local = source._local
    made = (stamp(source_local), stamp(output._local))

    def origin(local: Tensor, axes: int) -> Tensor | None:
        if source._local is not source_local or (stamp(source_local), stamp(local)) != made:
            return None
        return view(local, axes)

    output._origin = origin


def plain_views(t: DTensor) -> None:
    """From now on ``t`` has the plain varying view: after a hook or ``retain_grad`` (rule 4).

    Raises:
        RuntimeError: If a consumer has already entered through an aliasing view, whose gradient the
            hook would not see.
    """
    t._origin = None
    if t._views and any(from_origin for _, _, from_origin in t._views.values()):
        raise RuntimeError(
            "a hook or retain_grad() on this DTensor would miss the gradient of the ops that used it "
            "already; register it before the first use"
        )


def grads_of(t: DTensor) -> list[tuple[Tensor, int]]:
    """The locals whose gradients together are that of ``t``: ``(local, axes to all-reduce it over)``.

    The first is the local itself. A view made from an origin (rule 4) does not pass through it; what
    reaches such a view is a summand over its axes.
    """
    found: list[tuple[Tensor, int]] = [(t._local, 0)]
    for (_, axes), (_, view, from_origin) in (t._views or {}).items():
        if from_origin:
            found.append((view, axes))
    return found


def check_tracked(t: DTensor) -> None:
    """Refuse an untracked tensor that the framework believes to be part of a graph (rule 7).

    Raises:
        RuntimeError: Names the cures.
    """
    if t._has_foreign_history():
        raise RuntimeError(
            "this DTensor came out of a user's autograd function or a reentrant checkpoint that was given "
            "DTensors: its history is not tracked and its gradients would be lost. Use "
            "checkpoint(..., use_reentrant=False), or wrap the function in local_map so that it sees local "
            "tensors"
        )


def untrack(t: DTensor) -> None:
    """Mark a tensor that was made with gradients off from one that needs them (rule 7)."""
    t._untracked, t._meta = True, None


def mark_untracked(result: DTensor, *sources: DTensor) -> None:
    """`untrack` a result if gradients are off and a source needs them."""
    if not get_platform().grad_enabled() and any(t._untracked or t.requires_grad for t in sources):
        untrack(result)


def gradient_spec(spec: Spec) -> Spec:
    """How the gradient of a tensor of ``spec`` is shown: the table of design section 3.

    Gradients of the gradient (``create_graph``) flow through the same maps with the two directions swapped,
    so its own state is the dual one: the whole gradient of a Partial tensor is Replicate-*varying*, the
    summands of a varying one are Partial.
    """
    layout = spec.layout
    placements = list(layout.placements)
    varying = 0
    for axis, placement in enumerate(layout.placements):
        if spec.varying >> axis & 1 or placement.is_partial("avg"):
            placements[axis] = Partial("sum")
        elif placement.is_partial():
            placements[axis] = Replicate()
            varying |= 1 << axis
    return Spec.of(Layout(layout.mesh, tuple(placements), layout.ndim), varying)


def sensitivity(t: DTensor, gradient: Any) -> Tensor:
    """The local gradient with which the backward of ``t`` starts (rule 6).

    Args:
        t: The tensor to go backward from.
        gradient: ``None`` (ones; ``t`` is a scalar), a plain tensor of the global shape, which counts as
            Replicate, or a DTensor.

    Raises:
        RuntimeError: If ``gradient`` is ``None`` and ``t`` has more than one element.
        TypeError: If ``gradient`` is no tensor.
        ValueError: If the shapes differ.
    """
    platform = get_platform()
    spec = t._spec
    mesh = spec.layout.mesh
    if gradient is None:
        if t.numel() != 1:
            raise RuntimeError(
                f"backward() without a gradient needs a tensor of one element, got shape {tuple(t.shape)}: "
                "reduce it (for example .sum()) or pass gradient="
            )
        local = platform.ops.ones_like(platform.detach(t._local))
    else:
        if not hasattr(gradient, "_spec"):
            if not platform.is_tensor(gradient):
                raise TypeError(
                    f"gradient must be a tensor of {platform.framework} or a DTensor, got "
                    f"{type(gradient).__name__}"
                )
            everywhere = Layout(mesh, (Replicate(),) * mesh.ndim, len(gradient.shape))
            gradient = platform.wrap(gradient, Spec.of(everywhere), tuple(gradient.shape))
        if tuple(gradient.shape) != tuple(t.shape):
            raise ValueError(f"the gradient has shape {tuple(gradient.shape)}, the tensor {tuple(t.shape)}")
        whole = [Replicate() if p.is_partial() else p for p in spec.layout.placements]
        local = gradient.redistribute(whole)._local
    for axis, placement in enumerate(spec.layout.placements):
        if spec.varying >> axis & 1:
            local = divide(local, mesh, axis)
        elif placement.is_partial():
            local = vary(local, mesh, axis)
            if placement.is_partial("avg"):
                local = local / mesh.mesh_shape[axis]
    return local


def refuse_gradient(t: DTensor, what: str) -> None:
    """Refuse to move a Partial(max, min, prod) tensor that needs a gradient: it carries none.

    Raises:
        LayoutError: Always; says what to do.
    """
    raise LayoutError(
        f"{what}: {t._spec.layout.notation} carries no gradient on its Partial axes; reduce with the op "
        "itself (amax, amin, prod over the sharded dim give an invariant result when a gradient is needed) "
        "or detach() first"
    )


def to_local(t: DTensor, grad_placements: Any) -> Tensor:
    """The local of ``t`` for use outside of ops; ``grad_placements`` says what its gradient will be (rule 5).

    Per axis: invariant + Replicate identity, invariant + Partial all-reduce, varying + Replicate 1/n,
    varying + Partial identity, Partial + Replicate identity, Partial + Partial all-reduce; the default is
    Replicate. Shard takes the same Shard.

    Raises:
        ValueError: If the number of placements is wrong or one does not fit the tensor's.
    """
    platform = get_platform()
    local = t._local
    spec = t._spec
    layout = spec.layout
    mesh = layout.mesh
    wanted = check_grad_placements(layout, grad_placements)
    if not platform.tracks_gradient(local):
        return local
    if any(op in ("max", "min", "prod") for op in layout.partial):
        refuse_gradient(t, "to_local")
    enter_views, shares = 0, []
    for axis, (placement, grad) in enumerate(zip(layout.placements, wanted, strict=True)):
        varying = spec.varying >> axis & 1
        if placement.is_shard():
            continue
        if grad.is_partial() and not varying:
            enter_views |= 1 << axis
        if placement.is_partial("avg") or (varying and grad.is_replicate()):
            shares.append(axis)
    invariant_views = enter_views & spec.invariant
    if invariant_views:
        local = varying_view(t, invariant_views)
    for axis in axes_of(enter_views & ~invariant_views):
        local = vary(local, mesh, axis)
    for axis in shares:
        local = share(local, mesh, axis)
    return local


def check_grad_placements(layout: Layout, grad_placements: Any) -> list[Any]:
    """``grad_placements`` normalised: one per axis, Replicate by default, fitting the placements.

    Raises:
        ValueError: If the number is wrong, or a Shard axis is not given the same Shard, or another axis
            is given a Shard.
    """
    if grad_placements is None:
        return [p if p.is_shard() else Replicate() for p in layout.placements]
    wanted = list(Layout(layout.mesh, tuple(grad_placements), layout.ndim).placements)
    for name, placement, grad in zip(layout.mesh.mesh_dim_names, layout.placements, wanted, strict=True):
        fits = grad == placement if placement.is_shard() else grad.is_replicate() or grad.is_partial("sum")
        if not fits:
            raise ValueError(
                f"grad_placements: on mesh axis {name!r} the tensor is {placement} and its gradient cannot "
                f"be {grad}; use {placement if placement.is_shard() else 'Replicate() or Partial()'}"
            )
    return wanted
