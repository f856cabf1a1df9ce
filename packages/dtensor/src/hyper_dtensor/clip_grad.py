"""``clip_grad_norm_`` over parameters that are plain, DTensors, or a mixture of both."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeAlias

from hyper_dtensor.collectives import all_reduce
from hyper_dtensor.dtensor import DTensor
from hyper_dtensor.gradients import axes_of
from hyper_dtensor.platform import get_platform
from hyper_layout import DeviceMesh, Replicate

__all__ = ["clip_grad_norm_"]

Tensor: TypeAlias = Any


def clip_grad_norm_(
    parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> Tensor:
    """Scale the gradients so that their total norm is at most ``max_norm``; the single-device result.

    Args:
        parameters: A parameter or several, plain or DTensor, on any meshes. Plain ones must be the same
            on all ranks.
        max_norm: The largest norm allowed.
        norm_type: The p of the p-norm, at least 1; ``inf`` is the largest absolute value.
        error_if_nonfinite: Raise if the norm is NaN or infinite.

    Returns:
        The total norm before clipping: a plain 0-d tensor, the same on every rank. One small all_reduce
        per mesh and set of sharded axes is sent.

    Raises:
        RuntimeError: If the norm is not finite and ``error_if_nonfinite`` is set.
    """
    platform = get_platform()
    ops = platform.ops
    single = platform.is_tensor(parameters) or isinstance(parameters, DTensor)
    gradients = [p.grad for p in ([parameters] if single else list(parameters)) if p.grad is not None]
    if not gradients:
        return platform.create("zeros", (), "cpu", dtype=None)
    is_max = math.isinf(norm_type)

    # The p-th powers (or maxima) of all gradients that are cut by the same axes are sent as one.
    parts: dict[tuple[DeviceMesh | None, int], list[Tensor]] = {}
    for gradient in gradients:
        key: tuple[DeviceMesh | None, int] = (None, 0)
        local = gradient
        if isinstance(gradient, DTensor):
            if gradient.layout.partial_axes:
                gradient = gradient.redistribute(
                    [p if p.is_shard() else Replicate() for p in gradient.placements]
                )
            key = (gradient.device_mesh, gradient.layout.shard_axes)
            local = gradient._local
        magnitude = ops.abs(platform.detach(local))
        parts.setdefault(key, []).append(ops.amax(magnitude) if is_max else ops.sum(magnitude**norm_type))
    totals = []
    for (mesh, axes), values in parts.items():
        total = _combine(values, is_max)
        if mesh is not None:
            for axis in axes_of(axes):
                total = all_reduce(total, mesh, axis, "max" if is_max else "sum")
        totals.append(total)
    norm = _combine(totals, is_max)
    norm = norm if is_max else norm ** (1.0 / norm_type)
    if error_if_nonfinite and not math.isfinite(float(norm)):
        raise RuntimeError(
            f"the total norm of order {norm_type} of the gradients is not finite, so it cannot be clipped; "
            "pass error_if_nonfinite=False to scale by it all the same"
        )
    factor = ops.clamp(max_norm / (norm + 1e-6), max=1.0)
    for gradient in gradients:
        platform.scale_(gradient._local if isinstance(gradient, DTensor) else gradient, factor)
    return norm


def _combine(values: Iterable[Tensor], is_max: bool) -> Tensor:
    stacked = get_platform().ops.stack(list(values))
    return get_platform().ops.amax(stacked) if is_max else get_platform().ops.sum(stacked)
