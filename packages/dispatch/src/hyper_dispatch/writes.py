"""Operations that write into a tensor they are given: in-place forms and `out=` (design section 3, rule 9).

Aliases of the target could not follow a change of its layout or of its gradient state, so that neither may
change; the out-of-place form is the cure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hyper_dispatch.distributed_op import DistributedOp
from hyper_dispatch.record import Record
from hyper_dtensor import DTensor, get_platform
from hyper_dtensor.copied import check_current, refuse_write
from hyper_layout import Layout, LayoutError


def check_target(op: DistributedOp, target: Layout, result: Layout | None) -> None:
    """An in-place operation must leave the layout of its target as it is (design section 3, rule 9)."""
    if result is not None and result is not target:
        raise LayoutError(
            f"{op.op_name} writes in place, and its result would be {result.notation} where its target is "
            f"{target.notation}; use the out-of-place form"
        )


def check_state(op_name: str, change: str, operands: Sequence[DTensor]) -> None:
    """An in-place operation must leave the gradient state of its target as it is, where gradients flow."""
    if any(operand.requires_grad for operand in operands):
        raise LayoutError(
            f"{op_name} writes in place, and the gradient state of its target would become {change}, which "
            "aliases of the target could not follow; use the out-of-place form"
        )


def check_copies(op: DistributedOp, operands: Sequence[DTensor]) -> None:
    """A copy that stands for a view is not written to, and not read after its source was (`Spec.copied`)."""
    for operand in operands:
        check_current(operand)
    if op.inplace and operands[0]._spec.copied:
        refuse_write(operands[0], op.op_name)


def check_out(op_name: str, record: Record, out: Any, operands: Sequence[DTensor]) -> None:
    """`out=` must be laid out as the result is, and takes no part in gradients (design section 3, rule 9)."""
    if not isinstance(out, DTensor):
        raise LayoutError(
            f"{op_name}: out= must be one DTensor, got {type(out).__name__}; use the result instead"
        )
    if out._spec.copied:
        refuse_write(out, op_name)
    if get_platform().grad_enabled() and any(tensor.requires_grad for tensor in (out, *operands)):
        raise LayoutError(
            f"{op_name}: out= carries no gradient, and an operand needs one; use the out-of-place form"
        )
    if record.layouts != (out.layout,):
        result = ", ".join("no tensor" if layout is None else layout.notation for layout in record.layouts)
        raise LayoutError(
            f"{op_name}: out= is {out.layout.notation}, the result {result}; use the out-of-place form"
        )


def write_out(op_name: str, out: DTensor, result: DTensor) -> DTensor:
    """Copy a result into `out`.

    Raises:
        LayoutError: If the shapes differ, or the dtype of `out` is of a kind that loses what the result is.
    """
    wanted, got = tuple(result.shape), tuple(out.shape)
    if wanted != got:
        raise LayoutError(f"{op_name}: out= has shape {got}, the result {wanted}; use the out-of-place form")
    if _kind(result) > _kind(out):
        names = [get_platform().dtype_name(tensor._local) for tensor in (out, result)]
        raise LayoutError(f"{op_name}: out= is {names[0]}, which cannot hold the result, {names[1]}")
    out._local[...] = result._local
    return out


def _kind(tensor: DTensor) -> int:
    """The place of its dtype in the order boolean, integer, floating, complex: each holds those before."""
    platform = get_platform()
    name = platform.dtype_name(tensor._local)
    return 2 if platform.is_floating(tensor._local) else 3 if name.startswith("c") else int(name != "b")
