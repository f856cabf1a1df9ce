"""A picture of who holds what: one panel per rank, in the order of the mesh."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from hyper_layout import Layout
from hyper_parallel.commands.blocks import coordinates_text, slice_text
from hyper_parallel.commands.refusal import refuse

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["check_path", "draw"]

SUFFIXES: Final = (".png", ".svg")
MOST_PANELS: Final = 64
MOST_COLUMNS: Final = 8
FILLED, EMPTY, EDGE = "#4c78a8", "#f2f2f2", "#b0b0b0"


def check_path(text: str) -> Path:
    """The file of a picture.

    Raises:
        typer.BadParameter: If its suffix is no kind of picture, or its folder does not exist.
    """
    path = Path(text)
    if path.suffix.lower() not in SUFFIXES:
        raise typer.BadParameter(f"{text!r}: a picture's name ends in {' or '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise typer.BadParameter(f"{text!r}: there is no folder '{path.parent}'")
    return path


def draw(layout: Layout, shape: tuple[int, ...], title: str, path: Path) -> None:
    """Write a picture of a layout.

    Two dims are drawn: split ones first, then the last ones; the slice of all dims is named above each panel.
    What is hatched is one addend of several.

    Raises:
        typer.Exit: If matplotlib is missing, the mesh has too many ranks, or the file cannot be written.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise refuse("a picture needs matplotlib: pip install matplotlib") from None
    mesh = layout.mesh
    if mesh.size() > MOST_PANELS:
        raise refuse(
            f"a picture has a panel per rank, at most {MOST_PANELS}; the mesh has {mesh.size()} ranks"
        )
    columns = min(mesh.mesh_shape[-1], MOST_COLUMNS)
    rows = -(-mesh.size() // columns)
    figure = Figure(figsize=(1.4 + 2.0 * columns, 0.9 + 1.9 * rows), layout="constrained")
    figure.suptitle(title, fontsize=10)
    panels: Any = figure.subplots(rows, columns, squeeze=False)
    for rank, panel in zip(mesh.rank_list, panels.flat, strict=False):
        _draw_rank(panel, layout, shape, rank)
    for panel in panels.flat[mesh.size() :]:
        panel.set_axis_off()
    try:
        # The same layout gives the same file.
        with rc_context({"svg.hashsalt": title}):
            figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix.lower() == ".svg" else {})
    except OSError as error:
        raise refuse(f"cannot write '{path}': {error.strerror or error}") from None


def _draw_rank(panel: Axes, layout: Layout, shape: tuple[int, ...], rank: int) -> None:
    from matplotlib.patches import Rectangle

    across, down = _drawn_dims(layout, shape)
    blocks = [1 if dim is None else layout.shard_counts[dim] for dim in (down, across)]
    slices = layout.local_slice(shape, rank)
    place = [
        0 if dim is None else slices[dim].start * count // max(shape[dim], 1)
        for dim, count in zip((down, across), blocks, strict=True)
    ]
    hatch = "///" if any(layout.partial) else None
    for row, column in product(*map(range, blocks)):
        mine = [row, column] == place
        color = FILLED if mine else EMPTY
        corner = (column / blocks[1], 1 - (row + 1) / blocks[0])
        panel.add_patch(
            Rectangle(
                corner,
                1 / blocks[1],
                1 / blocks[0],
                facecolor=color,
                edgecolor=EDGE,
                hatch=hatch if mine else None,
            )
        )
    panel.set_xlim(0, 1)
    panel.set_ylim(0, 1)
    panel.set_xticks([])
    panel.set_yticks([])
    panel.set_xlabel("" if across is None else f"dim {across} ({shape[across]})", fontsize=7)
    panel.set_ylabel("" if down is None else f"dim {down} ({shape[down]})", fontsize=7)
    text = f"rank {rank}: {coordinates_text(layout, rank)}\n{slice_text(layout, shape, rank)}"
    panel.set_title(text, fontsize=7)


def _drawn_dims(layout: Layout, shape: tuple[int, ...]) -> tuple[int | None, int | None]:
    """The dims drawn from left to right and from top to bottom."""
    if not shape:
        return None, None
    if len(shape) == 1:
        return 0, None
    split = [dim for dim, count in enumerate(layout.shard_counts) if count > 1]
    rest = [dim for dim in reversed(range(len(shape))) if dim not in split]
    down, across = sorted([*split, *rest][:2])
    return across, down
