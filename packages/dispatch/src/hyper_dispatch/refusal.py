"""The message of a refusal, put together once, at the border of the dispatcher.

matmul cannot combine its operands on mesh axis 'tp' (size 4)
  x: f32[8,16]  dp:S(0) tp:S(1)      w: f32[16,4]  dp:R tp:S(1)
  dim k is split in x (dim 1) but not in w (dim 0)
  either  w.redistribute(tp=S(0))  1 all_to_all     or  x.redistribute(tp=R)  1 all_gather
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from hyper_dispatch.cures import Cure, Operand, find_cures
from hyper_dispatch.distributed_op import DistributedOp
from hyper_dispatch.errors import RuleError
from hyper_dtensor import DTensor, Platform
from hyper_layout import Layout, LayoutError

_SHOWN_OPERANDS: Final = 4


def named_arguments(
    op: DistributedOp | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, str, Any]]:
    """The arguments of a call, lists item by item: `(parameter, name for messages, value)`."""
    signature = op.signature if op is not None else None
    for position, value in enumerate(args):
        parameter = signature.name_of(position) if signature else f"args[{position}]"
        yield from _items(parameter, value)
    order = signature.keyword_order(list(kwargs)) if signature else kwargs
    for name in order:
        yield from _items(name, kwargs[name])


def _items(parameter: str, value: Any) -> Iterator[tuple[str, str, Any]]:
    if isinstance(value, (list, tuple)):
        yield from ((parameter, f"{parameter}[{index}]", item) for index, item in enumerate(value))
    else:
        yield parameter, parameter, value


def describe_operands(
    platform: Platform, op: DistributedOp | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[Operand]:
    """The distributed operands of a call, in order, as messages show them."""
    operands: list[Operand] = []
    for _, name, value in named_arguments(op, args, kwargs):
        if isinstance(value, DTensor):
            local = value._local
            operands.append(
                Operand(
                    name=name,
                    dtype=platform.dtype_name(local),
                    shape=tuple(value.shape),
                    itemsize=platform.itemsize(local),
                    layout=value.layout,
                    fixed=op is not None and op.inplace and not operands,
                )
            )
    return operands


def explain(
    error: ValueError, op: DistributedOp, operands: Sequence[Operand], accepts: Callable[[list[Layout]], bool]
) -> LayoutError:
    """The error a user sees: what was refused, the operands, why, and what to do.

    Args:
        error: What the inference raised.
        op: The strategy.
        operands: The operands of the call.
        accepts: Whether the inference accepts other layouts of them, to try cures.
    """
    mesh = operands[0].layout.mesh
    axes: tuple[int, ...] = tuple(range(mesh.ndim))
    lines = [_operand_line(operands)]
    if isinstance(error, RuleError):
        axes = error.axes
        where = " and ".join(f"{mesh.mesh_dim_names[axis]!r} (size {mesh.mesh_shape[axis]})" for axis in axes)
        verb = "combine its operands" if len(operands) > 1 else "take its operand"
        lines.insert(0, f"{op.op_name} cannot {verb} on mesh axis {where}")
        lines.append(error.reason_for([operand.name for operand in operands]))
    else:
        text = str(error)
        lines.insert(0, text if op.op_name in text else f"{op.op_name}: {text}")
    lines += _cure_lines(find_cures(operands, axes, accepts))
    return LayoutError("\n  ".join(lines))


def _operand_line(operands: Sequence[Operand]) -> str:
    shown = [describe(operand) for operand in operands[:_SHOWN_OPERANDS]]
    if len(operands) > _SHOWN_OPERANDS:
        shown.append(f"... and {len(operands) - _SHOWN_OPERANDS} more")
    return "      ".join(shown)


def describe(operand: Operand) -> str:
    """Name, type, global shape and placements: `x: f32[8,16]  dp:S(0) tp:S(1)`."""
    sizes = ",".join(map(str, operand.shape))
    return f"{operand.name}: {operand.dtype}[{sizes}]  {operand.layout.notation}"


def _cure_lines(cures: Sequence[Cure]) -> list[str]:
    if not cures:
        return []
    if len(cures) == 1:
        return [f"use  {cures[0]}"]
    return [f"either  {cures[0]}     or  {cures[1]}"]


def two_meshes(op_name: str, operands: Sequence[Operand]) -> LayoutError:
    """The error for operands on different meshes."""
    lines = [f"{op_name} got operands on different meshes"]
    lines += [f"{operand.name} is on {operand.layout.mesh!r}" for operand in operands[:_SHOWN_OPERANDS]]
    lines.append("distribute all operands of one operation on the same mesh")
    return LayoutError("\n  ".join(lines))
