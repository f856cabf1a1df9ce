"""The three sides that are compared under MindSpore, in one process that says it is one of eight ranks.

Nothing is sent: the platform is ours, but for its collectives, which return at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, mint
from mindspore._c_expression import NoFallbackGuard
from mindspore.graph.api import _pynative_executor
from mindspore.ops import Primitive

import hyper_parallel
from benchmarks.case import OURS, PLAIN
from benchmarks.timing import Call, Side
from hyper_platform_ms import MindSporePlatform
from hyper_platform_ms.local_basics import clone
from hyper_platform_ms.processes import MindSporeGroup

__all__ = ["INTERCEPTED", "RANKS", "Intercepted", "Ours", "Plain", "gradients", "side_by_side", "start"]

RANKS = 8
INTERCEPTED = "intercepted"


class FreeCollectives(MindSporePlatform):
    """Rank 0 of eight, whose collectives return what has the right shape, without asking anybody."""

    def group(self, ranks: tuple[int, ...]) -> MindSporeGroup:
        """The group, which nobody joins."""
        return MindSporeGroup("nobody", ranks, ranks.index(self.rank()), None)

    def all_reduce(self, x: Tensor, op: str, group: MindSporeGroup) -> Tensor:
        """A copy, as a reduction makes one."""
        with mindspore._no_grad():
            return clone(x)

    def all_gather(self, x: Tensor, dim: int, group: MindSporeGroup) -> Tensor:
        """The piece of this rank, eight times."""
        with mindspore._no_grad():
            return mint.cat([x] * len(group.ranks), dim)

    def reduce_scatter(self, x: Tensor, dim: int, op: str, group: MindSporeGroup) -> Tensor:
        """This rank's piece of its own summand."""
        return self.scatter(x, dim, 0, group)

    def scatter(self, x: Tensor, dim: int, source: int, group: MindSporeGroup) -> Tensor:
        """This rank's piece of its own tensor."""
        with mindspore._no_grad():
            return clone(mint.narrow(x, dim, 0, x.shape[dim] // len(group.ranks)))

    def broadcast(self, x: Tensor, source: int, group: MindSporeGroup) -> Tensor:
        """A copy."""
        return self.all_reduce(x, "sum", group)


class _OfMindSpore:
    """What is made alike on all sides."""

    def wrap(self, local: Tensor, shard: int | None) -> Any:
        """See `benchmarks.library.Library`."""
        raise NotImplementedError

    def leaf(self, shape: tuple[int, ...], shard: int | None, *, grad: bool, weight: bool) -> Any:
        """See `benchmarks.library.Library`; a weight is a parameter."""
        local = Tensor(np.random.default_rng(0).standard_normal(shape), mindspore.float32)
        if weight:
            return self.parameter(local, shard, grad)
        local.requires_grad_(grad)
        return self.wrap(local, shard)

    def parameter(self, local: Tensor, shard: int | None, grad: bool) -> Any:
        """A parameter."""
        return Parameter(self.wrap(local, shard), name="weight", requires_grad=grad)

    def ids(self, shape: tuple[int, ...], high: int) -> Any:
        """See `benchmarks.library.Library`."""
        return self.wrap(Tensor(np.random.default_rng(0).integers(0, high, shape), mindspore.int32), None)


class Plain(_OfMindSpore):
    """Local tensors alone, in a process in which nothing is intercepted (see `side_by_side`)."""

    name = PLAIN
    ranks = 1

    def wrap(self, local: Tensor, shard: int | None) -> Any:
        """The local tensor itself."""
        return local


class BareTensor(Tensor):
    """The least that a tensor class can do that MindSpore asks about each operation: run it on local tensors.

    It knows no layout, no shape of the whole and no operator.
    """

    def __new__(cls, local: Tensor) -> BareTensor:
        """Over a local tensor."""
        self: BareTensor = Tensor._make_subclass(cls, local)
        self.__dict__["held"] = local
        return self

    def __init__(self, local: Tensor) -> None:
        """Everything is done in ``__new__``."""

    def __fallback__(self, func: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """The operation on local tensors, wrapped."""
        if args and isinstance(args[0], Primitive):
            args = (args[0], args[1], tuple([_held(value) for value in args[2]]))
        else:
            args = tuple([_held(value) for value in args])
        with NoFallbackGuard():
            return _bare(func(*args, **(kwargs or {})))

    def __getitem__(self, index: Any) -> Any:
        """MindSpore does not ask about indexing."""
        return BareTensor(self.__dict__["held"][index])


def _held(value: Any) -> Any:
    if type(value) is BareTensor:
        return value.__dict__["held"]
    return [_held(item) for item in value] if type(value) in (list, tuple) else value


def _bare(output: Any) -> Any:
    return tuple([_bare(item) for item in output]) if type(output) is tuple else BareTensor(output)


class Intercepted(_OfMindSpore):
    """`BareTensor`: what interception itself costs."""

    name = INTERCEPTED
    ranks = 1

    def wrap(self, local: Tensor, shard: int | None) -> Any:
        """See `benchmarks.library.Library`."""
        return BareTensor(local)

    def parameter(self, local: Tensor, shard: int | None, grad: bool) -> Any:
        """Over a parameter."""
        return BareTensor(Parameter(local, name="weight", requires_grad=grad))


class Ours(_OfMindSpore):
    """``hyper_parallel``."""

    name = OURS
    ranks = RANKS

    def __init__(self) -> None:
        self.mesh = hyper_parallel.init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))

    def wrap(self, local: Tensor, shard: int | None) -> Any:
        """See `benchmarks.library.Library`."""
        placement = hyper_parallel.Replicate() if shard is None else hyper_parallel.Shard(shard)
        return hyper_parallel.DTensor.from_local(local, self.mesh, [placement])


def start() -> tuple[Plain, Intercepted, Ours]:
    """Rank 0 of eight that nobody started, and the three sides."""
    os.environ.update(RANK_ID="0", RANK_SIZE=str(RANKS))
    hyper_parallel.set_platform(FreeCollectives())
    return Plain(), Intercepted(), Ours()


_forward = Tensor.__dict__["__fallback__"]


def _switched(side: Side, *, on: bool) -> Side:
    def calls(count: int) -> Iterable[Call]:
        if on:
            Tensor.__fallback__ = _forward
        elif "__fallback__" in Tensor.__dict__:
            del Tensor.__fallback__
        return side(count)

    return calls


def side_by_side(sides: Mapping[str, Side]) -> Mapping[str, Side]:
    """The sides, of which the plain one is timed as in a process without our adapter.

    The adapter makes MindSpore ask about operations on plain parameters too.
    """
    return {name: _switched(side, on=name == OURS) for name, side in sides.items()}


@contextmanager
def gradients(on: bool) -> Iterator[None]:
    """Whether operations are recorded, as inside of a function that is differentiated."""
    _pynative_executor.set_grad_flag(on)
    try:
        yield
    finally:
        _pynative_executor.set_grad_flag(False)
