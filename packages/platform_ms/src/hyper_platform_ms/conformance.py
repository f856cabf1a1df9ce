"""What the conformance suite needs to run on MindSpore: ranks on the CPU, arrays, gradients, sample cells.

The suite (``hyper_conformance``) finds `MindSporeHarness` by entry point; nothing here imports the suite.

The framework's launcher notices a failed rank after half a minute and leaves its processes behind where it is
ended itself. Here the scheduler is a child of rank 0 and ends with it.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops
from mindspore.graph.api import _pynative_executor
from numpy.typing import NDArray

from hyper_dtensor import get_platform, set_platform

__all__ = ["MindSporeHarness", "MindSporeProcesses"]

Array = NDArray[Any]

_IMPOSSIBLE = "impossible on this platform"
_DTYPES = {
    "f64": mindspore.float64,
    "f32": mindspore.float32,
    "f16": mindspore.float16,
    "bf16": mindspore.bfloat16,
    "i64": mindspore.int64,
    "i32": mindspore.int32,
    "i16": mindspore.int16,
    "i8": mindspore.int8,
    "u8": mindspore.uint8,
    "b": mindspore.bool_,
    "c64": mindspore.complex64,
    "c128": mindspore.complex128,
}


class MindSporeProcesses:
    """Ranks of MindSpore's world group on the CPU, one thread each."""

    # Importing MindSpore starts threads: a process that has done so must not be forked.
    preload: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._scheduler: subprocess.Popen[bytes] | None = None

    def rendezvous(self, world_size: int) -> int:
        """Start the scheduler; returns its port."""
        port = _free_port()
        environment = {**os.environ, **_launcher_environment(world_size, port), "MS_ROLE": "MS_SCHED"}
        program = Path(__file__).with_name("scheduler.py")
        # -P: modules beside it are imported by the name of their package only.
        command = [sys.executable, "-P", str(program), str(os.getpid())]
        self._scheduler = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
        return port

    def environment(self, rank: int, world_size: int, address: int) -> None:
        """What MindSpore's launcher would set."""
        os.environ.update(_launcher_environment(world_size, address))
        os.environ.update(MS_ROLE="MS_WORKER", MS_NODE_ID=str(rank), RANK_ID=str(rank))
        set_platform("mindspore")  # other adapters may be installed

    def join(self, rank: int, world_size: int, address: int) -> None:
        """Join the world group."""
        self.environment(rank, world_size, address)
        get_platform().start("cpu")

    def reset(self) -> None:
        """Seed and gradient state of a fresh process."""
        mindspore.set_seed(0)
        # An error in the middle of a gradient computation leaves it open.
        _pynative_executor.clear_res()
        _pynative_executor.set_grad_flag(False)

    def leave(self) -> None:
        """End the scheduler, which would complain of the ranks that leave, and this process.

        At the end of a process MindSpore looks for the scheduler for two seconds.
        """
        if self._scheduler is not None:
            self._scheduler.kill()
            self._scheduler.wait()
        os._exit(0)


class MindSporeHarness(MindSporeProcesses):
    """MindSpore on the CPU, in PyNative mode."""

    name = "mindspore"
    device_type = "cpu"
    dtypes: tuple[str, ...] = tuple(_DTYPES)
    skips: ClassVar[Mapping[str, tuple[str, str]]] = {
        "local_ops.values[clamp]": (
            _IMPOSSIBLE,
            "MindSpore rounds numbers to float32, also beside a float64 tensor, and the function is "
            "MindSpore's own: a DTensor has the values of a plain tensor",
        ),
        "autograd.the_version_counts_writes": (
            _IMPOSSIBLE,
            "an alias without history (ops.stop_gradient) counts its writes by itself",
        ),
        "autograd.backward_fills_grad": (
            _IMPOSSIBLE,
            "MindSpore records inside of a function that is differentiated; backward() outside is refused",
        ),
    }

    # -- arrays ----------------------------------------------------------------------------------------
    def tensor(self, array: Array, dtype: str) -> Tensor:
        """A fresh tensor."""
        return Tensor(array.copy(), _DTYPES[dtype])

    def array(self, x: Tensor) -> Array:
        """The values; bfloat16 as float32."""
        values: Array = (x.astype(mindspore.float32) if x.dtype == mindspore.bfloat16 else x).asnumpy()
        return values

    def meta(self, shape: tuple[int, ...]) -> None:
        """None: MindSpore has no tensors without data."""
        return None

    # -- gradients and random numbers --------------------------------------------------------------------
    def gradients(self, function: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Value and gradients with respect to plain tensors; differentiable inside of another call."""
        positions = tuple(range(len(inputs)))
        value, gradients = mindspore.value_and_grad(function, positions)(*inputs)
        return value, list(gradients) if isinstance(gradients, tuple) else [gradients]

    def parameter_gradients(
        self, function: Callable[[], Tensor], parameters: Sequence[Any]
    ) -> tuple[Tensor, list[Any]]:
        """Value and gradients with respect to parameters, of which MindSpore gives this rank's part."""
        value, gradients = mindspore.value_and_grad(function, None, weights=tuple(parameters))()
        return value, list(gradients)

    def no_grad(self) -> AbstractContextManager[Any]:
        """Gradients off."""
        context: AbstractContextManager[Any] = mindspore._no_grad()
        return context

    def seed(self, value: int) -> None:
        """Seed the default generator."""
        mindspore.set_seed(value)

    # -- sample cells ------------------------------------------------------------------------------------
    def linear(self, weight: Array, bias: Array | None) -> nn.Cell:
        """``mint.nn.Linear``; ``nn.Dense`` joins all dims but the last, which not every split allows."""
        made = mint.nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
        made.weight = Parameter(Tensor(weight.copy()), name="weight")
        if bias is not None:
            made.bias = Parameter(Tensor(bias.copy()), name="bias")
        return made

    def embedding(self, weight: Array) -> nn.Cell:
        """``nn.Embedding``."""
        made = nn.Embedding(*weight.shape)
        made.embedding_table = Parameter(Tensor(weight.copy()), name="embedding_table")
        return made

    def sequence(self, modules: Mapping[str, nn.Cell]) -> nn.Cell:
        """Cells one after the other."""
        return _Sequence(modules)

    def two_outputs(self, gain: Array) -> nn.Cell:
        """``(x * gain * scale, x + shift)``, with a buffer ``offset`` of ones that is not used."""
        return _TwoOutputs(gain)

    def tie(self, embedding: nn.Cell, linear: nn.Cell) -> None:
        """One parameter for both."""
        linear.weight = embedding.embedding_table

    # -- sample functions --------------------------------------------------------------------------------
    def random_function(self) -> Callable[..., Any]:
        """A primitive that draws random numbers."""
        primitive: Callable[..., Any] = ops.StandardNormal()
        return primitive

    def plain_function(self) -> Callable[..., Any]:
        """A primitive of one tensor that draws none."""
        primitive: Callable[..., Any] = ops.Erf()
        return primitive

    def python_function(self) -> None:
        """None: what MindSpore intercepts are built-ins."""
        return None


class _Sequence(nn.Cell):
    def __init__(self, cells: Mapping[str, nn.Cell]) -> None:
        super().__init__()
        for name, cell in cells.items():
            self.insert_child_to_cell(name, cell)

    def construct(self, x: Any) -> Any:
        for cell in self._cells.values():
            x = cell(x)
        return x


class _TwoOutputs(nn.Cell):
    def __init__(self, gain: Array) -> None:
        super().__init__()
        self.gain = Parameter(Tensor(gain.copy()), name="gain")
        self.register_buffer("offset", Tensor(np.ones_like(gain)))

    def construct(self, x: Any, *, scale: float = 1.0, shift: Any = 0.0) -> tuple[Any, Any]:
        return x * self.gain * scale, x + shift


def _free_port() -> int:
    """A port of no outgoing connection: systems take those from 32768 on.

    Ranks call the scheduler before it listens. A port that the system picks could become the caller's own:
    the connection would be one with itself, and the scheduler would find its port taken.
    """
    while True:
        port = random.SystemRandom().randrange(20000, 32768)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _launcher_environment(size: int, port: int) -> dict[str, str]:
    """What MindSpore's launcher would set for all processes."""
    return {
        "MS_SCHED_HOST": "127.0.0.1",
        "MS_SCHED_PORT": str(port),
        "MS_WORKER_NUM": str(size),
        "RANK_SIZE": str(size),
        "MS_TOPO_TIMEOUT": "95",  # on a busy machine importing MindSpore alone may take a minute
        "MS_RETRY_INTERVAL_LOWER": "0",
        "MS_RETRY_INTERVAL_UPPER": "1",
        "GLOG_v": "3",
        "OMP_NUM_THREADS": "1",
    }
