"""What nobody registered (design section 4).

A function written in Python runs its own body, so that its parts are dispatched. A built-in runs locally
where every operand is Replicate on every axis: a deterministic function of equal inputs is equal. Anything
else is refused, naming the nearest known operation and the ways to register one.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any

from hyper_dispatch.admission import admit_plain
from hyper_dispatch.call_form import flat
from hyper_dispatch.call_plan import find_places, replaced
from hyper_dispatch.outputs import rebuilt
from hyper_dispatch.refusal import describe, describe_operands, two_meshes
from hyper_dispatch.registry import ENTRY_POINT_GROUP, YAML_DIR_VARIABLE, op_names
from hyper_dtensor import DTensor, Platform, Spec, wrap
from hyper_dtensor.copied import check_current, mark_copied, refuse_write
from hyper_dtensor.gradients import check_tracked, enter
from hyper_layout import DeviceMesh, Layout, Replicate


def run_unregistered(
    platform: Platform,
    op_name: str,
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Run an operation that has no strategy, if that is sure to be right.

    Raises:
        NotImplementedError: If it is not; names the operation, the nearest known one and what to do.
        LayoutError: For plain tensors among the operands, or operands on different meshes.
    """
    body = platform.python_body(func)
    if body is not None:
        return body(*args, **kwargs)
    meshes = [value.device_mesh for value in flat(args, kwargs) if isinstance(value, DTensor)]
    args, kwargs = admit_plain(platform, None, op_name, meshes[0] if meshes else None, args, kwargs)
    operands = [value for value in flat(args, kwargs) if isinstance(value, DTensor)]
    described = describe_operands(platform, None, args, kwargs)
    if any(mesh is not meshes[0] for mesh in meshes):
        raise two_meshes(op_name, described)
    shown = "      ".join(map(describe, described))
    if not all(operand.layout.is_replicated for operand in operands):
        raise _refusal(op_name, "and its operands are not Replicate on every mesh axis", shown)
    for operand in operands:
        if operand._untracked and platform.grad_enabled():
            check_tracked(operand)
    if platform.is_random(func):
        raise _refusal(op_name, "and it draws random numbers", shown)
    return _run_replicated(platform, op_name, func, operands, args, kwargs)


def _run_replicated(
    platform: Platform,
    op_name: str,
    func: Callable[..., Any],
    operands: Sequence[DTensor],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Run on locals; the result varies where an operand varies, and the other operands enter as views."""
    mesh = operands[0].device_mesh
    varies = 0
    for operand in operands:
        varies |= operand._spec.varying
    entered = [enter(operand, varies & operand._spec.invariant, 0) for operand in operands]
    for operand in operands:
        check_current(operand)
    if op_name.endswith("_") and operands[0]._spec.copied:
        refuse_write(operands[0], op_name)
    if op_name.endswith("_") and entered[0] is not operands[0]._local:
        why = "and writing in place would change the gradient state of its target"
        raise _refusal(op_name, why, "use the out-of-place form")
    changes = [
        (place, local)
        for place, local in zip(find_places(operands, args, kwargs), entered, strict=True)
        if place is not None
    ]
    local_args, local_kwargs = replaced(args, kwargs, changes)
    return _wrap(func(*local_args, **local_kwargs), platform, mesh, varies, operands)


def _wrap(output: Any, platform: Platform, mesh: DeviceMesh, varies: int, operands: Sequence[DTensor]) -> Any:
    if isinstance(output, (list, tuple)):
        return rebuilt(output, [_wrap(item, platform, mesh, varies, operands) for item in output])
    if not platform.is_tensor(output):
        return output
    for operand in operands:
        if output is operand._local:
            return operand  # written in place, or handed through
    layout = Layout(mesh, (Replicate(),) * mesh.ndim, len(output.shape))
    result = wrap(output, Spec.of(layout, varies))
    copied = operands[0]._spec.copied and platform.shares_memory(output, operands[0]._local)
    return mark_copied(result, operands[0]) if copied else result


def _refusal(op_name: str, why: str, operands: str) -> NotImplementedError:
    near = difflib.get_close_matches(op_name, op_names(), n=1, cutoff=0.75)  # 'conj' is not near to 'conv1d'
    nearest = f"; the nearest known operation is {near[0]!r}" if near else ""
    return NotImplementedError(
        f"no distributed rule is registered for {op_name!r}, {why}{nearest}\n"
        f"  {operands}\n"
        "  to register one: hyper_dispatch.register_op(name, strategy), a YAML file in a directory of "
        f"{YAML_DIR_VARIABLE}, or an entry point of group {ENTRY_POINT_GROUP!r}\n"
        "  to go without:   x.redistribute([Replicate()] * mesh.ndim), or local_map for a function of locals"
    )
