"""Linear maps along one mesh axis, and their differentiable pairs (design section 3, rule 5).

A picture shows the local tensors of the ranks of one axis, before ``->`` after; ``/`` separates a forward
map from its backward. Pairs, with the Megatron papers' names where they have one::

    vary              identity       / all-reduce       [a] [a] -> [a] [a]        "f" of the Megatron papers
    reduce_sum        all-reduce     / identity         [a] [b] -> [a+b] [a+b]    "g"
    gather_invariant  all-gather     / slice            [a] [b] -> [a b] [a b]
    gather_varying    all-gather     / reduce-scatter   [a] [b] -> [a b] [a b]
    scatter_sum       reduce-scatter / all-gather       [a0 a1] [b0 b1] -> [a0+b0] [a1+b1]
    exchange          all-to-all     / all-to-all       [a0 a1] [b0 b1] -> [a0 b0] [a1 b1]
    cut               slice          / all-gather       [a0 a1] [a0 a1] -> [a0] [a1]
    enter_once        keep           / identity         [a] [a] -> [a] [0]
    share             identity       / scale by 1/n     [a] [a] -> [a] [a]
    divide            scale by 1/n   / identity         [a] [a] -> [a/n] [a/n]

The backward of each pair is the pair with the two maps swapped, so second derivatives are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from hyper_dtensor import comm_debug, parts, rank_check
from hyper_dtensor.platform import Platform, get_platform
from hyper_layout import DeviceMesh

__all__ = [
    "LinearMap",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "cut",
    "differentiable",
    "divide",
    "enter_once",
    "exchange",
    "gather_invariant",
    "gather_varying",
    "linear_map",
    "reduce_scatter",
    "reduce_sum",
    "scatter_sum",
    "share",
    "vary",
]

Tensor: TypeAlias = Any

COMMUNICATES = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all"})


@dataclass(frozen=True, slots=True, eq=False)
class LinearMap:
    """One linear map along one mesh axis, as data; calling it applies it to a local tensor.

    Attributes:
        kind: ``all_reduce``, ``all_gather``, ``reduce_scatter``, ``all_to_all`` communicate;
            ``identity``, ``slice``, ``keep`` (the value on coordinate 0, zeros elsewhere) and ``scale``
            (by one over the size of the axis) do not.
        mesh: The mesh.
        axis: Index of the mesh axis.
        dim: Tensor dim that is gathered, scattered, sliced or split.
        to_dim: Tensor dim that an all_to_all joins.
        op: Reduction of all_reduce and reduce_scatter.
    """

    kind: str
    mesh: DeviceMesh
    axis: int
    dim: int = 0
    to_dim: int = 0
    op: str = "sum"

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the map; the result never aliases ``x`` unless the map is the identity."""
        kind = self.kind
        if kind == "identity":
            return x
        size = self.mesh.mesh_shape[self.axis]
        if kind == "scale":
            return x / size
        platform = get_platform()
        if kind in COMMUNICATES:
            return self._communicate(platform, x, size)
        ops = platform.ops
        coordinate = self.mesh.get_local_rank(self.axis)
        if kind == "slice":
            length = x.shape[self.dim] // size
            return ops.clone(ops.narrow(x, self.dim, coordinate * length, length))
        return ops.clone(x) if coordinate == 0 else ops.zeros_like(x)

    def _communicate(self, platform: Platform, x: Tensor, size: int) -> Tensor:
        if size == 1:
            return platform.ops.clone(x)
        if parts.loaded_alone:
            parts.check_loaded()
        if rank_check.enabled():
            rank_check.agree(platform, self.mesh, self.axis, self.kind, x)
        group = platform.group(self.mesh.ranks_along(self.axis))
        comm_debug.record(self.kind, self.mesh, self.axis, x)
        match self.kind:
            case "all_reduce":
                return platform.all_reduce(x, self.op, group)
            case "all_gather":
                return platform.all_gather(x, self.dim, group)
            case "reduce_scatter":
                return platform.reduce_scatter(x, self.dim, self.op, group)
            case _:
                return platform.all_to_all(x, self.dim, self.to_dim, group)


linear_map = lru_cache(maxsize=4096)(LinearMap)
"""The `LinearMap` with these arguments, made once."""


def differentiable(x: Tensor, forward: LinearMap, backward: LinearMap, value: Tensor | None = None) -> Tensor:
    """``forward(x)`` whose gradient is ``backward(g)``; ``value`` is the forward result if it is known.

    The backward is attributed to the module that runs the forward (``CommDebugMode``).
    """
    return get_platform().linear(x, forward, comm_debug.in_backward(backward), value)


def all_reduce(x: Tensor, mesh: DeviceMesh, axis: int, op: str = "sum") -> Tensor:
    """Reduce ``x`` over the axis, without gradient: ``[a] [b] -> [a+b] [a+b]``; shape kept."""
    return linear_map("all_reduce", mesh, axis, op=op)(x)


def all_gather(x: Tensor, mesh: DeviceMesh, axis: int, dim: int) -> Tensor:
    """Join the shards along ``dim``, without gradient: ``[a] [b] -> [a b] [a b]``."""
    return linear_map("all_gather", mesh, axis, dim)(x)


def reduce_scatter(x: Tensor, mesh: DeviceMesh, axis: int, dim: int, op: str = "sum") -> Tensor:
    """Reduce and keep this rank's piece of ``dim``, without gradient."""
    return linear_map("reduce_scatter", mesh, axis, dim, op=op)(x)


def all_to_all(x: Tensor, mesh: DeviceMesh, axis: int, split_dim: int, concat_dim: int) -> Tensor:
    """Split ``split_dim`` over the axis and join ``concat_dim``, without gradient."""
    return linear_map("all_to_all", mesh, axis, split_dim, concat_dim)(x)


def vary(x: Tensor, mesh: DeviceMesh, axis: int) -> Tensor:
    """Identity / all-reduce: an invariant tensor enters a varying computation (rule 2)."""
    return differentiable(x, linear_map("identity", mesh, axis), linear_map("all_reduce", mesh, axis))


def reduce_sum(x: Tensor, mesh: DeviceMesh, axis: int) -> Tensor:
    """All-reduce / identity: the summands become the invariant sum."""
    return differentiable(x, linear_map("all_reduce", mesh, axis), linear_map("identity", mesh, axis))


def gather_invariant(x: Tensor, mesh: DeviceMesh, axis: int, dim: int, value: Tensor | None = None) -> Tensor:
    """All-gather / slice: for consumers that use the whole alike on all ranks (rule 4)."""
    return differentiable(
        x, linear_map("all_gather", mesh, axis, dim), linear_map("slice", mesh, axis, dim), value
    )


def gather_varying(x: Tensor, mesh: DeviceMesh, axis: int, dim: int, value: Tensor | None = None) -> Tensor:
    """All-gather / reduce-scatter: for consumers that differ by rank (rule 4)."""
    backward = linear_map("reduce_scatter", mesh, axis, dim)
    return differentiable(x, linear_map("all_gather", mesh, axis, dim), backward, value)


def scatter_sum(x: Tensor, mesh: DeviceMesh, axis: int, dim: int) -> Tensor:
    """Reduce-scatter / all-gather: the summands become shards of the sum."""
    return differentiable(
        x, linear_map("reduce_scatter", mesh, axis, dim), linear_map("all_gather", mesh, axis, dim)
    )


def exchange(x: Tensor, mesh: DeviceMesh, axis: int, split_dim: int, concat_dim: int) -> Tensor:
    """All-to-all / all-to-all: a shard of one dim becomes a shard of another."""
    forward = linear_map("all_to_all", mesh, axis, split_dim, concat_dim)
    return differentiable(x, forward, linear_map("all_to_all", mesh, axis, concat_dim, split_dim))


def cut(x: Tensor, mesh: DeviceMesh, axis: int, dim: int) -> Tensor:
    """Slice / all-gather: an invariant tensor becomes a shard."""
    return differentiable(x, linear_map("slice", mesh, axis, dim), linear_map("all_gather", mesh, axis, dim))


def enter_once(x: Tensor, mesh: DeviceMesh, axis: int, *, varying: bool = False) -> Tensor:
    """Keep / identity: an invariant tensor becomes the summands ``[a] [0]``; no backward collective.

    A varying tensor has the plain derivative instead: keep / keep (rule 5).
    """
    keep = linear_map("keep", mesh, axis)
    return differentiable(x, keep, keep if varying else linear_map("identity", mesh, axis))


def share(x: Tensor, mesh: DeviceMesh, axis: int) -> Tensor:
    """Identity / scale by one over the axis size: a whole gradient becomes equal summands."""
    return differentiable(x, linear_map("identity", mesh, axis), linear_map("scale", mesh, axis))


def divide(x: Tensor, mesh: DeviceMesh, axis: int) -> Tensor:
    """Scale by one over the axis size / identity: a whole gradient, given as equal summands (rule 6)."""
    return differentiable(x, linear_map("scale", mesh, axis), linear_map("identity", mesh, axis))
