"""`SamplePlatform`: the verbs of `hyper_dtensor.Platform` that the first milestone asks for."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from hyper_dtensor import Spec
from hyper_platform_sample import ops
from hyper_platform_sample.processes import Group, World
from hyper_platform_sample.tensor import SampleDTensor, SampleTensor, tensor

__all__ = ["SamplePlatform"]

Array = NDArray[Any]

_REDUCTIONS: dict[str, np.ufunc] = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}


class SamplePlatform:
    """A group is the tuple of its ranks, in the order of the mesh.

    Attributes:
        world: The processes; this one alone until the harness has joined the others.
        generator: Where random numbers come from.
    """

    name = "sample"
    device_types: tuple[str, ...] = ("cpu",)
    framework = "NumPy in processes"
    ops: Any = ops

    def __init__(self) -> None:
        self.world = World()
        self.generator = np.random.default_rng(0)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{self.name} has no verb {name!r} yet: it is of milestone 2 or 3")

    # -- processes -----------------------------------------------------------------------------------
    def rank(self) -> int:
        """The number of this process."""
        return self.world.rank

    def world_size(self) -> int:
        """How many there are."""
        return self.world.size

    def start(self, device_type: str) -> None:
        """Nothing but a check: the processes have met when they were started."""
        self.device_count(device_type)

    def device_count(self, device_type: str) -> int:
        """One CPU."""
        if device_type not in self.device_types:
            raise ValueError(
                f"unknown device type {device_type!r}: {self.name} has {', '.join(self.device_types)}"
            )
        return 1

    def group(self, ranks: Group) -> Group:
        """The ranks: nobody else has to know."""
        return ranks

    def native_group(self, group: Group) -> Group:
        """The ranks."""
        return group

    def group_ranks(self, group: Group) -> Group:
        """The ranks."""
        return group

    # -- collectives ---------------------------------------------------------------------------------
    def _of_all(self, x: SampleTensor, group: Group) -> list[Array]:
        return self.world.exchange(np.asarray(x), group)

    def _mine(self, whole: Array, dim: int, group: Group) -> Array:
        """This rank's piece along a dim: by its position in the group, not by its rank."""
        return np.split(whole, len(group), dim)[group.index(self.world.rank)]

    def all_reduce(self, x: SampleTensor, op: str, group: Group) -> SampleTensor:
        """Reduced in the order of the group on every rank, so that all get the same bits."""
        arrays = self._of_all(x, group)
        if op == "sum" and x.dtype == np.bool_:
            arrays = [array.astype(np.int64) for array in arrays]
        return tensor(functools.reduce(_REDUCTIONS[op], arrays))

    def all_gather(self, x: SampleTensor, dim: int, group: Group) -> SampleTensor:
        """Joined along a dim."""
        return tensor(np.concatenate(self._of_all(x, group), dim))

    def reduce_scatter(self, x: SampleTensor, dim: int, op: str, group: Group) -> SampleTensor:
        """Reduced, and cut."""
        return tensor(self._mine(self.all_reduce(x, op, group), dim, group).copy())

    def all_to_all(self, x: SampleTensor, split_dim: int, concat_dim: int, group: Group) -> SampleTensor:
        """This rank's piece of every tensor, joined."""
        pieces = [self._mine(array, split_dim, group) for array in self._of_all(x, group)]
        return tensor(np.concatenate(pieces, concat_dim))

    def broadcast(self, x: SampleTensor, source: int, group: Group) -> SampleTensor:
        """The tensor of one rank."""
        return tensor(self._of_all(x, group)[source])

    def scatter(self, x: SampleTensor, dim: int, source: int, group: Group) -> SampleTensor:
        """This rank's piece of the tensor of one rank."""
        return tensor(self._mine(self._of_all(x, group)[source], dim, group).copy())

    def all_gather_object(self, value: Any, group: Group) -> list[Any]:
        """The values of all ranks."""
        return self.world.exchange(value, group)

    # -- autograd: there is none yet, and this is what that looks like --------------------------------
    def linear(
        self,
        x: SampleTensor,
        forward: Callable[[SampleTensor], SampleTensor],
        backward: Callable[[SampleTensor], SampleTensor],
        value: SampleTensor | None = None,
    ) -> SampleTensor:
        """The map itself."""
        return forward(x) if value is None else value

    def tracks_gradient(self, x: SampleTensor) -> bool:
        """Never."""
        return False

    def grad_enabled(self) -> bool:
        """Never."""
        return False

    def memo(self, x: SampleTensor) -> None:
        """None: what is kept there are views for gradients."""

    def detach(self, x: SampleTensor) -> SampleTensor:
        """An alias."""
        return x.view()

    # -- tensors -------------------------------------------------------------------------------------
    def wrap(self, x: SampleTensor, spec: Spec, shape: tuple[int, ...]) -> SampleDTensor:
        """A DTensor of this platform."""
        return SampleDTensor(x, spec, tuple(shape))

    def is_tensor(self, value: Any) -> bool:
        """A plain array is none, and neither is a DTensor."""
        return isinstance(value, SampleTensor)

    def dtype_name(self, x: SampleTensor) -> str:
        """Letter and bits; ``b`` for bool."""
        return "b" if x.dtype == np.bool_ else f"{x.dtype.kind}{8 * x.dtype.itemsize}"

    def itemsize(self, x: SampleTensor) -> int:
        """Bytes per element."""
        return x.dtype.itemsize

    def is_meta(self, x: SampleTensor) -> bool:
        """NumPy has no arrays without data."""
        return False

    def shares_memory(self, x: SampleTensor, y: SampleTensor) -> bool:
        """Whether two arrays overlap."""
        return np.shares_memory(x, y)

    def is_floating(self, x: SampleTensor) -> bool:
        """Whether the dtype is floating."""
        return x.dtype.kind == "f"

    def scale_(self, x: SampleTensor, factor: SampleTensor) -> None:
        """Multiply in place."""
        np.multiply(x, factor, out=x)

    # -- random --------------------------------------------------------------------------------------
    def draw_seed(self, device: Any) -> int:
        """One number."""
        return int(self.generator.integers(2**62))

    @contextlib.contextmanager
    def seeded(self, seed: int, device: Any) -> Iterator[None]:
        """Another generator inside."""
        before, self.generator = self.generator, np.random.default_rng(seed)
        try:
            yield
        finally:
            self.generator = before

    # -- creation ------------------------------------------------------------------------------------
    def create(self, kind: str, shape: tuple[int, ...], device_type: str, **options: Any) -> SampleTensor:
        """By NumPy's functions of these names, and its generator."""
        dtype = options.get("dtype") or np.float64
        if kind == "full":
            return tensor(np.full(shape, options["fill_value"], dtype))
        if kind in ("rand", "randn"):
            draw = self.generator.random if kind == "rand" else self.generator.standard_normal
            return tensor(np.asarray(draw(shape), dtype))
        make = cast(Callable[..., Array], {"zeros": np.zeros, "ones": np.ones, "empty": np.empty}[kind])
        return tensor(make(shape, dtype))
