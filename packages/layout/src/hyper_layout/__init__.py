"""Placements, device meshes, layouts and redistribution plans. Pure Python."""

from hyper_layout.errors import LayoutError
from hyper_layout.layout import Layout, LayoutTemplate
from hyper_layout.mesh import (
    DeviceMesh,
    current_mesh,
    current_rank,
    mesh_for_rank,
    set_group_source,
    set_rank_source,
)
from hyper_layout.placement import REDUCE_OPS, Partial, Placement, Replicate, Shard, StridedShard

__all__ = [
    "REDUCE_OPS",
    "DeviceMesh",
    "Layout",
    "LayoutError",
    "LayoutTemplate",
    "Partial",
    "Placement",
    "Replicate",
    "Shard",
    "StridedShard",
    "current_mesh",
    "current_rank",
    "mesh_for_rank",
    "set_group_source",
    "set_rank_source",
]
