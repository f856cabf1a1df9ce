"""What the tests of the torch adapter share: meshes, small models, and comparison with one device."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from hyper_dtensor import DTensor, distribute_parameter, distribute_tensor, init_device_mesh
from hyper_layout import DeviceMesh, Partial, Placement, Replicate, Shard

R, S0, S1, P = Replicate(), Shard(0), Shard(1), Partial()


def line() -> DeviceMesh:
    """All ranks along one axis."""
    return init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))


def square() -> DeviceMesh:
    """Four ranks as 2 x 2."""
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    """The same numbers on every rank."""
    generator = torch.Generator().manual_seed(1000 * seed + sum((7 * i + 1) * n for i, n in enumerate(shape)))
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def laid_out(whole: torch.Tensor, mesh: DeviceMesh, *placements: Placement) -> DTensor:
    """``whole`` on ``mesh`` as a leaf, without communication."""
    return distribute_tensor(whole, mesh, placements, src_data_rank=None)


class Block(nn.Module):
    """An embedding-free block with every kind of parameter: split by columns and rows, whole, and plain."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(11)

        def parameter(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64) * 0.5)

        self.up = parameter(8, 4)
        self.up_bias = parameter(8)
        self.down = parameter(4, 8)
        self.gain = parameter(4)
        self.outside = nn.Linear(4, 4, dtype=torch.float64)
        with torch.no_grad():
            for p in self.outside.parameters():
                p.copy_(torch.randn(p.shape, generator=generator, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(nn.functional.linear(x, self.up, self.up_bias))
        out = nn.functional.linear(hidden, self.down) * self.gain
        if isinstance(out, DTensor):  # the plain layer stands outside of the distributed part
            out = out.full_tensor()
        return self.outside(out)


LAYOUT: dict[str, Placement] = {"up": S0, "up_bias": S0, "down": S1, "gain": R}
"""Of a `Block` on one axis; the layer outside stays plain."""


def distribute(block: Block, mesh: DeviceMesh, layout: dict[str, Placement] = LAYOUT) -> Block:
    """The parameters of ``block`` in place."""
    for name, placement in layout.items():
        distribute_parameter(block, name, mesh, [placement], src_data_rank=None)
    return block


def loss_of(block: nn.Module, x: Any) -> torch.Tensor:
    return block(x).square().mean()


def full(value: Any) -> Any:
    """The whole tensor, detached, whatever it is."""
    if isinstance(value, DTensor):
        value = value.detach().full_tensor()
    return value.detach() if isinstance(value, torch.Tensor) else value


def assert_equal(got: Any, expected: Any, what: str = "", tolerance: float = 1e-12) -> None:
    """Relative equality of whole tensors, for each rank."""
    got, expected = full(got), full(expected)
    assert tuple(got.shape) == tuple(expected.shape), (
        f"{what}: {tuple(got.shape)} instead of {tuple(expected.shape)}"
    )
    assert got.dtype == expected.dtype, f"{what}: {got.dtype} instead of {expected.dtype}"
    if not got.is_floating_point():
        got, expected = got.double(), expected.double()
    scale = max(float(expected.abs().max()) if expected.numel() else 0.0, 1e-30)
    error = float((got - expected).abs().max()) if expected.numel() else 0.0
    assert error <= tolerance * scale, f"{what}: relative error {error / scale:.1e}"


def assert_same_parameters(got: nn.Module, expected: nn.Module, tolerance: float = 1e-12) -> None:
    theirs = dict(expected.named_parameters())
    for name, p in got.named_parameters():
        assert_equal(p, theirs[name], name, tolerance)


def assert_same_gradients(got: nn.Module, expected: nn.Module, tolerance: float = 1e-12) -> None:
    theirs = dict(expected.named_parameters())
    for name, p in got.named_parameters():
        other = theirs[name].grad
        assert (p.grad is None) == (other is None), name
        if p.grad is not None:
            assert_equal(p.grad, other, f"gradient of {name}", tolerance)


def pair(mesh: DeviceMesh | None = None) -> tuple[Block, Block]:
    """A single-device block and the same one distributed."""
    single = Block()
    return single, distribute(copy.deepcopy(single), mesh or line())


def batches(mesh: DeviceMesh, count: int) -> Sequence[tuple[torch.Tensor, DTensor]]:
    """Inputs, plain and Replicate."""
    whole = [numbers(6, 4, seed=seed) for seed in range(count)]
    return [(x, laid_out(x, mesh, *[R] * mesh.ndim)) for x in whole]


def raised(call: Callable[[], Any], kind: type[Exception] = RuntimeError) -> str:
    """The message of the exception that ``call`` raises on this rank."""
    try:
        result = call()
    except kind as error:
        return str(error)
    raise AssertionError(f"did not raise {kind.__name__}, but returned {result!r}")
