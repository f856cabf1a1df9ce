"""The bare collectives on local tensors; every result is fresh and carries no gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd import forward_ad
from torch.distributed.distributed_c10d import AllgatherOptions, AllreduceOptions, ReduceScatterOptions

from hyper_platform_torch.autograd import check_no_tangent
from hyper_platform_torch.ordered_integers import from_integers, to_integers
from hyper_platform_torch.processes import TorchGroup

__all__ = ["TorchCollectives"]

_REDUCE = {
    "sum": dist.ReduceOp.SUM,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "prod": dist.ReduceOp.PRODUCT,
}


def _waited(options: Any) -> Any:
    """``options`` of a collective whose result may be used at once."""
    options.asyncOp = False
    return options


def _reducing(options: Any, op: Any) -> Any:
    options.reduceOp = op
    return _waited(options)


# The three collectives of tensor parallelism are asked of the group itself: the functions of
# torch.distributed look for what cannot be here (another group, an operand that is no tensor) for longer than
# the call takes that they come to.
_GATHER = _waited(AllgatherOptions())
_ALL_REDUCE = {name: _reducing(AllreduceOptions(), op) for name, op in _REDUCE.items()}
_REDUCE_SCATTER = {name: _reducing(ReduceScatterOptions(), op) for name, op in _REDUCE.items()}


def _wait(work: Any) -> None:
    """Wait where the group has not done so itself; then it returns no work."""
    if work is not None:
        work.wait()


def _bare(x: torch.Tensor) -> torch.Tensor:
    """The numbers of ``x`` as they are sent: without history, and none only marked as conjugate or negative.

    Raises:
        RuntimeError: If ``x`` has a forward-mode tangent.
    """
    if forward_ad._current_level >= 0:
        check_no_tangent(x)
    if x.requires_grad:
        x = x.detach()
    return x.resolve_conj().resolve_neg() if x.is_conj() or x.is_neg() else x


def _is_outermost(dim: int, shape: torch.Size, group: TorchGroup) -> bool:
    """Whether pieces along ``dim``, in the order of the group's ranks, lie one after the other in memory."""
    return group.order is None and (dim == 0 or shape[:dim].numel() == 1)


def _packed(x: torch.Tensor, dim: int, group: TorchGroup) -> torch.Tensor:
    """The pieces of ``x`` along ``dim`` one after the other, by ascending rank as backends want them."""
    size = len(group.ranks)
    shape = list(x.shape)
    shape[dim] //= size
    if _is_outermost(dim, x.shape, group):
        x = x.contiguous()
        return x if dim == 0 else x.view(size * shape[0], *shape[1:])
    pieces = x.view(*shape[:dim], size, *shape[dim:]).movedim(dim, 0)
    if group.order is not None:
        pieces = pieces[torch.tensor(group.order, device=x.device).argsort()]
    return pieces.flatten(0, 1).contiguous()


def _joined(buffer: torch.Tensor, dim: int, group: TorchGroup) -> torch.Tensor:
    """Pieces one after the other, by ascending rank as backends order them, joined along ``dim``."""
    if dim == 0 and group.order is None:
        return buffer
    size = len(group.ranks)
    pieces = buffer.view(size, buffer.shape[0] // size, *buffer.shape[1:])
    if group.order is not None:
        pieces = pieces[torch.tensor(group.order, device=pieces.device)]
    joined = pieces.movedim(0, dim).flatten(dim, dim + 1)
    # What an autograd function returns is not written in place if it is a view.
    return joined.clone(memory_format=torch.contiguous_format) if joined._is_view() else joined


# What every backend sends; other dtypes travel as bytes.
_SENT = {
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int8,
    torch.uint8,
    torch.bool,
}


# What every backend sums as it is; a look here is cheaper than the questions below.
_SUMMED = {torch.float64, torch.float32, torch.float16, torch.bfloat16}


def _of_its_own(x: torch.Tensor) -> torch.Tensor:
    """The same data as a tensor that is no view, as an autograd function returns what is written in place."""
    return x.new_empty(0).set_(x.untyped_storage(), x.storage_offset(), x.shape, x.stride())


def _as_bytes(x: torch.Tensor, move: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """``move(x)`` on the bytes of the elements, in a further last dim."""
    return _of_its_own(move(x.contiguous().unsqueeze(-1).view(torch.uint8)).view(x.dtype).squeeze(-1))


def _reducible(x: torch.Tensor, op: str) -> torch.Tensor | None:
    """``x`` in a dtype that backends reduce; ``None`` if its own is one, or nothing helps."""
    if x.dtype in (torch.int16, torch.bool):
        return x.to(torch.int32)
    return torch.view_as_real(x) if x.is_complex() and op == "sum" else None


def _reduced(out: torch.Tensor, dtype: torch.dtype, op: str) -> torch.Tensor:
    """A reduced tensor in the dtype that was given; a sum of bool is the number of true ones."""
    if dtype.is_complex:
        return _of_its_own(torch.view_as_complex(out))
    return out.to(torch.int64 if dtype == torch.bool and op == "sum" else dtype)


def _loses_nan(x: torch.Tensor, op: str) -> bool:
    return op in ("max", "min") and x.is_floating_point()


class TorchCollectives:
    """The collective verbs of the platform."""

    def all_reduce(self, x: torch.Tensor, op: str, group: TorchGroup) -> torch.Tensor:
        """Reduce over the group; bool counts as 0 and 1, and stays bool under max, min and prod."""
        x = _bare(x)
        if op != "sum" or x.dtype not in _SUMMED:
            if _loses_nan(x, op):
                return from_integers(self.all_reduce(to_integers(x, op), op, group), x.dtype)
            other = _reducible(x, op)
            if other is not None:
                return _reduced(self.all_reduce(other, op, group), x.dtype, op)
        out = x.clone(memory_format=torch.contiguous_format)
        _wait(group.handle.allreduce([out], _ALL_REDUCE[op]))
        return out

    def all_gather(self, x: torch.Tensor, dim: int, group: TorchGroup) -> torch.Tensor:
        """Join the pieces of the group along ``dim``."""
        x = _bare(x)
        dim %= x.ndim
        if x.dtype not in _SENT:
            return _as_bytes(x, lambda sent: self.all_gather(sent, dim, group))
        x = x.contiguous()
        shape, size = x.shape, len(group.ranks)
        by_rank = (size * shape[0], *shape[1:])
        if dim and _is_outermost(dim, shape, group):
            out = x.new_empty((*shape[:dim], size * shape[dim], *shape[dim + 1 :]))
            _wait(group.handle.all_gather_single(out.view(by_rank), x, _GATHER))
            return out
        buffer = x.new_empty(by_rank)
        _wait(group.handle.all_gather_single(buffer, x, _GATHER))
        return _joined(buffer, dim, group)

    def reduce_scatter(self, x: torch.Tensor, dim: int, op: str, group: TorchGroup) -> torch.Tensor:
        """Reduce and keep this rank's piece of ``dim``."""
        x = _bare(x)
        dim %= x.ndim
        if op != "sum" or x.dtype not in _SUMMED:
            if _loses_nan(x, op):
                return from_integers(self.reduce_scatter(to_integers(x, op), dim, op, group), x.dtype)
            other = _reducible(x, op)
            if other is not None:
                return _reduced(self.reduce_scatter(other, dim, op, group), x.dtype, op)
        sent = _packed(x, dim, group)
        shape = list(x.shape)
        shape[dim] //= len(group.ranks)
        out = sent.new_empty(shape)
        _wait(group.handle.reduce_scatter_single(out, sent, _REDUCE_SCATTER[op]))
        return out

    def all_to_all(self, x: torch.Tensor, split_dim: int, concat_dim: int, group: TorchGroup) -> torch.Tensor:
        """Send piece i of ``split_dim`` to position i, join what arrives along ``concat_dim``."""
        x = _bare(x)
        split_dim, concat_dim = split_dim % x.ndim, concat_dim % x.ndim
        if x.dtype not in _SENT:
            return _as_bytes(x, lambda sent: self.all_to_all(sent, split_dim, concat_dim, group))
        sent = _packed(x, split_dim, group)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=group.handle)
        return _joined(received, concat_dim, group)

    def broadcast(self, x: torch.Tensor, source: int, group: TorchGroup) -> torch.Tensor:
        """The tensor of the rank at position ``source``."""
        x = _bare(x)
        if x.dtype not in _SENT:
            return _as_bytes(x, lambda sent: self.broadcast(sent, source, group))
        out = x.clone(memory_format=torch.contiguous_format)
        dist.broadcast(out, group.ranks[source], group=group.handle)
        return out

    def scatter(self, x: torch.Tensor, dim: int, source: int, group: TorchGroup) -> torch.Tensor:
        """This position's piece along ``dim`` of the tensor of the rank at ``source``."""
        x = _bare(x)
        dim %= x.ndim
        if x.dtype not in _SENT:
            return _as_bytes(x, lambda sent: self.scatter(sent, dim, source, group))
        pieces = list(_packed(x, dim, group).chunk(len(group.ranks)))
        out = torch.empty_like(pieces[0])
        is_source = dist.get_rank() == group.ranks[source]
        dist.scatter(out, pieces if is_source else None, group.ranks[source], group=group.handle)
        return out

    def all_gather_object(self, value: Any, group: TorchGroup) -> list[Any]:
        """The picklable values of the group, in mesh order."""
        values: list[Any] = [None] * len(group.ranks)
        dist.all_gather_object(values, value, group=group.handle)
        return values if group.order is None else [values[index] for index in group.order]
