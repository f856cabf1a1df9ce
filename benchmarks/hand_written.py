"""The transformer block as one writes it by hand, with Megatron's pairs of collectives.

Parameters are the local parts; activations are local tensors ``[B, S, H]``. With sequence parallelism those
outside of attention and MLP hold this rank's part of the sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

__all__ = ["Block"]


def all_gather(x: torch.Tensor) -> torch.Tensor:
    """All ranks' parts of the sequence, joined."""
    pieces = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(pieces, x.contiguous())
    return torch.cat(pieces, 1)


def reduce_scatter(x: torch.Tensor) -> torch.Tensor:
    """This rank's part of the sequence, of the sum over all ranks."""
    pieces = x.chunk(dist.get_world_size(), 1)
    output = torch.empty_like(pieces[0], memory_format=torch.contiguous_format)
    dist.reduce_scatter_single(output, torch.cat(pieces))
    return output


def all_reduce(x: torch.Tensor) -> torch.Tensor:
    """The sum over all ranks, in place."""
    x = x.contiguous()
    dist.all_reduce(x)
    return x


class CopyToRegion(torch.autograd.Function):
    """Megatron's f: identity forward, all-reduce backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return all_reduce(gradients[0])


class ReduceFromRegion(torch.autograd.Function):
    """Megatron's g: all-reduce forward, identity backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        ctx.mark_dirty(x)
        return all_reduce(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return gradients[0]


class GatherIntoRegion(torch.autograd.Function):
    """All-gather along the sequence forward, reduce-scatter backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return all_gather(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return reduce_scatter(gradients[0])


class ScatterFromRegion(torch.autograd.Function):
    """Reduce-scatter along the sequence forward, all-gather backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return reduce_scatter(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return all_gather(gradients[0])


class Block(nn.Module):
    """Norm, attention, norm, MLP, with residuals; this rank's part of the parameters.

    Args:
        hidden: Global size.
        heads: Global number of heads.
        features: Global size.
        sequence: Sequence parallelism.
    """

    def __init__(self, hidden: int, heads: int, features: int, *, sequence: bool) -> None:
        super().__init__()
        ranks = dist.get_world_size()
        inner, self.head_dim = hidden // ranks, hidden // heads
        self.norm1, self.norm2 = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(hidden, inner, bias=False) for _ in range(3))
        self.o_proj = nn.Linear(inner, hidden, bias=False)
        self.gate_proj = nn.Linear(hidden, features // ranks, bias=False)
        self.up_proj = nn.Linear(hidden, features // ranks, bias=False)
        self.down_proj = nn.Linear(features // ranks, hidden, bias=False)
        self.sequence = sequence
        self.enter = GatherIntoRegion if sequence else CopyToRegion
        self.leave = ScatterFromRegion if sequence else ReduceFromRegion

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[B, S, H] -> [B, S, H]``."""
        x = x + self._attention(self.norm1(x))
        return x + self._mlp(self.norm2(x))

    def _attention(self, x: torch.Tensor) -> torch.Tensor:
        x = self.enter.apply(x)  # type: ignore[no-untyped-call]
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        shape = (*q.shape[:-1], -1, self.head_dim)
        q, k, v = (t.view(shape).transpose(1, 2) for t in (q, k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        output: torch.Tensor = self.leave.apply(  # type: ignore[no-untyped-call]
            self.o_proj(attended.transpose(1, 2).flatten(2))
        )
        return output

    def _mlp(self, x: torch.Tensor) -> torch.Tensor:
        x = self.enter.apply(x)  # type: ignore[no-untyped-call]
        output: torch.Tensor = self.leave.apply(  # type: ignore[no-untyped-call]
            self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        )
        return output

    def finish(self) -> None:
        """After the backward: with sequence parallelism the gradients of the norms are summands."""
        if self.sequence:
            _sum_over_ranks(
                [norm.weight.grad for norm in (self.norm1, self.norm2) if norm.weight.grad is not None]
            )


def _sum_over_ranks(gradients: Sequence[torch.Tensor]) -> None:
    """One all-reduce for all gradients."""
    joined = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(joined)
    for gradient, total in zip(gradients, joined.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(total.view_as(gradient))
