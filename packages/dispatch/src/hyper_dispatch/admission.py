"""Plain tensors among distributed ones: which are let in, and how the others are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hyper_dispatch.distributed_op import DistributedOp
from hyper_dispatch.refusal import named_arguments
from hyper_dtensor import DTensor, Platform, Spec, is_implicit, rank_check, wrap
from hyper_dtensor.dtensor import check_replicated
from hyper_layout import DeviceMesh, Layout, LayoutError, Replicate


def admit_plain(
    platform: Platform,
    op: DistributedOp | None,
    op_name: str,
    mesh: DeviceMesh | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call with its plain tensors as Replicate ones on the operands' mesh.

    Let in are 0-d tensors, arguments that the strategy names as plain, and everything inside
    `implicit_replication`.

    Raises:
        LayoutError: For any other plain tensor; names the argument and the ways to wrap it.
    """
    if mesh is None:
        raise LayoutError(f"{op_name}: found no DTensor among the arguments or in lists among them")
    allowed = op.plain_operands if op is not None else frozenset()
    for number, (parameter, name, value) in enumerate(named_arguments(op, args, kwargs)):
        if not platform.is_tensor(value):
            continue
        if op is not None and op.inplace and number == 0:
            raise LayoutError(
                f"{op_name} would write a distributed result into the plain tensor {name!r}; "
                "use the out-of-place form, or wrap the tensor with DTensor.from_local first. If it is the "
                "state of an optimizer: build the optimizer after the plan is applied"
            )
        if len(value.shape) and parameter not in allowed and not is_implicit():
            raise _refusal(platform, op_name, name, value)

    def admit(value: Any) -> Any:
        if isinstance(value, (list, tuple)) and any(map(platform.is_tensor, value)):
            return type(value)([admit(item) for item in value])
        return replicated(platform, value, mesh) if platform.is_tensor(value) else value

    return tuple(map(admit, args)), {name: admit(value) for name, value in kwargs.items()}


def writes_number(
    platform: Platform, op: DistributedOp, operands: Sequence[DTensor], args: tuple[Any, ...]
) -> bool:
    """Whether a call writes into a plain tensor with nothing distributed but 0-d tensors that are whole.

    It is then a matter of the locals, as it would be with numbers in their place (gradient clipping scales
    plain gradients by a distributed coefficient).
    """
    return (
        op.inplace
        and bool(operands and args)
        and platform.is_tensor(args[0])
        and all(
            not t.shape and t.layout.is_replicated and not platform.tracks_gradient(t._local)
            for t in operands
        )
    )


def replicated(platform: Platform, local: Any, mesh: DeviceMesh) -> DTensor:
    """A plain tensor that every rank holds alike, as a Replicate one."""
    layout = Layout(mesh, (Replicate(),) * mesh.ndim, len(local.shape))
    wrapped = wrap(local, Spec.of(layout))
    if is_implicit() and rank_check.enabled():
        check_replicated(wrapped)
    if platform.tracks_gradient(local):
        # Consumers of one plain tensor share its varying view, as those of `from_local` do.
        wrapped._views = platform.memo(local)
    return wrapped


def _refusal(platform: Platform, op_name: str, name: str, value: Any) -> LayoutError:
    shown = f"{platform.dtype_name(value)}[{','.join(map(str, value.shape))}]"
    return LayoutError(
        f"{op_name}: argument {name!r} is a plain tensor {shown} among distributed ones\n"
        f"  if it is this rank's part:  DTensor.from_local({name}, mesh, placements)\n"
        f"  if it is the whole tensor:  distribute_tensor({name}, mesh, placements)\n"
        "  if all ranks hold the same values:  with implicit_replication(): ...\n"
        "  if it left a tensor-parallel style:  give that style use_local_output=False"
    )
