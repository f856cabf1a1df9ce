"""DTensors made from nothing: ``zeros, ones, empty, full, rand, randn`` with a mesh and placements."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from hyper_dtensor.dtensor import DTensor
from hyper_dtensor.platform import get_platform
from hyper_dtensor.random_state import local_seed
from hyper_dtensor.spec import Spec
from hyper_layout import DeviceMesh, Layout, Placement, Replicate, current_mesh

__all__ = ["empty", "full", "ones", "rand", "randn", "zeros"]


def _shape(size: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(size[0]) if len(size) == 1 and isinstance(size[0], Sequence) else tuple(size)


def _create(
    kind: str,
    shape: tuple[int, ...],
    device_mesh: DeviceMesh | None,
    placements: Sequence[Placement] | None,
    requires_grad: bool,
    **options: Any,
) -> DTensor:
    platform = get_platform()
    mesh = device_mesh if device_mesh is not None else current_mesh()
    if mesh is None:
        raise ValueError(f"{kind} needs device_mesh=, or a current mesh (with mesh: ...)")
    layout = Layout(
        mesh, tuple(placements) if placements is not None else (Replicate(),) * mesh.ndim, len(shape)
    )
    if layout.partial_axes:
        raise ValueError(
            f"{kind} cannot be made Partial ({layout.notation}): make it Replicate and redistribute"
        )
    random = kind in ("rand", "randn")
    with platform.seeded(local_seed(layout, mesh.device_type), mesh.device_type) if random else nullcontext():
        local = platform.create(kind, layout.local_shape(shape), mesh.device_type, **options)
    t = platform.wrap(local, Spec.of(layout), shape)
    if requires_grad:
        t.requires_grad = True
    return t


def zeros(
    *size: Any,
    dtype: Any = None,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    requires_grad: bool = False,
) -> DTensor:
    """A DTensor of global shape ``size`` filled with zeros; no communication.

    Args:
        *size: The global shape, as integers or as one sequence.
        dtype: The framework's dtype; its default if not given.
        device_mesh: The mesh; the current one (``with mesh:``) if not given.
        placements: One per mesh axis (Shard or Replicate); Replicate everywhere if not given.
        requires_grad: Whether the result is a leaf that needs a gradient.

    Raises:
        ValueError: Without a mesh, for Partial placements, or if a dim does not divide.
    """
    return _create("zeros", _shape(size), device_mesh, placements, requires_grad, dtype=dtype)


def ones(
    *size: Any,
    dtype: Any = None,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    requires_grad: bool = False,
) -> DTensor:
    """A DTensor filled with ones; arguments and errors as for `zeros`."""
    return _create("ones", _shape(size), device_mesh, placements, requires_grad, dtype=dtype)


def empty(
    *size: Any,
    dtype: Any = None,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    requires_grad: bool = False,
) -> DTensor:
    """A DTensor whose values are not set; arguments and errors as for `zeros`."""
    return _create("empty", _shape(size), device_mesh, placements, requires_grad, dtype=dtype)


def full(
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    requires_grad: bool = False,
) -> DTensor:
    """A DTensor filled with ``fill_value``; other arguments and errors as for `zeros`."""
    return _create(
        "full", _shape((size,)), device_mesh, placements, requires_grad, dtype=dtype, fill_value=fill_value
    )


def rand(
    *size: Any,
    dtype: Any = None,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    requires_grad: bool = False,
) -> DTensor:
    """A DTensor of uniform numbers in [0, 1); Replicate pieces agree, shards differ.

    Arguments and errors as for `zeros`; `RuntimeError` if the ranks are not seeded alike.
    """
    return _create("rand", _shape(size), device_mesh, placements, requires_grad, dtype=dtype)


def randn(
    *size: Any,
    dtype: Any = None,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    requires_grad: bool = False,
) -> DTensor:
    """A DTensor of standard normal numbers; otherwise as `rand`."""
    return _create("randn", _shape(size), device_mesh, placements, requires_grad, dtype=dtype)
