"""What happens to a tensor where it enters or leaves a styled module: shared by all styles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from hyper_dtensor import DTensor, Spec, get_platform
from hyper_dtensor.dtensor import adopt
from hyper_layout import DeviceMesh, Layout, Placement

__all__ = ["enter", "first_input", "leave", "one_axis"]

Value: TypeAlias = Any


def one_axis(
    placement: Placement | Sequence[Placement] | None, default: Placement | None = None
) -> tuple[Placement, ...]:
    """A style's layout argument as placements of a one-axis mesh; ``default`` where none is given.

    Raises:
        TypeError: If it is neither a placement nor a sequence of one.
    """
    given = default if placement is None else placement
    placements = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if len(placements) != 1 or not isinstance(placements[0], Placement):
        raise TypeError(f"a style's layout is one Placement of the tensor-parallel axis, got {placement!r}")
    return placements


# Asked twice in every forward of a styled module.
_layout = lru_cache(maxsize=1024)(Layout.from_placements)


@lru_cache(maxsize=1024)
def _spec(mesh: DeviceMesh, placements: Sequence[Placement], ndim: int) -> Spec:
    return Spec.of(_layout(mesh, placements, ndim))


def enter(
    value: Value, mesh: DeviceMesh, layouts: Sequence[Placement], desired: Sequence[Placement]
) -> DTensor:
    """An input as a DTensor in the ``desired`` layout.

    A plain tensor is this rank's part under ``layouts``; several styles that wrap the same plain tensor
    share its varying view. A DTensor says itself how it is laid out.

    Raises:
        ValueError: If a DTensor is on another mesh.
    """
    if not isinstance(value, DTensor):
        adopted = adopt(value, _spec(mesh, layouts, value.ndim))
        return adopted if layouts == desired else to_placements(adopted, desired)
    if value._spec.layout.mesh is not mesh:
        raise ValueError(
            f"the input {value!r} is on {value.device_mesh}, the module was parallelized on {mesh}; "
            "redistribute cannot change the mesh: pass to_local() or build the input on the module's mesh"
        )
    return to_placements(value, desired)


def to_placements(value: DTensor, desired: Sequence[Placement]) -> DTensor:
    """``value`` redistributed, or as it is where it is laid out so."""
    layout = value._spec.layout
    if _layout(layout.mesh, desired, layout.ndim) is layout:
        return value
    return value.redistribute(desired)


def leave(
    value: DTensor,
    desired: Sequence[Placement],
    use_local: bool,
    *,
    reduce_dtype: Any = None,
    grad_placements: Sequence[Placement] | None = None,
) -> Value:
    """An output in the ``desired`` layout, as a local tensor if ``use_local``.

    Args:
        value: The output.
        desired: The target placements.
        use_local: Whether the caller gets this rank's local tensor.
        reduce_dtype: Floating dtype in which a Partial output is reduced; the result is rounded back.
        grad_placements: For ``use_local``: what the gradient of the local tensor is.
    """
    layout = value._spec.layout
    if _layout(layout.mesh, desired, layout.ndim) is not layout:
        dtype = value._local.dtype
        if reduce_dtype is not None and reduce_dtype != dtype and layout.partial_axes:
            value = value.to(reduce_dtype).redistribute(desired).to(dtype)  # type: ignore[attr-defined]
        else:
            value = value.redistribute(desired)
    return value.to_local(grad_placements=grad_placements) if use_local else value


def first_input(
    style: str, layouts: Sequence[Placement], desired: Sequence[Placement]
) -> Callable[[Any, tuple[Value, ...], DeviceMesh], tuple[Value, ...]]:
    """An input function of `distribute_module`: the first positional input enters, the others pass through.

    It raises ValueError if the module was called without positional inputs, or the first is no tensor.

    Args:
        style: The name of the style, for messages.
        layouts: How a plain input is laid out (see `enter`).
        desired: The layout that the forward gets.
    """

    def prepare(module: Any, inputs: tuple[Value, ...], mesh: DeviceMesh) -> tuple[Value, ...]:
        if not inputs:
            raise ValueError(
                f"{style} prepares the first positional input of {type(module).__name__}, which was called "
                "with keywords only; pass it positionally, or use "
                "PrepareModuleInput(input_kwarg_layouts=..., desired_input_kwarg_layouts=...)"
            )
        value = inputs[0]
        if not (isinstance(value, DTensor) or get_platform().is_tensor(value)):
            raise ValueError(
                f"{style} expects a tensor or DTensor as the first input of {type(module).__name__}, "
                f"got {type(value).__name__}"
            )
        return (enter(value, mesh, layouts, desired), *inputs[1:])

    return prepare
