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
from hyper_layout.notation import format_layout, parse_layout, parse_placements
from hyper_layout.placement import (
    REDUCE_OPS,
    Partial,
    Placement,
    Replicate,
    Shard,
    StridedShard,
    parse_placement,
)
from hyper_layout.plan import LOCAL_KINDS, Step, plan
from hyper_layout.reshard import Transfer, transfers

__all__ = [
    "LOCAL_KINDS",
    "REDUCE_OPS",
    "DeviceMesh",
    "Layout",
    "LayoutError",
    "LayoutTemplate",
    "Partial",
    "Placement",
    "Replicate",
    "Shard",
    "Step",
    "StridedShard",
    "Transfer",
    "current_mesh",
    "current_rank",
    "format_layout",
    "mesh_for_rank",
    "parse_layout",
    "parse_placement",
    "parse_placements",
    "plan",
    "set_group_source",
    "set_rank_source",
    "transfers",
]
