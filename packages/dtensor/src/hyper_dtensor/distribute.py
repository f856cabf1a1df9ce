"""``distribute_tensor`` and ``distribute_module`` (styles RFC section 4.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from hyper_dtensor import comm_debug
from hyper_dtensor.collectives import linear_map
from hyper_dtensor.dtensor import DTensor
from hyper_dtensor.platform import Platform, get_platform, modules_below
from hyper_dtensor.spec import Spec
from hyper_layout import DeviceMesh, Layout, Placement, Replicate

__all__ = ["distribute_module", "distribute_parameter", "distribute_tensor"]

Tensor: TypeAlias = Any
Module: TypeAlias = Any


def distribute_tensor(
    tensor: Tensor,
    device_mesh: DeviceMesh,
    placements: Sequence[Placement] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> DTensor:
    """Lay a whole tensor out on a mesh; the result is a leaf that needs a gradient if ``tensor`` does.

    Args:
        tensor: The whole (global) tensor; every rank passes one of the same shape and dtype.
        device_mesh: The mesh.
        placements: One per mesh axis; Replicate everywhere if not given.
        src_data_rank: Coordinate along each axis whose data counts: scattered over Shard axes and
            broadcast over the others. ``None``: every rank holds the same data already and keeps its
            part, without communication. A meta tensor never communicates.

    Raises:
        TypeError: If ``tensor`` is not a tensor of the platform.
        ValueError: If the placements do not fit, or ``tensor`` is a DTensor in another layout.
    """
    platform = get_platform()
    mesh = device_mesh
    placements = (Replicate(),) * mesh.ndim if placements is None else tuple(placements)
    if isinstance(tensor, DTensor):
        if tensor.layout is Layout(mesh, placements, tensor.ndim):
            return tensor
        raise ValueError(
            f"distribute_tensor got {tensor!r}: a DTensor is moved with redistribute(placements)"
        )
    if not platform.is_tensor(tensor):
        raise TypeError(
            f"distribute_tensor takes a tensor of {platform.framework}, got {type(tensor).__name__}"
        )
    shape = tuple(tensor.shape)
    layout = Layout(mesh, placements, len(shape))
    layout.local_shape(shape)  # refuses a dim that does not divide, before anything is sent
    local = platform.detach(tensor)
    if src_data_rank is None or platform.is_meta(tensor):
        local = _own_part(platform, local, layout)
    else:
        local = _from_source(platform, local, layout, src_data_rank)
    for axis, op in enumerate(layout.partial):
        if op == "sum":
            local = linear_map("keep", mesh, axis)(local)
        elif op == "prod" and mesh.get_local_rank(axis) != 0:
            local = platform.ops.ones_like(local)
    t = platform.wrap(local, Spec.of(layout), tensor.shape)
    if tensor.requires_grad:
        t.requires_grad = True
    return t


def _own_part(platform: Platform, local: Tensor, layout: Layout) -> Tensor:
    for dim, piece in enumerate(layout.local_slice(tuple(local.shape))):
        local = platform.ops.narrow(local, dim, piece.start, piece.stop - piece.start)
    return platform.ops.clone(local)


def _from_source(platform: Platform, local: Tensor, layout: Layout, source: int) -> Tensor:
    """Scatter or broadcast axis by axis; after each, the ranks at ``source`` of the rest hold the truth."""
    mesh = layout.mesh
    split = [(axis, dim) for dim, axes in enumerate(layout.dim_axes) for axis in axes]  # major axes first
    whole = [(axis, None) for axis in range(mesh.ndim) if axis not in {axis for axis, _ in split}]
    moved = False
    for axis, dim in [*split, *whole]:
        size = mesh.mesh_shape[axis]
        if not 0 <= source < size:
            raise ValueError(
                f"src_data_rank={source} is no coordinate of mesh axis {mesh.mesh_dim_names[axis]!r} "
                f"(size {size})"
            )
        if size == 1:
            continue
        moved = True
        group = platform.group(mesh.ranks_along(axis))
        comm_debug.record("broadcast" if dim is None else "scatter", mesh, axis, local)
        local = (
            platform.broadcast(local, source, group)
            if dim is None
            else platform.scatter(local, dim, source, group)
        )
    return local if moved else platform.ops.clone(local)


def distribute_parameter(
    module: Module,
    name: str,
    device_mesh: DeviceMesh,
    placements: Sequence[Placement],
    *,
    src_data_rank: int | None = 0,
) -> DTensor:
    """Lay a parameter or buffer of ``module`` itself out on a mesh, in place where the framework allows.

    A parameter that another module shares is converted once; the second call must ask for the same layout.
    ``requires_grad`` is kept.

    Raises:
        AttributeError: If the module has no such parameter or buffer.
        ValueError: If it is a DTensor in another layout already, or a dim does not divide.
    """
    platform = get_platform()
    parameters = platform.parameters(module)
    held = parameters if name in parameters else platform.buffers(module)
    if name not in held:
        raise AttributeError(f"{type(module).__name__} has no parameter or buffer {name!r}")
    value = held[name]
    if isinstance(value, DTensor):
        if value.layout is not Layout(device_mesh, tuple(placements), value.ndim):
            raise ValueError(
                f"parameter {name!r} of {type(module).__name__} is laid out as {value!r} already (it is "
                f"shared, or was distributed before) and cannot also be {tuple(placements)}; give both users "
                "the same placements"
            )
        return value
    try:
        t = distribute_tensor(value, device_mesh, placements, src_data_rank=src_data_rank)
    except ValueError as error:
        raise ValueError(f"parameter {name!r} of {type(module).__name__}: {error}") from error
    # Read back: where a parameter is converted in place, the object that was there is the DTensor now.
    converted: DTensor
    if held is parameters:
        platform.set_parameter(module, name, t)
        converted = platform.parameters(module)[name]
    else:
        platform.set_buffer(module, name, t)
        converted = platform.buffers(module)[name]
    return converted


def distribute_module(
    module: Module,
    device_mesh: DeviceMesh,
    partition_fn: Callable[[str, Module, DeviceMesh], None] | None = None,
    input_fn: Callable[[Module, tuple[Any, ...], DeviceMesh], Any] | None = None,
    output_fn: Callable[[Module, Any, DeviceMesh], Any] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Module:
    """Turn the parameters and buffers of a module tree into DTensors and hook its root (RFC section 4.3).

    Args:
        module: The root of the tree; changed in place.
        device_mesh: The mesh.
        partition_fn: Called as ``partition_fn(name, submodule, mesh)`` for the root and everything below;
            distributes what it wants split (`distribute_parameter`). The rest becomes Replicate.
        input_fn: ``input_fn(module, inputs, mesh)`` before each forward of the root: the positional
            inputs to use instead; keyword inputs pass through.
        output_fn: ``output_fn(module, outputs, mesh)`` after each forward: the output to use instead.
        src_data_rank: As in `distribute_tensor`, for what ``partition_fn`` left.

    Returns:
        ``module``.

    Raises:
        RuntimeError: If the module was distributed before.
    """
    platform = get_platform()
    if getattr(module, "_distribute_module_applied", False):
        raise RuntimeError(
            f"distribute_module was applied to this {type(module).__name__} before; apply one style to a "
            "module, and use PrepareModuleInput / PrepareModuleOutput for further layout changes around it"
        )
    replicate = (Replicate(),) * device_mesh.ndim
    for name, submodule in list(modules_below(platform, module)):
        if partition_fn is not None:
            partition_fn(name, submodule, device_mesh)
        for key, value in {**platform.parameters(submodule), **platform.buffers(submodule)}.items():
            if value is not None and not isinstance(value, DTensor):
                distribute_parameter(submodule, key, device_mesh, replicate, src_data_rank=src_data_rank)
    if input_fn is not None:
        prepare = input_fn

        def before(
            module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> tuple[Any, dict[str, Any]]:
            prepared = prepare(module, args, device_mesh)
            if prepared is None:
                return args, kwargs
            return (prepared if isinstance(prepared, tuple) else (prepared,)), kwargs

        platform.before_forward(module, before)
    if output_fn is not None:
        finish = output_fn

        def after(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
            return finish(module, output, device_mesh)

        platform.after_forward(module, after)
    module._distribute_module_applied = True
    return module
