"""A small transformer block of plain modules, and the plans that parallelize it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import nn

from hyper_parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    Replicate,
    RowwiseParallel,
    SequenceParallel,
    Shard,
)

VOCABULARY, HIDDEN, HEADS, FEATURES, BATCH, SEQUENCE = 16, 16, 4, 24, 2, 8


class Attention(nn.Module):
    """Self-attention with biases; q, k and v share one input."""

    def __init__(self) -> None:
        super().__init__()
        self.head_dim = HIDDEN // HEADS
        self.q_proj = nn.Linear(HIDDEN, HIDDEN)
        self.k_proj = nn.Linear(HIDDEN, HIDDEN)
        self.v_proj = nn.Linear(HIDDEN, HIDDEN)
        self.o_proj = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[B, S, H] -> [B, S, H]``."""
        shape = (*x.shape[:-1], -1, self.head_dim)
        q, k, v = (p(x).view(shape).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(attended.transpose(1, 2).flatten(2))


class GatedMlp(nn.Module):
    """A gated MLP with biases."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(HIDDEN, FEATURES)
        self.up_proj = nn.Linear(HIDDEN, FEATURES)
        self.down_proj = nn.Linear(FEATURES, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[B, S, H] -> [B, S, H]``."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """Norm, attention, norm, MLP, with residuals."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(HIDDEN)
        self.attention = Attention()
        self.norm2 = nn.LayerNorm(HIDDEN)
        self.mlp = GatedMlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[B, S, H] -> [B, S, H]``."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    """Embedding, one block, a norm and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.block = Block()
        self.norm = nn.LayerNorm(HIDDEN)
        self.head = nn.Linear(HIDDEN, VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits ``[B, S, V]`` of ``ids`` ``[B, S]``."""
        return self.head(self.norm(self.block(self.embedding(ids))))


def plain_plan() -> Mapping[str, ParallelStyle]:
    """Split attention and MLP; everything between them stays plain."""
    return {
        "block.attention.[qkv]_proj": ColwiseParallel(),
        "block.attention.o_proj": RowwiseParallel(),
        "block.mlp.gate_proj": ColwiseParallel(),
        "block.mlp.up_proj": ColwiseParallel(),
        "block.mlp.down_proj": RowwiseParallel(),
    }


def sequence_plan() -> Mapping[str, ParallelStyle]:
    """Sequence parallelism from the embedding to the head; the logits stay split over the vocabulary."""
    entrance = {"input_layouts": (Shard(1),), "desired_input_layouts": (Replicate(),)}
    row = {"output_layouts": Shard(1), "use_local_output": False}
    return {
        "embedding": RowwiseParallel(input_layouts=Replicate(), **row),
        "block.norm[12]": SequenceParallel(),
        "block.attention": PrepareModuleInput(**entrance),
        "block.attention.[qkv]_proj": ColwiseParallel(),
        "block.attention.o_proj": RowwiseParallel(**row),
        "block.mlp": PrepareModuleInput(**entrance),
        "block.mlp.gate_proj": ColwiseParallel(),
        "block.mlp.up_proj": ColwiseParallel(),
        "block.mlp.down_proj": RowwiseParallel(**row),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    }
