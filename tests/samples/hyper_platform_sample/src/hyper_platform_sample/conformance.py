"""How the conformance suite starts ranks of this platform and makes its tensors (`hyper_conformance.Harness`)."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hyper_dtensor import get_platform, set_platform
from hyper_platform_sample.platform import SamplePlatform
from hyper_platform_sample.processes import Address, World, open_hub
from hyper_platform_sample.tensor import SampleTensor, tensor

__all__ = ["SampleHarness"]

Array = NDArray[Any]

_DTYPES = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "i64": np.int64,
    "i32": np.int32,
    "i16": np.int16,
    "i8": np.int8,
    "u8": np.uint8,
    "b": np.bool_,
    "c64": np.complex64,
    "c128": np.complex128,
}


class SampleHarness:
    """The methods of milestone 1; gradients and sample modules come with the milestones that use them."""

    name = "sample"
    device_type = "cpu"
    dtypes: tuple[str, ...] = tuple(_DTYPES)
    skips: ClassVar[Mapping[str, tuple[str, str]]] = {}

    # -- ranks: the suite starts the processes, these make each of them one of a world ------------------
    preload: tuple[str, ...] = ("hyper_platform_sample",)

    def rendezvous(self, world_size: int) -> Address:
        """On rank 0: open the hub."""
        return open_hub(world_size)

    def join(self, rank: int, world_size: int, address: Address) -> None:
        """On every rank: connect to it."""
        platform = SamplePlatform()
        platform.world = World(rank, world_size, address)
        set_platform(platform)

    def reset(self) -> None:
        """Before each case: the random numbers of a fresh process."""
        self.seed(0)

    def leave(self) -> None:
        """At the end."""
        _platform().world.leave()

    # -- arrays ----------------------------------------------------------------------------------------
    def tensor(self, array: Array, dtype: str) -> SampleTensor:
        """A fresh tensor."""
        return tensor(np.array(array, _DTYPES[dtype]))

    def array(self, x: SampleTensor) -> Array:
        """The values."""
        return np.asarray(x)

    def meta(self, shape: tuple[int, ...]) -> None:
        """There are none."""

    # -- gradients and random numbers --------------------------------------------------------------------
    def no_grad(self) -> contextlib.AbstractContextManager[Any]:
        """There are no gradients."""
        return contextlib.nullcontext()

    def seed(self, value: int) -> None:
        """Seed the generator of this rank's platform."""
        _platform().generator = np.random.default_rng(value)


def _platform() -> SamplePlatform:
    platform = get_platform()
    assert isinstance(platform, SamplePlatform)
    return platform
