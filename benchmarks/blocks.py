"""A transformer block of plain modules, under its two plans in both libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed.tensor as torch_tensor
import torch.distributed.tensor.parallel as torch_parallel
import torch.nn.functional as F
from torch import nn

import hyper_parallel
from benchmarks import hand_written
from benchmarks.case import OURS, PLAIN, TORCH, Bound, Case, Quantity
from benchmarks.libraries import RANKS, Ours, TorchDTensor
from benchmarks.plans import BATCH, BLOCK, FEATURES, HEADS, HIDDEN, SEQUENCE, dispatched, plan
from benchmarks.timing import Call, Side

__all__ = ["Attention", "Block", "GatedMlp", "blocks"]


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Attention(nn.Module):
    """Self-attention without biases; q, k and v share one input.

    Args:
        attend: Computes attention from queries, keys and values ``[B, heads, S, d]``.
    """

    def __init__(self, attend: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.head_dim = HIDDEN // HEADS
        self.attend = attend
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[B, S, H] -> [B, S, H]``."""
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        shape = (*q.shape[:-1], -1, self.head_dim)
        q, k, v = (t.view(shape).transpose(1, 2) for t in (q, k, v))
        attended = self.attend(q, k, v)
        output: torch.Tensor = self.o_proj(attended.transpose(1, 2).flatten(2))
        return output


class GatedMlp(nn.Module):
    """A gated MLP without biases."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(HIDDEN, FEATURES, bias=False)
        self.up_proj = nn.Linear(HIDDEN, FEATURES, bias=False)
        self.down_proj = nn.Linear(FEATURES, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[B, S, H] -> [B, S, H]``."""
        output: torch.Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return output


class Block(nn.Module):
    """Norm, attention, norm, MLP, with residuals.

    Args:
        attend: See `Attention`.
    """

    def __init__(self, attend: Callable[..., torch.Tensor] = attend) -> None:
        super().__init__()
        self.norm1 = nn.RMSNorm(HIDDEN)
        self.attention = Attention(attend)
        self.norm2 = nn.RMSNorm(HIDDEN)
        self.mlp = GatedMlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[B, S, H] -> [B, S, H]``."""
        x = x + self.attention(self.norm1(x))
        output: torch.Tensor = x + self.mlp(self.norm2(x))
        return output


def blocks(theirs: TorchDTensor, ours: Ours) -> Iterator[Case]:
    """The block with plain styles, and with sequence parallelism."""
    yield _case(theirs, ours, sequence=False, most=1.4)
    yield _case(theirs, ours, sequence=True, most=1.6)


def _case(theirs: TorchDTensor, ours: Ours, *, sequence: bool, most: float) -> Case:
    by_hand = hand_written.Block(HIDDEN, HEADS, FEATURES, sequence=sequence)
    attend_there = _attend_locally(theirs) if sequence else attend
    there = torch_parallel.parallelize_module(
        Block(attend_there), theirs.mesh, dict(plan(torch_parallel, torch_tensor, sequence=sequence))
    )
    here = hyper_parallel.parallelize_module(
        Block(), ours.mesh, dict(plan(hyper_parallel, hyper_parallel, sequence=sequence))
    )
    local = torch.randn(BATCH, SEQUENCE // RANKS if sequence else SEQUENCE, HIDDEN)
    as_it_is: Callable[[torch.Tensor], Any] = torch.Tensor.clone
    sides = {
        PLAIN: _steps(by_hand, local, as_it_is, by_hand.finish),
        TORCH: _steps(there, local, (lambda x: theirs.wrap(x, 1)) if sequence else as_it_is),
        OURS: _steps(here, local, (lambda x: ours.wrap(x, 1)) if sequence else as_it_is),
    }
    count = dispatched(sides[OURS])
    note = f"{count} dispatched operations per step; plain: hand-written collectives"
    if sequence:
        note += "; DTensors throughout; torch DTensor has no rule for attention on the CPU: locals there"
    name = "sequence parallelism" if sequence else "plain styles"
    return Case(BLOCK, name, sides, Bound(Quantity.OVER_PLAIN, most), one_call=True, warm=True, note=note)


def _attend_locally(theirs: TorchDTensor) -> Callable[..., torch.Tensor]:
    by_heads = torch_tensor.Shard(1)

    def attend_there(*inputs: Any) -> torch.Tensor:
        attended = attend(*(t.to_local() for t in inputs))
        return torch_tensor.DTensor.from_local(attended, theirs.mesh, [by_heads])

    return attend_there


def _steps(
    block: nn.Module,
    local: torch.Tensor,
    wrap: Callable[[torch.Tensor], Any],
    finish: Callable[[], None] = lambda: None,
) -> Side:
    """Forward and backward, as in a training loop: before each step the optimizer changed the parameters."""
    parameters = list(block.parameters())
    x = wrap(local).detach().requires_grad_()
    gradient = wrap(local)

    def step() -> None:
        block(x).backward(gradient)
        finish()

    def calls(count: int) -> list[Call]:
        x.grad = None
        with torch.no_grad():
            for parameter in parameters:
                parameter.grad = None
                parameter.mul_(1.0)
        return [step] * count

    return calls
