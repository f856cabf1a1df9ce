"""What these tests share: a cell under a plan against one device, forward and gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.platform_ms.helpers import close, gradients_equal, mesh_of_all

__all__ = ["check", "filled", "gradients", "piece"]


def filled(cell: Any, dtype: str = "float32") -> Any:
    """The cell with numbers that are the same wherever it is made."""
    import mindspore

    source = np.random.default_rng(0)
    for _, parameter in cell.parameters_and_names():
        values = source.standard_normal(parameter.shape) * 0.5
        parameter.set_data(mindspore.Tensor(values.astype(np.float32)))
    return cell.to_float(getattr(mindspore, dtype)) if dtype != "float32" else cell


def piece(x: Any, dim: int | None) -> Any:
    """This rank's shard along ``dim``; all of ``x`` if ``dim`` is None."""
    from mindspore import mint, ops

    from hyper_dtensor import get_platform

    if dim is None:
        return x
    platform = get_platform()
    size = x.shape[dim] // platform.world_size()
    return ops.deepcopy(mint.narrow(x, dim, platform.rank() * size, size))


def gradients(call: Callable[..., Any], weight: Any, x: Any, parameters: Any, leaf: bool) -> Any:
    """``(output, gradients of x and of the parameters)`` of the weighted sum of the output."""
    import mindspore
    from mindspore import mint

    from hyper_dtensor import DTensor

    def loss(x: Any) -> tuple[Any, Any]:
        output = call(x)
        whole = output.full_tensor() if isinstance(output, DTensor) else output
        return mint.sum(whole * weight), output

    position = 0 if leaf else None
    if not parameters:
        (_, output), found = mindspore.value_and_grad(loss, 0, has_aux=True)(x)
        return output, found, ()
    (_, output), found = mindspore.value_and_grad(loss, position, list(parameters), has_aux=True)(x)
    return (output, found[0], found[1]) if leaf else (output, None, found)


def check(
    cell: Any,
    plan: Any,
    x: Any,
    *,
    in_dim: int | None = None,
    out_dim: int | None = None,
    call: Callable[[Any, Any], Any] = lambda cell, x: cell(x),
    tolerance: float = 2e-5,
    reference: Any = None,
) -> Any:
    """Forward and gradients of ``cell`` under ``plan`` against one device.

    Args:
        cell: The cell; it stays as it is.
        plan: The plan for a copy of it.
        x: The whole input.
        in_dim: The copy gets this rank's piece of ``x`` along it; all of ``x`` if None.
        out_dim: The copy returns this rank's piece along it, if it returns a plain tensor.
        call: How the cell is called.
        tolerance: Relative.
        reference: The cell of one device, where it is another one with the same parameters.

    Returns:
        The copy.
    """
    import mindspore

    from hyper_dtensor import DTensor
    from hyper_parallel import parallelize_module

    reference = cell if reference is None else reference
    parallel = parallelize_module(copy.deepcopy(cell), mesh_of_all(), plan)
    leaf = x.dtype in (mindspore.float32, mindspore.float64, mindspore.float16)
    shape = call(reference, x).shape
    weight = mindspore.Tensor(np.random.default_rng(9).standard_normal(shape).astype(np.float32))
    expected, of_x, wanted = gradients(
        lambda x: call(reference, x), weight, x, reference.trainable_params(), leaf
    )
    local = piece(x, in_dim)
    probe = call(parallel, local)
    ours = weight if isinstance(probe, DTensor) else piece(weight, out_dim)
    found, of_local, got = gradients(
        lambda x: call(parallel, x), ours, local, parallel.trainable_params(), leaf
    )
    close(found, expected if isinstance(found, DTensor) else piece(expected, out_dim), "output", tolerance)
    if leaf:
        close(of_local, piece(of_x, in_dim), "input", tolerance)
    gradients_equal(parallel.trainable_params(), got, wanted, tolerance)
    return parallel
