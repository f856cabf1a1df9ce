"""Asking a strategy's `infer_layout` for layouts written as text: pure, no process, no framework."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hyper_dispatch import Effects, find_op
from hyper_layout import DeviceMesh, Layout, parse_placement
from hyper_ops import load_ops

__all__ = ["ONE_AXIS", "TWO_AXES", "infer"]

ONE_AXIS = DeviceMesh("cpu", (2,), ("tp",))
TWO_AXES = DeviceMesh("cpu", (2, 2), ("dp", "tp"))


def infer(op_name: str, operands: str, ndims: Sequence[int], *static: Any) -> str:
    """The output layouts as text.

    Args:
        op_name: The operation.
        operands: Placements of the operands, separated by blanks; on two axes those of one operand are joined
            by a slash: `"S(0) R"`, `"S(0)/R P(sum)/R"`, `"SS(0,2)/S(0)"`. `-` is an operand that is not there.
        ndims: Their ranks.
        *static: The other cache values.

    Returns:
        The outputs in the same notation; `I` is a Replicate that the implementation made invariant.
    """
    load_ops()
    texts = operands.split()
    mesh = TWO_AXES if any("/" in text for text in texts) else ONE_AXIS
    layouts = [
        None if text == "-" else Layout(mesh, tuple(map(parse_placement, text.split("/"))), ndim)
        for text, ndim in zip(texts, ndims, strict=True)
    ]
    op = find_op(op_name)
    assert op is not None, f"{op_name} is not registered"
    outputs, effects = op.infer_layout([*layouts, *static])
    assert isinstance(effects, Effects)
    return " ".join(
        "-" if output is None else _text(output, effects.invariant_of(number))
        for number, output in enumerate(outputs)
    )


def _text(output: Layout, invariant: int) -> str:
    return "/".join(
        "I" if invariant >> axis & 1 and placement.is_replicate() else placement.notation.replace(" ", "")
        for axis, placement in enumerate(output.placements)
    )
