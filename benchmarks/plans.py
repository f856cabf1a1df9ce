"""The transformer block that is timed, whatever the framework: its sizes, and its two plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.timing import Side
from hyper_dispatch import dispatcher

__all__ = ["BATCH", "BLOCK", "FEATURES", "HEADS", "HIDDEN", "SEQUENCE", "dispatched", "plan"]

BLOCK = "block forward + backward"
HIDDEN, HEADS, FEATURES, BATCH, SEQUENCE = 64, 8, 128, 1, 16


def plan(library: Any, tensor: Any, *, sequence: bool) -> Mapping[str, Any]:
    """The plan of a block.

    Args:
        library: The module with the styles.
        tensor: The module with the placements.
        sequence: Sequence parallelism, with distributed tensors kept between all modules. Otherwise only
            attention and MLP are split, and what is between the projections is local.
    """
    column, row = library.ColwiseParallel, library.RowwiseParallel
    if not sequence:
        return {
            **{f"attention.{name}_proj": column() for name in "qkv"},
            "attention.o_proj": row(),
            "mlp.gate_proj": column(),
            "mlp.up_proj": column(),
            "mlp.down_proj": row(),
        }
    by_sequence, whole = tensor.Shard(1), tensor.Replicate()
    entrance = {"input_layouts": (by_sequence,), "desired_input_layouts": (whole,)}
    kept = {"use_local_output": False}
    return {
        "norm1": library.SequenceParallel(**kept),
        "attention": library.PrepareModuleInput(**entrance),
        **{f"attention.{name}_proj": column(**kept) for name in "qkv"},
        "attention.o_proj": row(output_layouts=by_sequence, **kept),
        "norm2": library.SequenceParallel(**kept),
        "mlp": library.PrepareModuleInput(**entrance),
        "mlp.gate_proj": column(**kept),
        "mlp.up_proj": column(**kept),
        "mlp.down_proj": row(output_layouts=by_sequence, **kept),
    }


def dispatched(side: Side) -> int:
    """Operations that our dispatcher sees in one call."""

    def total() -> int:
        return sum(info.hits + info.misses for info in dispatcher.cache_info().values())

    (call,) = side(1)
    before = total()
    call()
    return total() - before
