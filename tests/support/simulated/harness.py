"""What the conformance suite needs to run on the simulated platform."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tests.support import simulated as sim
from tests.support.simulated import ops, tape

__all__ = ["SimulatedHarness"]

Array = NDArray[Any]

_DTYPES = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "i64": np.int64,
    "i32": np.int32,
    "b": np.bool_,
}
_NOT_NEEDED = ("to do", "no test of the core needs this function in NumPy")


class _Ranks:
    """Threads, started for each call."""

    def __init__(self, size: int) -> None:
        self._size = size

    def run(self, fn: Callable[..., Any], *args: Any) -> list[Any]:
        """What each rank returned."""
        return sim.run_ranks(self._size, fn, *args)

    def close(self) -> None:
        """Nothing runs between calls."""


class SimulatedHarness:
    """The platform in NumPy of the tests of the core."""

    name = "simulated"
    device_type = "cpu"
    dtypes: tuple[str, ...] = tuple(_DTYPES)
    skips: ClassVar[Mapping[str, tuple[str, str]]] = {
        "local_ops.*[einsum]": _NOT_NEEDED,
        "local_ops.*[prod]": _NOT_NEEDED,
        "local_ops.*[prod_all]": _NOT_NEEDED,
        "local_ops.*[tile]": _NOT_NEEDED,
        "local_ops.*[vector_norm]": _NOT_NEEDED,
        "local_ops.cast_to_float32": _NOT_NEEDED,
    }

    def launch(self, world_size: int) -> _Ranks:
        """Ranks are threads."""
        return _Ranks(world_size)

    # -- arrays ----------------------------------------------------------------------------------------
    def tensor(self, array: Array, dtype: str) -> sim.SimTensor:
        """A fresh tensor."""
        return ops.tensor(array, _DTYPES[dtype])

    def array(self, x: sim.SimTensor) -> Array:
        """The values."""
        return x.array

    def meta(self, shape: tuple[int, ...]) -> sim.SimTensor | None:
        """One zero, broadcast."""
        return sim.SimTensor(np.broadcast_to(0.0, shape), meta=True)

    # -- gradients and random numbers --------------------------------------------------------------------
    def gradients(
        self, function: Callable[..., sim.SimTensor], *inputs: sim.SimTensor
    ) -> tuple[sim.SimTensor, list[sim.SimTensor]]:
        """Value and gradients with respect to plain tensors."""
        nested = any(x.requires_grad for x in inputs)
        leaves = [x if x.requires_grad else ops.tensor(x.array, requires_grad=True) for x in inputs]
        value = function(*leaves)
        found = tape.grad([value], leaves, [ops.tensor(1.0)], create_graph=nested)
        return value, [ops.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]

    def parameter_gradients(
        self, function: Callable[[], sim.SimTensor], parameters: Sequence[Any]
    ) -> tuple[sim.SimTensor, list[Any]]:
        """Value and gradients with respect to parameters, local."""
        value = function()
        leaves = [getattr(parameter, "_local", parameter) for parameter in parameters]
        return value, list(tape.grad([value], leaves, [ops.tensor(1.0)]))

    def no_grad(self) -> AbstractContextManager[Any]:
        """Gradients off."""
        context: AbstractContextManager[Any] = sim.no_grad()
        return context

    def seed(self, value: int) -> None:
        """Seed the generator of this rank."""
        sim.manual_seed(value)

    # -- sample modules ----------------------------------------------------------------------------------
    def linear(self, weight: Array, bias: Array | None) -> sim.SimModule:
        """``SimLinear``."""
        made = sim.SimLinear(weight.shape[1], weight.shape[0], bias=bias is not None)
        made.weight = sim.SimParameter(weight.copy())
        if bias is not None:
            made.bias = sim.SimParameter(bias.copy())
        return made

    def embedding(self, weight: Array) -> sim.SimModule:
        """``SimEmbedding``."""
        made = sim.SimEmbedding(*weight.shape)
        made.weight = sim.SimParameter(weight.copy())
        return made

    def sequence(self, modules: Mapping[str, sim.SimModule]) -> sim.SimModule:
        """Modules one after the other."""
        made = sim.SimSequential()
        for name, module in modules.items():
            setattr(made, name, module)
        return made

    def two_outputs(self, gain: Array) -> sim.SimModule:
        """``(x * gain * scale, x + shift)``."""
        return _TwoOutputs(gain)

    def tie(self, embedding: sim.SimModule, linear: sim.SimModule) -> None:
        """One parameter for both."""
        linear.weight = embedding.weight

    # -- sample functions --------------------------------------------------------------------------------
    def random_function(self) -> Callable[..., Any]:
        """A function that says that it draws."""

        def noise(x: Any) -> Any:
            return x

        noise.is_random = True  # type: ignore[attr-defined]
        return noise

    def plain_function(self) -> Callable[..., Any]:
        """A function of ``ops``."""
        return ops.exp

    def python_function(self) -> None:
        """There are none: the functions of ``ops`` play built-ins."""
        return None


class _TwoOutputs(sim.SimModule):
    def __init__(self, gain: Array) -> None:
        super().__init__()
        self.gain = sim.SimParameter(gain.copy())
        self.register_buffer("offset", ops.tensor(np.ones_like(gain)))

    def forward(self, x: Any, *, scale: float = 1.0, shift: Any = 0.0) -> Any:
        return x * self.gain * scale, x + shift
