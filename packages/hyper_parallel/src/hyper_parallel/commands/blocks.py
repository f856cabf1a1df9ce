"""What a rank holds, in words: for tables and pictures."""

from __future__ import annotations

from hyper_layout import Layout

__all__ = ["coordinates_text", "slice_text"]


def coordinates_text(layout: Layout, rank: int) -> str:
    """``dp=0 tp=3``."""
    names = layout.mesh.mesh_dim_names
    return " ".join(f"{name}={layout.mesh.get_local_rank(name, rank)}" for name in names)


def slice_text(layout: Layout, shape: tuple[int, ...], rank: int) -> str:
    """``[0:4, 8:16]``."""
    slices = layout.local_slice(shape, rank)
    return f"[{', '.join(f'{each.start}:{each.stop}' for each in slices)}]"
