"""Checks between ranks: the debug switch (design section 3), and values that must be equal."""

from __future__ import annotations

import functools
import inspect
import os
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyper_layout import DeviceMesh, current_rank

if TYPE_CHECKING:
    from hyper_dtensor.platform import Platform

__all__ = ["agree", "agree_on_value", "enabled"]

_OWN_PACKAGES = (
    "hyper_layout",
    "hyper_dtensor",
    "hyper_dispatch",
    "hyper_ops",
    "hyper_tensor_parallel",
)


@functools.cache
def enabled() -> bool:
    """Whether ``HYPER_PARALLEL_DEBUG`` asks for the checks; read once, before the first collective."""
    return os.environ.get("HYPER_PARALLEL_DEBUG", "0") not in ("", "0")


def _call_site(platform: Platform) -> str:
    """File and line of the innermost frame that is neither ours, nor the adapter's, nor a library's."""
    adapter = Path(inspect.getfile(type(platform))).parent
    for frame in reversed(traceback.extract_stack()):
        path = Path(frame.filename)
        ours = path.is_relative_to(adapter) or any(part in _OWN_PACKAGES for part in path.parts)
        if not ours and "site-packages" not in path.parts:
            return f"{path.name}:{frame.lineno}"
    return "backward"


def gather_over_mesh(platform: Platform, mesh: DeviceMesh, value: Any) -> dict[int, Any]:
    """The picklable ``value`` of every rank of the mesh, by rank.

    Every rank gets all values, so that all of them decide alike what to make of them.
    """
    values = {current_rank(): value}
    for axis, size in enumerate(mesh.mesh_shape):
        if size > 1:
            lines = platform.all_gather_object(values, platform.group(mesh.ranks_along(axis)))
            values = {rank: said for line in lines for rank, said in line.items()}
    return values


def agree(platform: Platform, mesh: DeviceMesh, axis: int, kind: str, x: Any) -> None:
    """Raise on every rank of the mesh if its ranks do not enter the same collective.

    Raises:
        RuntimeError: Names each rank's collective, shape, dtype and call site.
    """
    name = mesh.mesh_dim_names[axis]
    mine = f"{kind} on axis {name!r} of {platform.dtype_name(x)}{list(x.shape)} at {_call_site(platform)}"
    said = gather_over_mesh(platform, mesh, mine)
    if any(other != mine for other in said.values()):
        lines = "\n".join(f"  rank {rank}: {said[rank]}" for rank in mesh.rank_list)
        raise RuntimeError(f"the ranks went different ways before a collective:\n{lines}")


def agree_on_value(platform: Platform, mesh: DeviceMesh, axes: Iterable[int], what: str, value: Any) -> None:
    """Raise on every rank of the mesh if ``value`` differs between ranks along one of ``axes``.

    Args:
        platform: The platform.
        mesh: The mesh; all of its ranks take part.
        axes: Positions of the mesh axes along which the values must be equal.
        what: What is wrong then, as the beginning of the message.
        value: This rank's value; picklable.

    Raises:
        RuntimeError: Names the axis and the ranks whose value differs from that of the first.
    """
    said = gather_over_mesh(platform, mesh, value)
    for axis in axes:
        for ranks in mesh.groups_along(axis):
            different = [rank for rank in ranks if said[rank] != said[ranks[0]]]
            if different:
                raise RuntimeError(
                    f"{what}: on mesh axis {mesh.mesh_dim_names[axis]!r} rank(s) {different} hold another "
                    f"value than rank {ranks[0]}"
                )
