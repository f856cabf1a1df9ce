"""The bare collectives on local tensors; every result is fresh and carries no gradient."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Sequence
from typing import Any, Final

import mindspore
import numpy as np
from mindspore import Tensor, mint, ops

from hyper_platform_ms import all_reduce_only
from hyper_platform_ms.local_basics import clone
from hyper_platform_ms.processes import MindSporeGroup

__all__ = ["MindSporeCollectives"]

_REDUCE: Final[dict[str, Callable[[Any], Any]]] = {
    "sum": lambda stack: stack.sum(0, dtype=np.int64 if stack.dtype == np.bool_ else stack.dtype),
    "max": lambda stack: stack.max(0),
    "min": lambda stack: stack.min(0),
    "prod": lambda stack: stack.prod(0, dtype=stack.dtype),
}
"""NumPy's reductions of the stack of all ranks: they keep NaN, and bool counts as 0 and 1."""


def _chunks(x: Tensor, count: int, dim: int) -> list[Tensor]:
    """Equal pieces along a dim, contiguous."""
    size = x.shape[dim] // count
    return [clone(mint.narrow(x, dim, index * size, size)) for index in range(count)]


class _Composed:
    """Collectives on CPU, from the all-reduce that MindSpore has there (`all_reduce_only`)."""

    def all_reduce(self, x: Tensor, op: str, group: MindSporeGroup) -> Tensor:
        if op == "sum" and all_reduce_only.sums_natively(x) and x.size:
            return all_reduce_only.native_sum(x, group)
        wide = x.astype(mindspore.float32) if x.dtype == mindspore.bfloat16 else x
        stack = all_reduce_only.gather_stack(wide, group)
        reduced = Tensor(np.array(_REDUCE[op](stack.asnumpy()), order="C"))
        return reduced.astype(mindspore.bfloat16) if wide is not x else reduced

    def all_gather(self, x: Tensor, dim: int, group: MindSporeGroup) -> Tensor:
        return mint.cat(self._each(x, group), dim)

    def reduce_scatter(self, x: Tensor, dim: int, op: str, group: MindSporeGroup) -> Tensor:
        return _chunks(self.all_reduce(x, op, group), len(group.ranks), dim)[group.index]

    def all_to_all(self, x: Tensor, split_dim: int, concat_dim: int, group: MindSporeGroup) -> Tensor:
        count = len(group.ranks)
        parts = [_chunks(each, count, split_dim)[group.index] for each in self._each(x, group)]
        return mint.cat(parts, concat_dim)

    def broadcast(self, x: Tensor, source: int, group: MindSporeGroup) -> Tensor:
        return self._each(x, group)[source]

    def scatter(self, x: Tensor, dim: int, source: int, group: MindSporeGroup) -> Tensor:
        return _chunks(self._each(x, group)[source], len(group.ranks), dim)[group.index]

    def _each(self, x: Tensor, group: MindSporeGroup) -> list[Tensor]:
        """The tensor of every rank, in mesh order."""
        stack = all_reduce_only.to_numpy(all_reduce_only.gather_stack(x, group))
        return [all_reduce_only.from_numpy(np.array(each, order="C"), x.dtype) for each in stack]


@functools.cache
def _primitive(name: str, handle: str, **attributes: Any) -> Any:
    return getattr(ops, name)(group=handle, **attributes)


class _Native:
    """Collectives of Ascend (HCCL), which work along dim 0 and order their ranks ascending."""

    def all_reduce(self, x: Tensor, op: str, group: MindSporeGroup) -> Tensor:
        if x.dtype == mindspore.bool_:
            wide = self.all_reduce(x.astype(mindspore.int32), op, group)
            return wide.astype(mindspore.int64 if op == "sum" else mindspore.bool_)
        return _primitive("AllReduce", group.handle, op=op)(x)

    def all_gather(self, x: Tensor, dim: int, group: MindSporeGroup) -> Tensor:
        joined = _primitive("AllGather", group.handle)(mint.unsqueeze(x, 0))
        pieces = [mint.narrow(joined, 0, index, 1) for index in range(len(group.ranks))]
        return mint.cat([mint.squeeze(piece, 0) for piece in group.in_mesh_order(pieces)], dim)

    def reduce_scatter(self, x: Tensor, dim: int, op: str, group: MindSporeGroup) -> Tensor:
        if x.dtype == mindspore.bool_:
            return _chunks(self.all_reduce(x, op, group), len(group.ranks), dim)[group.index]
        pieces = group.by_rank(_chunks(x, len(group.ranks), dim))
        sent = mint.cat([mint.unsqueeze(piece, 0) for piece in pieces], 0)
        return mint.squeeze(_primitive("ReduceScatter", group.handle, op=op)(sent), 0)

    def all_to_all(self, x: Tensor, split_dim: int, concat_dim: int, group: MindSporeGroup) -> Tensor:
        count = len(group.ranks)
        pieces = group.by_rank(_chunks(x, count, split_dim))
        sent = mint.cat([mint.unsqueeze(piece, 0) for piece in pieces], 0)
        exchange = _primitive("AlltoAll", group.handle, split_count=count, split_dim=0, concat_dim=0)
        received = exchange(sent)
        parts = group.in_mesh_order([mint.narrow(received, 0, index, 1) for index in range(count)])
        return mint.cat([mint.squeeze(part, 0) for part in parts], concat_dim)

    def broadcast(self, x: Tensor, source: int, group: MindSporeGroup) -> Tensor:
        return _primitive("Broadcast", group.handle, root_rank=group.ranks[source])((x,))[0]

    def scatter(self, x: Tensor, dim: int, source: int, group: MindSporeGroup) -> Tensor:
        return _chunks(self.broadcast(x, source, group), len(group.ranks), dim)[group.index]


_COMPOSED: Final = _Composed()
_NATIVE: Final = _Native()


def _backend() -> Any:
    return _NATIVE if mindspore.get_current_device().device_target == "Ascend" else _COMPOSED


def _fresh(x: Tensor, *arguments: Any, run: Callable[..., Tensor], group: MindSporeGroup) -> Tensor:
    """The collective without gradient; a copy of a group of one, where nothing is sent."""
    with mindspore._no_grad():
        if len(group.ranks) == 1:
            return clone(x)
        return run(x, *arguments, group)


class MindSporeCollectives:
    """The collective verbs of the platform."""

    def all_reduce(self, x: Tensor, op: str, group: MindSporeGroup) -> Tensor:
        """Reduce over the group; bool counts as 0 and 1, and stays bool under max, min and prod."""
        return _fresh(x, op, run=_backend().all_reduce, group=group)

    def all_gather(self, x: Tensor, dim: int, group: MindSporeGroup) -> Tensor:
        """Join the pieces of the group along ``dim``."""
        return _fresh(x, dim, run=_backend().all_gather, group=group)

    def reduce_scatter(self, x: Tensor, dim: int, op: str, group: MindSporeGroup) -> Tensor:
        """Reduce and keep this rank's piece of ``dim``."""
        return _fresh(x, dim, op, run=_backend().reduce_scatter, group=group)

    def all_to_all(self, x: Tensor, split_dim: int, concat_dim: int, group: MindSporeGroup) -> Tensor:
        """Send piece i of ``split_dim`` to position i, join what arrives along ``concat_dim``."""
        return _fresh(x, split_dim, concat_dim, run=_backend().all_to_all, group=group)

    def broadcast(self, x: Tensor, source: int, group: MindSporeGroup) -> Tensor:
        """The tensor of the rank at position ``source``."""
        return _fresh(x, source, run=_backend().broadcast, group=group)

    def scatter(self, x: Tensor, dim: int, source: int, group: MindSporeGroup) -> Tensor:
        """This position's piece along ``dim`` of the tensor of the rank at ``source``."""
        return _fresh(x, dim, source, run=_backend().scatter, group=group)

    def all_gather_object(self, value: Any, group: MindSporeGroup) -> list[Any]:
        """The picklable values of the group, in mesh order."""
        pickled = np.frombuffer(pickle.dumps(value), np.uint8)
        lengths = self._gathered_bytes(np.array([len(pickled)], np.int64).view(np.uint8), group)
        sizes = [int(np.ascontiguousarray(row).view(np.int64)[0]) for row in lengths]
        padded = np.zeros(max(sizes), np.uint8)
        padded[: len(pickled)] = pickled
        rows = self._gathered_bytes(padded, group)
        return [pickle.loads(bytes(row[:size])) for row, size in zip(rows, sizes, strict=True)]

    def _gathered_bytes(self, data: Any, group: MindSporeGroup) -> Sequence[Any]:
        if _backend() is _COMPOSED:
            return list(all_reduce_only.gather_bytes(data, group))
        gathered = self.all_gather(Tensor(data[None].astype(np.int32)), 0, group).asnumpy()
        return list(gathered.astype(np.uint8))
