"""Gradients of replicated parameters that are reduced at the end of the backward, many in one collective.

A parameter enters a varying op through a view whose gradient is a summand (`gradients.varying_view`). Instead
of an all-reduce of its own in the graph, a platform may collect the summands of one backward and hand them to
`reduce_together`. The core decides what is collected, and in which order it is reduced (ADR 0007).
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from hyper_dtensor.collectives import reduce_sum
from hyper_dtensor.comm_debug import Cause, cause, in_backward
from hyper_dtensor.platform import get_platform
from hyper_layout import DeviceMesh

if TYPE_CHECKING:
    from hyper_dtensor.dtensor import DTensor

__all__ = ["Summand", "new_summand", "reduce_together"]

Tensor: TypeAlias = Any

VARIABLE: Final = "HYPER_PARALLEL_COALESCE"

_numbers = itertools.count()


class Summand(NamedTuple):
    """What is known of a gradient that waits for its reduction.

    Attributes:
        number: Place in the order of all reductions. Ranks make their views in the same order (rule 8), so
            it orders the gradients of one backward alike on each of them.
        mesh: The mesh of the parameter.
        axes: Bit mask of the mesh axes over which the gradient is a summand.
        cause: Whom the communication is attributed to.
    """

    number: int
    mesh: DeviceMesh
    axes: int
    cause: Cause


def enabled() -> bool:
    """Whether ``HYPER_PARALLEL_COALESCE`` allows it: unset or anything but ``0``, the same on all ranks."""
    return os.environ.get(VARIABLE, "1") not in ("", "0")


def new_summand(t: DTensor, axes: int) -> Summand | None:
    """What the gradient of a new view of ``t`` on ``axes`` will be; ``None`` where it is switched off."""
    return Summand(next(_numbers), t._spec.layout.mesh, axes, cause()) if enabled() else None


def reduce_together(summands: Sequence[Summand], gradients: list[Tensor]) -> None:
    """Replace gradients by their sums: one all-reduce per group of ranks and dtype. Differentiable.

    Args:
        summands: What the gradients are, in ascending order of their numbers; on every rank the same.
        gradients: The local gradients, which are replaced one by one, so that those that nobody else holds
            are freed early. Sums that travelled together are views of one buffer.
    """
    # Groups come in the order of their first use: by number, then by mesh axis.
    buckets: dict[tuple[Any, ...], list[tuple[int, DeviceMesh, int]]] = {}
    for index, (summand, gradient) in enumerate(zip(summands, gradients, strict=True)):
        mesh = summand.mesh
        for axis, size in enumerate(mesh.mesh_shape):
            if summand.axes >> axis & 1 and size > 1:
                group = mesh.device_type, mesh.ranks_along(axis), gradient.dtype
                buckets.setdefault(group, []).append((index, mesh, axis))
    for members in buckets.values():
        _, mesh, axis = members[0]
        indices = [index for index, _, _ in members]
        causes = [summands[index].cause for index in indices]
        reduce = in_backward(partial(reduce_sum, mesh=mesh, axis=axis), causes)
        if len(indices) == 1:
            gradients[indices[0]] = reduce(gradients[indices[0]])
        else:
            _reduce_as_one(reduce, gradients, indices)


def _reduce_as_one(
    reduce: Callable[[Tensor], Tensor], gradients: list[Tensor], indices: Sequence[int]
) -> None:
    ops = get_platform().ops
    shapes = [gradients[index].shape for index in indices]
    flat = ops.cat([_reshaped(gradients[index], (-1,)) for index in indices])
    for index in indices:
        gradients[index] = None
    flat = reduce(flat)
    start = 0
    for index, shape in zip(indices, shapes, strict=True):
        length = math.prod(shape)
        gradients[index] = _reshaped(ops.narrow(flat, 0, start, length), shape)
        start += length


def _reshaped(x: Tensor, shape: Sequence[int]) -> Tensor:
    """``x`` in ``shape``; most parameters that are whole have one dim, as the buffer does."""
    return x if len(x.shape) == len(shape) == 1 else get_platform().ops.reshape(x, shape)
