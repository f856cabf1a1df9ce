"""Small things that functions run on ranks begin with."""

from __future__ import annotations

import functools
from typing import Any

__all__ = ["distributed", "mesh_of_all"]


@functools.cache
def mesh_of_all(*shape: int) -> Any:
    """A mesh of all ranks with the axes `dp`, `tp` (one axis: `tp`); families and adapter are loaded."""
    import hyper_ops
    from hyper_dtensor import init_device_mesh

    hyper_ops.load_ops()
    return init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp")[-len(shape) :])


def distributed(whole: Any, mesh: Any, *placements: Any, requires_grad: bool = False) -> Any:
    """A leaf DTensor cut from a whole tensor that every rank has, without communication."""
    from hyper_dtensor import DTensor
    from hyper_layout import Layout

    layout = Layout(mesh, placements, whole.ndim)
    local = whole.detach()[layout.local_slice(whole.shape)].clone().requires_grad_(requires_grad)
    return DTensor.from_local(local, mesh, placements)
