"""``SimulatedPlatform``: the Platform protocol in NumPy, with the threads of a ``World`` as ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

import hyper_dtensor.platform as registry
from hyper_dtensor import Spec
from hyper_dtensor.platform import exchanged_platform
from tests.support.simulated import ops, tape
from tests.support.simulated.dtensor import SimDTensor
from tests.support.simulated.modules import SimEmbedding, SimLinear, SimModule, watchers
from tests.support.simulated.tensor import SimTensor
from tests.support.simulated.world import current_world, world_size

__all__ = ["SimulatedPlatform", "gather", "manual_seed", "simulated_platform"]

REDUCTIONS: dict[str, Any] = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}
DTYPES = {"float64": "f64", "float32": "f32", "float16": "f16", "int64": "i64", "int32": "i32", "bool": "b"}


class SimulatedPlatform:
    """Ranks are threads, a group is the tuple of its ranks, locals are ``SimTensor``.

    Attributes:
        scope: A part of ``gradient_stamp``; a test changes it to play a framework whose varying views live
            for one gradient computation.
    """

    name = "simulated"
    device_types: tuple[str, ...] = ("cpu",)
    framework = "NumPy"
    ops: Any = ops

    def __init__(self) -> None:
        self.scope: Any = 0

    # -- processes -------------------------------------------------------------------------------------
    def rank(self) -> int:
        """The rank of the calling thread."""
        return current_world()[1]

    def world_size(self) -> int:
        """The number of threads of this run; 1 outside of any."""
        return world_size()

    def start(self, device_type: str) -> None:
        """Remember that the backend of ``device_type`` was asked for."""
        self._check_known(device_type)
        world, _ = current_world()
        if world is not None:
            world.started.add(device_type)

    def device_count(self, device_type: str) -> int:
        """The one that NumPy computes on."""
        self._check_known(device_type)
        return 1

    def _check_known(self, device_type: str) -> None:
        if device_type not in self.device_types:
            known = ", ".join(self.device_types)
            raise ValueError(f"unknown device type {device_type!r}: this platform has {known}")

    def group(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        """The ranks themselves."""
        return ranks

    def native_group(self, group: tuple[int, ...]) -> tuple[int, ...]:
        """The ranks themselves."""
        return group

    def group_ranks(self, group: tuple[int, ...]) -> tuple[int, ...]:
        """The ranks themselves."""
        return group

    # -- collectives -----------------------------------------------------------------------------------
    def _exchange(self, group: tuple[int, ...], doing: str, value: Any) -> list[Any]:
        world, rank = current_world()
        if world is None:
            raise RuntimeError(f"{doing} outside of run_ranks")
        return world.exchange(rank, group, doing, value)

    def _arrays(self, group: tuple[int, ...], doing: str, x: SimTensor) -> list[Any]:
        """The arrays of all ranks, copied: what one rank does to its array later is its own affair."""
        return self._exchange(group, f"{doing} of {self.dtype_name(x)}{list(x.shape)}", x.array.copy())

    def all_reduce(self, x: SimTensor, op: str, group: tuple[int, ...]) -> SimTensor:
        """Reduce over the ranks."""
        return SimTensor(self._reduce(self._arrays(group, f"all_reduce({op})", x), op))

    def all_gather(self, x: SimTensor, dim: int, group: tuple[int, ...]) -> SimTensor:
        """Join along ``dim``."""
        return SimTensor(np.concatenate(self._arrays(group, f"all_gather({dim})", x), axis=dim))

    def reduce_scatter(self, x: SimTensor, dim: int, op: str, group: tuple[int, ...]) -> SimTensor:
        """Reduce, and keep this rank's part of ``dim``."""
        total = self._reduce(self._arrays(group, f"reduce_scatter({dim}, {op})", x), op)
        return SimTensor(self._part(total, dim, group).copy())

    def all_to_all(self, x: SimTensor, split_dim: int, concat_dim: int, group: tuple[int, ...]) -> SimTensor:
        """Split one dim over the ranks, join another."""
        arrays = self._arrays(group, f"all_to_all({split_dim}, {concat_dim})", x)
        return SimTensor(np.concatenate([self._part(a, split_dim, group) for a in arrays], axis=concat_dim))

    def broadcast(self, x: SimTensor, source: int, group: tuple[int, ...]) -> SimTensor:
        """The tensor of one rank."""
        return SimTensor(self._arrays(group, f"broadcast({source})", x)[source].copy())

    def scatter(self, x: SimTensor, dim: int, source: int, group: tuple[int, ...]) -> SimTensor:
        """This rank's part of the tensor of one rank."""
        arrays = self._arrays(group, f"scatter({dim}, {source})", x)
        return SimTensor(self._part(arrays[source], dim, group).copy())

    def all_gather_object(self, value: Any, group: tuple[int, ...]) -> list[Any]:
        """The values of all ranks."""
        return self._exchange(group, "all_gather_object", value)

    @staticmethod
    def _reduce(arrays: list[Any], op: str) -> Any:
        if op == "sum" and arrays[0].dtype == np.bool_:
            arrays = [array.astype(np.int64) for array in arrays]
        total = arrays[0].copy()
        for array in arrays[1:]:
            total = REDUCTIONS[op](total, array)
        return total

    def _part(self, array: Any, dim: int, group: tuple[int, ...]) -> Any:
        if array.shape[dim] % len(group):
            raise ValueError(f"dim {dim} of {array.shape} does not divide into {len(group)} parts")
        return np.split(array, len(group), axis=dim)[group.index(self.rank())]

    # -- autograd --------------------------------------------------------------------------------------
    def linear(
        self,
        x: SimTensor,
        forward: Callable[[Any], Any],
        backward: Callable[[Any], Any],
        value: SimTensor | None = None,
    ) -> SimTensor:
        """``forward(x)`` with gradient ``backward(g)``, to any order."""
        if not self.tracks_gradient(x):
            return forward(x) if value is None else value
        with tape.no_grad():
            out = ops.detach(forward(ops.detach(x)) if value is None else value)
        return tape.record(out, "linear", (x,), lambda g: (self.linear(g, backward, forward),))

    def tracks_gradient(self, x: SimTensor) -> bool:
        """Whether an operation on ``x`` would be recorded."""
        return tape.grad_enabled() and x.requires_grad

    def grad_enabled(self) -> bool:
        """Whether operations are recorded."""
        return tape.grad_enabled()

    def deferred_view(self, t: Any, axes: int) -> None:
        """None: the tape reduces in the graph."""

    def version(self, x: SimTensor) -> int:
        """How often the storage was written in place."""
        return x.counter.count

    def gradient_stamp(self, x: SimTensor) -> Any:
        """The number of writes, if a gradient is tracked, and what a test makes of ``scope``."""
        return (self.version(x), self.scope) if self.tracks_gradient(x) else None

    def detach(self, x: SimTensor) -> SimTensor:
        """An alias without history."""
        return ops.detach(x)

    def backward(self, x: SimTensor, gradient: SimTensor, **options: Any) -> None:
        """The tape's backward."""
        tape.backward(x, gradient, **options)

    # -- tensors ---------------------------------------------------------------------------------------
    def wrap(self, x: SimTensor, spec: Spec, shape: tuple[int, ...]) -> SimDTensor:
        """A ``SimDTensor``."""
        return SimDTensor(x, spec, tuple(shape))

    def is_tensor(self, value: Any) -> bool:
        """Whether ``value`` is a ``SimTensor``."""
        return isinstance(value, SimTensor)

    def dtype_name(self, x: SimTensor) -> str:
        """Letter and bits."""
        return DTYPES[x.dtype.name]

    def itemsize(self, x: SimTensor) -> int:
        """Bytes per element."""
        return x.dtype.itemsize

    def is_meta(self, x: SimTensor) -> bool:
        """Whether there is no data."""
        return x.is_meta

    def shares_memory(self, x: SimTensor, y: SimTensor) -> bool:
        """Whether both are views of one array."""
        return np.shares_memory(x.array, y.array)

    def is_floating(self, x: SimTensor) -> bool:
        """Whether the dtype is floating."""
        return x.dtype.kind == "f"

    def scale_(self, x: SimTensor, factor: SimTensor) -> None:
        """Multiply in place, without gradient."""
        ops.mul_(ops.detach(x), ops.detach(factor))

    def memo(self, x: SimTensor) -> dict[Any, Any] | None:
        """A dictionary on the tensor itself, for non-leaves that need a gradient."""
        if x.is_leaf or not x.requires_grad:
            return None
        if x.memo is None:
            x.memo = {}
        return x.memo

    # -- random ----------------------------------------------------------------------------------------
    def draw_seed(self, device: Any) -> int:
        """One number from this rank's generator."""
        return int(_state().setdefault("generator", np.random.default_rng(0)).integers(2**62))

    @contextlib.contextmanager
    def seeded(self, seed: int, device: Any) -> Iterator[None]:
        """Draw from a generator seeded with ``seed``."""
        state = _state()
        before = state.get("generator")
        state["generator"] = np.random.default_rng(seed)
        try:
            yield
        finally:
            state["generator"] = np.random.default_rng(0) if before is None else before

    # -- functions nobody registered -------------------------------------------------------------------
    def python_body(self, func: Callable[..., Any]) -> Callable[..., Any] | None:
        """None: the functions of ``ops`` play built-ins."""
        return None

    def is_random(self, func: Callable[..., Any]) -> bool:
        """Whether the function is marked ``is_random``."""
        return bool(getattr(func, "is_random", False))

    # -- modules ---------------------------------------------------------------------------------------
    def children(self, module: SimModule) -> Mapping[str, SimModule]:
        """Direct submodules."""
        return dict(module.own_children)

    def parameters(self, module: SimModule) -> Mapping[str, Any]:
        """Own parameters."""
        return {name: p for name, p in module.own_parameters.items() if p is not None}

    def buffers(self, module: SimModule) -> Mapping[str, Any]:
        """Own buffers."""
        return {name: b for name, b in module.own_buffers.items() if b is not None}

    def set_parameter(self, module: SimModule, name: str, value: Any) -> None:
        """Swap the contents of the two objects, as ``torch.utils.swap_tensors`` does."""
        held = module.own_parameters[name]
        held.__class__, value.__class__ = value.__class__, held.__class__
        held.__dict__, value.__dict__ = value.__dict__, held.__dict__

    def set_buffer(self, module: SimModule, name: str, value: Any) -> None:
        """Replace a buffer."""
        module.own_buffers[name] = value

    def before_forward(self, module: SimModule, hook: Callable[..., Any]) -> Any:
        """Hook before the forward."""
        return module.add_hook(module.before_hooks, hook)

    def after_forward(self, module: SimModule, hook: Callable[..., Any]) -> Any:
        """Hook after the forward."""
        return module.add_hook(module.after_hooks, hook)

    @contextlib.contextmanager
    def watch_modules(self, enter: Callable[[Any], None], leave: Callable[[Any], None]) -> Iterator[None]:
        """Watch the forward of every module of this thread."""
        pair = (enter, leave)
        watchers().append(pair)
        try:
            yield
        finally:
            watchers().remove(pair)

    def is_linear_module(self, module: Any) -> bool:
        """Whether it is a ``SimLinear``."""
        return isinstance(module, SimLinear)

    def is_embedding_module(self, module: Any) -> bool:
        """Whether it is a ``SimEmbedding``."""
        return isinstance(module, SimEmbedding)

    # -- creation --------------------------------------------------------------------------------------
    def create(self, kind: str, shape: tuple[int, ...], device_type: str, **options: Any) -> SimTensor:
        """Zeros, ones, empty, full, rand or randn."""
        dtype = np.dtype(options.get("dtype") or "float64")
        if kind in ("rand", "randn"):
            generator = _state()["generator"]
            array = generator.random(shape) if kind == "rand" else generator.standard_normal(shape)
            return SimTensor(np.asarray(array, dtype))
        value = {"zeros": 0, "ones": 1, "empty": 0, "full": options.get("fill_value")}[kind]
        return SimTensor(np.full(shape, value, dtype))


_outside: dict[str, Any] = {}


def _state() -> dict[str, Any]:
    """What belongs to the calling rank."""
    world, rank = current_world()
    return _outside if world is None else world.state[rank]


def manual_seed(seed: int) -> None:
    """Seed the default generator of the calling rank."""
    _state()["generator"] = np.random.default_rng(seed)


def gather(value: Any) -> list[Any]:
    """``value`` of every rank, on every rank; for what a test compares across ranks."""
    world, rank = current_world()
    assert world is not None
    return world.exchange(rank, tuple(range(world.size)), "gather of a test", value)


@contextlib.contextmanager
def simulated_platform() -> Iterator[SimulatedPlatform]:
    """The block runs on a ``SimulatedPlatform`` (the one that is chosen already, if any)."""
    chosen = registry._chosen
    if isinstance(chosen, SimulatedPlatform):
        yield chosen
        return
    platform = SimulatedPlatform()
    with exchanged_platform(platform):
        yield platform
