"""The strategies of an operation: every way to lay out its operands that it accepts.

For the support table, and for a cost-based choice of layouts (the operator guide's GenerateStrategies).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, Final

from hyper_dispatch.distributed_op import DistributedOp
from hyper_dispatch.effects import Effects
from hyper_dispatch.registry import find_op
from hyper_dispatch.rows import INVARIANT, ONCE, Row, Token
from hyper_layout import REDUCE_OPS, DeviceMesh, Layout, Partial, Placement, Replicate, Shard

_PARTIALS: Final = tuple(map(Partial, REDUCE_OPS))


def strategies(
    op_name: str, mesh: DeviceMesh, ndims: Sequence[int], statics: Sequence[Any] = ()
) -> list[Row]:
    """The rows of an operation on one mesh axis, found by asking its inference.

    Args:
        op_name: A registered operation.
        mesh: A mesh of one axis.
        ndims: Rank of each operand.
        statics: The static cache values of the call, as the strategy's `preprocess` makes them.

    Returns:
        A row for each combination of placements that is accepted; `+` and `I` where the operation says so.

    Raises:
        ValueError: If the operation is not registered, or the mesh has several axes.
    """
    op = find_op(op_name)
    if op is None:
        raise ValueError(f"operation {op_name!r} is not registered")
    if mesh.ndim != 1:
        raise ValueError(f"strategies are listed for a mesh of one axis, got {mesh!r}")
    choices = [[Replicate(), *map(Shard, range(ndim)), *_PARTIALS] for ndim in ndims]
    rows = (_row(op, mesh, placements, ndims, statics) for placements in product(*choices))
    return [row for row in rows if row is not None]


def _row(
    op: DistributedOp,
    mesh: DeviceMesh,
    placements: Sequence[Placement],
    ndims: Sequence[int],
    statics: Sequence[Any],
) -> Row | None:
    layouts = [Layout(mesh, (placement,), ndim) for placement, ndim in zip(placements, ndims, strict=True)]
    try:
        outputs, effects = op.infer_layout([*layouts, *statics])
    except ValueError:
        return None
    return row_of(placements, outputs, effects)


def row_of(placements: Sequence[Placement], outputs: Sequence[Layout | None], effects: Effects | None) -> Row:
    """What an inference on a mesh of one axis answered, as a row.

    Args:
        placements: Those of the operands that were asked about.
        outputs: The layouts of the results; an output that is no tensor reads as Replicate.
        effects: What else the inference says, if anything; `+` and `I` stand where it does.
    """
    inputs: list[Token] = list(placements)
    results: list[Token] = [Replicate() if layout is None else layout.placements[0] for layout in outputs]
    if effects is not None:
        inputs = [ONCE if effects.once_of(i) else token for i, token in enumerate(inputs)]
        results = [
            INVARIANT if token.is_replicate() and effects.invariant_of(i) else token  # type: ignore[union-attr]
            for i, token in enumerate(results)
        ]
    return Row(tuple(inputs), tuple(results))
