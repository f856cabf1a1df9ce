"""What these tests share: bodies that run on every rank, and the comparison with one device."""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import nn

from hyper_dtensor import DTensor, get_platform
from hyper_parallel import DeviceMesh, ParallelStyle, init_device_mesh, parallelize_module

Plan = ParallelStyle | Mapping[str, ParallelStyle]
TOLERANCE = 1e-12


def on_ranks(*sizes: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run the body of a test on every rank of a set of each size; what it asserts holds on every rank."""

    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        def test(size: int, **given: Any) -> None:
            pools = {n: given.pop(f"ranks{n}") for n in sizes}
            pools[size].run(_run_body, body.__module__, body.__qualname__, given)

        functools.update_wrapper(test, body, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = ["size", *(f"ranks{n}" for n in sizes), *inspect.signature(body).parameters]
        test.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in names])  # type: ignore[attr-defined]
        test.body = body  # type: ignore[attr-defined]
        return pytest.mark.parametrize("size", sizes)(test)

    return decorate


def _run_body(module: str, name: str, given: dict[str, Any]) -> None:
    getattr(importlib.import_module(module), name).body(**given)
    # A rank that issued fewer collectives than the others, or that still waits in one, shows here.
    ranks = tuple(range(world()))
    platform = get_platform()
    total = platform.all_reduce(torch.ones(()), "sum", platform.group(ranks))
    assert int(total) == len(ranks)


def world() -> int:
    return get_platform().world_size()


def rank() -> int:
    return get_platform().rank()


def line() -> DeviceMesh:
    """All ranks along one axis."""
    return init_device_mesh("cpu", (world(),), mesh_dim_names=("tp",))


def values(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Numbers that are the same on every rank."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def piece(x: torch.Tensor, dim: int | None, of: int | None = None) -> torch.Tensor:
    """This rank's shard along ``dim``; all of ``x`` if ``dim`` is None."""
    return x if dim is None else x.chunk(world(), dim)[rank() if of is None else of]


def whole(x: Any) -> torch.Tensor:
    """The global value of a DTensor or of a plain tensor that is the same everywhere."""
    found = x.full_tensor() if isinstance(x, DTensor) else x
    return found.detach()


def close(found: Any, expected: torch.Tensor, what: str = "", tolerance: float = TOLERANCE) -> None:
    """Equal within a relative error of the whole tensor.

    Relative to 1e-3 where the expected norm is smaller: some gradients are zero but for rounding, as that of the
    bias of a key projection, which shifts all scores of a query alike.
    """
    found, expected = whole(found), expected.detach()
    assert found.shape == expected.shape, (what, found.shape, expected.shape)
    assert found.dtype == expected.dtype, (what, found.dtype, expected.dtype)
    found, expected = found.double(), expected.double()
    error = float((found - expected).norm() / expected.norm().clamp_min(1e-3))
    assert error <= tolerance, (what, error)


def same_gradients(single: nn.Module, parallel: nn.Module, tolerance: float = TOLERANCE) -> None:
    """Every parameter of ``parallel`` has the gradient of the single device."""
    expected, found = dict(single.named_parameters()), dict(parallel.named_parameters())
    assert expected.keys() == found.keys()
    for name, parameter in expected.items():
        if parameter.grad is None:
            assert found[name].grad is None, name
            continue
        assert found[name].grad is not None, name
        close(found[name].grad, parameter.grad, name, tolerance)


def check(
    module: nn.Module,
    plan: Plan,
    x: torch.Tensor,
    *,
    in_dim: int | None = None,
    out_dim: int | None = None,
    tolerance: float = TOLERANCE,
) -> Any:
    """Forward and backward of ``module`` under ``plan`` against one device.

    Args:
        module: The module; it stays as it is.
        plan: The plan for a copy of it.
        x: The whole input.
        in_dim: The copy gets this rank's piece of ``x`` along it; all of ``x`` if None.
        out_dim: The copy returns this rank's piece of the output along it, if it returns a plain tensor.
        tolerance: Relative.

    Returns:
        The output of the copy.
    """
    module.zero_grad()
    parallel = parallelize_module(copy.deepcopy(module), line(), plan)
    leaves = x.is_floating_point()
    x = x.detach().clone().requires_grad_(leaves)
    local = piece(x.detach(), in_dim).clone().requires_grad_(leaves)
    expected, found = module(x), parallel(local)
    sensitivity = values(*expected.shape, seed=9, dtype=expected.dtype)
    expected.backward(sensitivity)
    if isinstance(found, DTensor):
        close(found, expected.detach(), "output", tolerance)
        found.backward(sensitivity)
    else:
        close(found, piece(expected.detach(), out_dim), "output", tolerance)
        found.backward(piece(sensitivity, out_dim))
    if leaves:
        assert x.grad is not None and local.grad is not None
        close(local.grad, piece(x.grad, in_dim), "input", tolerance)
    same_gradients(module, parallel, tolerance)
    return found


def refused(kind: type[Exception], match: str, call: Callable[[], Any]) -> None:
    """``call`` raises exactly ``kind`` (not a subclass) on this rank, at once."""
    with pytest.raises(kind, match=match) as info:
        call()
    assert type(info.value) is kind, type(info.value)
