"""``init_device_mesh``: the mesh of this process, and the process group below it."""

from __future__ import annotations

from collections.abc import Sequence

from hyper_dtensor.parts import check_loaded
from hyper_dtensor.platform import get_platform
from hyper_layout import DeviceMesh, mesh_for_rank

__all__ = ["DeviceMesh", "init_device_mesh"]


def init_device_mesh(
    device_type: str,
    mesh_shape: Sequence[int],
    *,
    mesh_dim_names: Sequence[str] | None = None,
    rank_list: Sequence[int] | None = None,
    init_backend: bool = True,
) -> DeviceMesh:
    """The mesh of ``mesh_shape`` that this rank is part of; starts the process group if there is none.

    Args:
        device_type: ``"cpu"``, ``"cuda"`` or ``"npu"``.
        mesh_shape: Sizes of the mesh axes.
        mesh_dim_names: Names of the axes, as many as sizes.
        rank_list: The global ranks, in row-major order. By default all ranks; a mesh smaller than the
            world puts rank r in the block that starts at ``r - r % size``, and the blocks do not wait
            for each other.
        init_backend: ``False`` gives pure rank arithmetic without any process group.

    Returns:
        The mesh; the same arguments give the same object.

    Raises:
        ValueError: If the mesh does not fit the world, names or ranks.
        LayoutError: If this process, when it was alone, loaded a DTensor that is the part of another rank.
        RuntimeError: If the backend of the device is not installed.
    """
    platform = get_platform()
    if init_backend:
        platform.start(device_type)
        check_loaded()  # here already, before anything is computed of it
    return mesh_for_rank(
        device_type,
        tuple(mesh_shape),
        tuple(mesh_dim_names) if mesh_dim_names is not None else None,
        tuple(rank_list) if rank_list is not None else None,
        platform.world_size(),
        platform.rank(),
    )
