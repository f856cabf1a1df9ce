"""``local_map``: run a function of local tensors on DTensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from hyper_dtensor import gradients
from hyper_dtensor.dtensor import DTensor, wrap
from hyper_dtensor.platform import get_platform
from hyper_dtensor.spec import Spec
from hyper_layout import DeviceMesh, Layout, Placement, Replicate

__all__ = ["local_map"]

Placements: TypeAlias = Sequence[Placement]


def local_map(
    fn: Callable[..., Any],
    out_placements: Any,
    in_placements: Sequence[Placements | None] | None = None,
    in_grad_placements: Sequence[Placements | None] | None = None,
    device_mesh: DeviceMesh | None = None,
    *,
    redistribute_inputs: bool = False,
) -> Callable[..., Any]:
    """``fn`` of local tensors, as a function of DTensors.

    Args:
        fn: Gets this rank's local tensor for every DTensor argument; other arguments pass through.
        out_placements: Placements of the output (one per mesh axis), or a tuple of such, one per output;
            ``None`` passes an output through.
        in_placements: What each positional argument must be laid out as; ``None`` (or a ``None`` entry)
            accepts any layout.
        in_grad_placements: What the gradient of each local argument is. By default it follows from the
            layouts as for any operator (design section 3, rule 2): on an axis where an input or output
            is Shard, Partial or varying, the gradient of a Replicate input is ``Partial()``.
        device_mesh: The mesh, where no argument is a DTensor.
        redistribute_inputs: Redistribute an argument whose layout is not in ``in_placements`` instead of
            raising.

    Returns:
        The function; its Replicate outputs are varying on the axes where it varies.

    Raises:
        ValueError: From the returned function, if an argument's layout does not fit or the number of
            outputs or placements is wrong.
    """

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        values = list(args)
        for i, value in enumerate(values):
            wanted = in_placements[i] if in_placements is not None and i < len(in_placements) else None
            if isinstance(value, DTensor) and wanted is not None:
                layout = Layout(value.device_mesh, tuple(wanted), value.ndim)
                if value.layout is not layout:
                    if not redistribute_inputs:
                        raise ValueError(
                            f"local_map: argument {i} is {value!r} but in_placements asks for "
                            f"{layout.notation}; redistribute it, or pass redistribute_inputs=True"
                        )
                    values[i] = value.redistribute(layout.placements)
        operands = [value for value in [*values, *kwargs.values()] if isinstance(value, DTensor)]
        mesh = operands[0].device_mesh if operands else device_mesh
        if mesh is None:
            raise ValueError("local_map: no argument is a DTensor, so it needs device_mesh=")
        if any(value.device_mesh is not mesh for value in operands):
            raise ValueError("local_map: the arguments are on different meshes")
        varies = _varying_axes(operands, out_placements)

        def local_of(value: Any, grads: Placements | None) -> Any:
            if not isinstance(value, DTensor):
                return value
            if grads is not None:
                return value.to_local(grad_placements=grads)
            value._check_use()
            return gradients.enter(value, varies & value._spec.invariant, 0)

        explicit = list(in_grad_placements or ())
        explicit += [None] * (len(values) - len(explicit))
        locals_ = [local_of(value, grads) for value, grads in zip(values, explicit, strict=True)]
        output = fn(*locals_, **{name: local_of(value, None) for name, value in kwargs.items()})
        result = _wrap_outputs(output, out_placements, mesh, varies)
        for item in result if isinstance(result, (list, tuple)) else (result,):
            if isinstance(item, DTensor):
                gradients.mark_untracked(item, *operands)
        return result

    return run


def _is_placements(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(entry, Placement) for entry in value)


def _each_output(out_placements: Any) -> list[Placements | None]:
    if out_placements is None or _is_placements(out_placements):
        return [out_placements]
    return list(out_placements)


def _varying_axes(operands: Sequence[DTensor], out_placements: Any) -> int:
    varies = 0
    for value in operands:
        layout = value.layout
        varies |= layout.shard_axes | layout.partial_axes | value._spec.varying
    for placements in _each_output(out_placements):
        for axis, placement in enumerate(placements or ()):
            if not placement.is_replicate():
                varies |= 1 << axis
    return varies


def _wrap_outputs(output: Any, out_placements: Any, mesh: DeviceMesh, varies: int) -> Any:
    platform = get_platform()
    several = isinstance(output, (list, tuple))
    outputs = list(output) if several else [output]
    wanted = _each_output(out_placements)
    if len(wanted) == 1 and len(outputs) > 1:
        wanted = wanted * len(outputs)
    if len(wanted) != len(outputs):
        raise ValueError(
            f"local_map: the function returned {len(outputs)} outputs, out_placements has {len(wanted)}"
        )
    wrapped = []
    for value, placements in zip(outputs, wanted, strict=True):
        if placements is None or not platform.is_tensor(value):
            wrapped.append(value)
            continue
        layout = Layout(mesh, tuple(placements) or (Replicate(),) * mesh.ndim, len(value.shape))
        wrapped.append(wrap(value, Spec.of(layout, varies & layout.replicate_axes)))
    return type(output)(wrapped) if several else wrapped[0]
