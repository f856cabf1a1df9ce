"""What bodies that run on MindSpore's ranks begin with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["close", "distributed", "gradients_equal", "mesh_of_all", "mlp", "refused", "tensor", "whole"]


def mesh_of_all(*shape: int) -> Any:
    """A mesh of all ranks with the axes ``dp``, ``tp`` (one axis: ``tp``)."""
    from hyper_dtensor import get_platform, init_device_mesh

    shape = shape or (get_platform().world_size(),)
    return init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp")[-len(shape) :])


def tensor(*shape: int, seed: int = 0, dtype: str = "float32") -> Any:
    """Numbers that are the same on every rank."""
    from mindspore import Tensor

    return Tensor(np.asarray(np.random.default_rng(seed).standard_normal(shape), dtype))


def distributed(value: Any, mesh: Any, *placements: Any) -> Any:
    """A DTensor cut from a whole tensor that every rank has, without communication."""
    from hyper_dtensor import distribute_tensor

    return distribute_tensor(value, mesh, placements, src_data_rank=None)


def whole(value: Any) -> np.ndarray:
    """The global values of a DTensor, or of a plain tensor."""
    from hyper_dtensor import DTensor

    found = value.full_tensor() if isinstance(value, DTensor) else value
    return np.asarray(found.asnumpy())


def close(found: Any, expected: Any, what: Any = "", tolerance: float = 2e-5) -> None:
    """Equal within an error relative to the whole tensor; to 0.2 where it is smaller.

    Some gradients are zero but for rounding, as that of the bias of a key projection.
    """
    got, wanted = whole(found), whole(expected)
    assert got.shape == wanted.shape and got.dtype == wanted.dtype, (what, got.shape, wanted.shape, got.dtype)
    scale = max(float(np.abs(wanted).max(initial=0.0)), 0.2)
    assert float(np.abs(got - wanted).max(initial=0.0)) <= tolerance * scale, (what, got, wanted)


def gradients_equal(
    parameters: Sequence[Any], found: Sequence[Any], expected: Sequence[Any], tolerance: float = 2e-5
) -> None:
    """Gradients of parameters, of which MindSpore gives this rank's part, against the whole ones."""
    from hyper_dtensor import DTensor

    for parameter, gradient, single in zip(parameters, found, expected, strict=True):
        if isinstance(parameter, DTensor):
            gradient = DTensor.from_local(gradient, parameter.device_mesh, parameter.placements)
        close(gradient, single, parameter.name, tolerance)


def mlp() -> Any:
    """Two layers with the same numbers wherever they are made."""
    from mindspore import Tensor, nn

    source = np.random.default_rng(0)
    cell = nn.SequentialCell(nn.Dense(8, 16), nn.ReLU(), nn.Dense(16, 4))
    for _, parameter in cell.parameters_and_names():
        parameter.set_data(Tensor((source.standard_normal(parameter.shape) * 0.3).astype(np.float32)))
    return cell


def refused(kind: type[Exception], match: str, call: Callable[[], Any]) -> None:
    """``call`` raises ``kind`` on this rank, at once."""
    import pytest

    with pytest.raises(kind, match=match):
        call()
