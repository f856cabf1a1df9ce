"""What the conformance suite needs to run on PyTorch: ranks, arrays, gradients, sample modules.

The suite (``hyper_conformance``) finds `TorchHarness` by entry point; nothing here imports the suite.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import nn

__all__ = ["TorchHarness"]

Array = NDArray[Any]

_DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "b": torch.bool,
    "c64": torch.complex64,
    "c128": torch.complex128,
}


class TorchHarness:
    """PyTorch on the CPU: gloo over the loopback interface, one thread per rank."""

    name = "torch"
    device_type = "cpu"
    dtypes: tuple[str, ...] = tuple(_DTYPES)
    skips: ClassVar[Mapping[str, tuple[str, str]]] = {}
    # Importing torch starts no thread: forking is safe. The second is what the first backward imports.
    preload: tuple[str, ...] = ("torch", "torch.fx.experimental.symbolic_shapes", "hyper_platform_torch")

    def __init__(self) -> None:
        self._store: Any = None

    # -- processes -------------------------------------------------------------------------------------
    def rendezvous(self, world_size: int) -> int:
        """Hold the store of the ranks, as torchrun's agent does; returns its port."""
        self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        return int(self._store.port)

    def environment(self, rank: int, world_size: int, address: int) -> None:
        """What torchrun would set."""
        os.environ.update(
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(world_size),
            LOCAL_WORLD_SIZE=str(world_size),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(address),
            TORCHELASTIC_USE_AGENT_STORE="True",
            # Else gloo looks for its address under the host's name, which may resolve to anything.
            GLOO_SOCKET_IFNAME="lo0" if sys.platform == "darwin" else "lo",
        )
        torch.set_num_threads(1)
        if self._store is None:
            self._store = dist.TCPStore("127.0.0.1", address, is_master=False)

    def join(self, rank: int, world_size: int, address: int) -> None:
        """Start the default process group."""
        self.environment(rank, world_size, address)
        store = dist.PrefixStore("harness", self._store)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)

    def reset(self) -> None:
        """Seed, default dtype and gradient mode of a fresh process."""
        torch.manual_seed(0)
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)

    def leave(self) -> None:
        """Destroy the process group."""
        if dist.is_initialized():
            dist.destroy_process_group()

    # -- arrays ----------------------------------------------------------------------------------------
    def tensor(self, array: Array, dtype: str) -> torch.Tensor:
        """A fresh tensor."""
        return torch.tensor(array, dtype=_DTYPES[dtype])

    def array(self, x: torch.Tensor) -> Array:
        """The values; bfloat16 as float32."""
        x = x.detach()
        values: Array = (x.float() if x.dtype == torch.bfloat16 else x).numpy()
        return values

    def meta(self, shape: tuple[int, ...]) -> torch.Tensor | None:
        """A tensor of the meta device."""
        return torch.empty(shape, device="meta")

    # -- gradients and random numbers --------------------------------------------------------------------
    def gradients(
        self, function: Callable[..., torch.Tensor], *inputs: torch.Tensor
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Value and gradients with respect to plain tensors; differentiable inside of another call."""
        nested = any(x.requires_grad for x in inputs)
        leaves = [x if x.requires_grad else x.detach().requires_grad_() for x in inputs]
        value = function(*leaves)
        found = torch.autograd.grad(value, leaves, create_graph=nested, materialize_grads=True)
        return value, list(found)

    def parameter_gradients(
        self, function: Callable[[], torch.Tensor], parameters: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Value and gradients with respect to parameters."""
        value = function()
        return value, list(torch.autograd.grad(value, parameters, materialize_grads=True))

    def no_grad(self) -> AbstractContextManager[Any]:
        """Gradients off."""
        return torch.no_grad()

    def seed(self, value: int) -> None:
        """Seed the default generator."""
        torch.manual_seed(value)

    # -- sample modules ----------------------------------------------------------------------------------
    def linear(self, weight: Array, bias: Array | None) -> nn.Module:
        """``nn.Linear``."""
        made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
        made.weight = nn.Parameter(torch.from_numpy(weight.copy()))
        if bias is not None:
            made.bias = nn.Parameter(torch.from_numpy(bias.copy()))
        return made

    def embedding(self, weight: Array) -> nn.Module:
        """``nn.Embedding``."""
        rows, columns = weight.shape
        return nn.Embedding(rows, columns, _weight=torch.from_numpy(weight.copy()))

    def sequence(self, modules: Mapping[str, nn.Module]) -> nn.Module:
        """Modules one after the other."""
        made = nn.Sequential()
        for name, module in modules.items():
            made.add_module(name, module)
        return made

    def two_outputs(self, gain: Array) -> nn.Module:
        """``(x * gain * scale, x + shift)``, with a buffer ``offset`` of ones that is not used."""
        return _TwoOutputs(torch.from_numpy(gain.copy()))

    def tie(self, embedding: nn.Module, linear: nn.Module) -> None:
        """One parameter for both."""
        linear.weight = embedding.weight

    # -- sample functions --------------------------------------------------------------------------------
    def random_function(self) -> Callable[..., Any]:
        """A built-in that draws random numbers."""
        return torch.rand_like

    def plain_function(self) -> Callable[..., Any]:
        """A built-in of one tensor that draws none."""
        return torch.erf

    def python_function(self) -> Callable[..., Any] | None:
        """A function of one tensor that the framework wrote in Python."""
        return nn.functional.tanhshrink


class _TwoOutputs(nn.Module):
    def __init__(self, gain: torch.Tensor) -> None:
        super().__init__()
        self.gain = nn.Parameter(gain)
        self.register_buffer("offset", torch.ones_like(gain))

    def forward(self, x: Any, *, scale: float = 1.0, shift: Any = 0.0) -> tuple[Any, Any]:
        return x * self.gain * scale, x + shift
