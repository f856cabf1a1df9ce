"""A decoder as Hugging Face writes Qwen3, of plain modules, and the plans that parallelize it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from hyper_parallel import (
    ColwiseParallel,
    NoParallel,
    ParallelStyle,
    PrepareModuleInput,
    Replicate,
    RowwiseParallel,
    SequenceParallel,
    Shard,
)

VOCABULARY, HIDDEN, FEATURES, HEADS, KV_HEADS, HEAD = 32, 16, 24, 8, 4, 4
LAYERS = 2


class RMSNorm(nn.Module):
    """Root-mean-square norm in a higher precision."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, hidden_states: Any) -> Any:
        """Normalise the last dim."""
        dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float64)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + 1e-6)
        return self.weight * hidden_states.to(dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of ``[B, heads, S, d]``."""
    first, second = x.chunk(2, -1)
    return x * cos[:, None] + torch.cat((-second, first), -1) * sin[:, None]


class Rotary(nn.Module):
    """Tables of cosines and sines; reads only dtype and device of its first input."""

    inv_freq: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("inv_freq", 100.0 ** (-torch.arange(0, HEAD, 2) / HEAD), persistent=False)

    def forward(self, x: Any, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Plain tables ``[B, S, d]``."""
        angles = position_ids[:, :, None].to(x.dtype) * self.inv_freq
        angles = torch.cat((angles, angles), -1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention with norms of q and k; called with keywords only."""

    def __init__(self) -> None:
        super().__init__()
        self.head_dim, self.num_key_value_groups = HEAD, HEADS // KV_HEADS
        self.q_proj = nn.Linear(HIDDEN, HEADS * HEAD, bias=False)
        self.k_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD, bias=False)
        self.v_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD, HIDDEN, bias=False)
        self.q_norm, self.k_norm = RMSNorm(HEAD), RMSNorm(HEAD)

    def forward(
        self, hidden_states: Any, position_embeddings: Any, attention_mask: Any = None, **kwargs: Any
    ) -> tuple[Any, None]:
        """``[B, S, H] -> [B, S, H]`` and no weights."""
        input_shape = hidden_states.shape[:-1]
        hidden_shape = (*input_shape, -1, self.head_dim)
        q = self.q_norm(self.q_proj(hidden_states).view(hidden_shape)).transpose(1, 2)
        k = self.k_norm(self.k_proj(hidden_states).view(hidden_shape)).transpose(1, 2)
        v = self.v_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        q, k = (rotate(x, *position_embeddings) for x in (q, k))
        k, v = (x.repeat_interleave(self.num_key_value_groups, 1) for x in (k, v))
        attended = F.scaled_dot_product_attention(q, k, v, attention_mask, is_causal=attention_mask is None)
        return self.o_proj(attended.transpose(1, 2).reshape(*input_shape, -1).contiguous()), None


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(HIDDEN, FEATURES, bias=False)
        self.up_proj = nn.Linear(HIDDEN, FEATURES, bias=False)
        self.down_proj = nn.Linear(FEATURES, HIDDEN, bias=False)

    def forward(self, x: Any) -> Any:
        """``[B, S, H] -> [B, S, H]``."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    """Attention and MLP with residuals."""

    def __init__(self) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(), Mlp()
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(HIDDEN), RMSNorm(HIDDEN)

    def forward(self, hidden_states: Any, **kwargs: Any) -> Any:
        """``[B, S, H] -> [B, S, H]``."""
        residual = hidden_states
        hidden_states, _ = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **kwargs)
        hidden_states = residual + hidden_states
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


class Body(nn.Module):
    """Everything but the head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(DecoderLayer() for _ in range(LAYERS))
        self.norm = RMSNorm(HIDDEN)
        self.rotary_emb = Rotary()

    def forward(self, input_ids: torch.Tensor) -> Any:
        """Hidden states ``[B, S, H]``; positions come from the embedding's global shape."""
        hidden_states = self.embed_tokens(input_ids)
        position_ids = torch.arange(hidden_states.shape[1], device=hidden_states.device)[None]
        tables = self.rotary_emb(hidden_states, position_ids)
        for layer in self.layers:
            hidden_states = layer(
                hidden_states,
                position_embeddings=tables,
                position_ids=position_ids,
                use_cache=False,
                cache=None,
            )
        return self.norm(hidden_states)


class Decoder(nn.Module):
    """The model with its head and loss.

    Args:
        tied: Whether the head has the embedding's weight.
    """

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.model = Body()
        self.lm_head = nn.Linear(HIDDEN, VOCABULARY, bias=False)
        if tied:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> Any:
        """The mean loss of the next token; the last position has none."""
        hidden_states = self.model(input_ids)
        logits = self.lm_head(hidden_states[:, slice(0, None), :]).double()
        labels = F.pad(labels, (0, 1), value=-100)[..., 1:].contiguous().view(-1)
        return F.cross_entropy(logits.view(-1, VOCABULARY), labels, ignore_index=-100, reduction="mean")


def plan(sequence: bool, loss_parallel: bool) -> dict[str, ParallelStyle]:
    """A plan for `Decoder`.

    Args:
        sequence: Whether activations between attention and MLP are split along the sequence.
        loss_parallel: Whether the logits stay split over the vocabulary.
    """
    between = Shard(1) if sequence else Replicate()
    row: dict[str, Any] = {"output_layouts": between, "use_local_output": False}
    norm: ParallelStyle = SequenceParallel() if sequence else NoParallel(use_local_output=False)
    head: dict[str, Any] = (
        {"output_layouts": Shard(-1), "use_local_output": False}
        if loss_parallel
        else {"output_layouts": Replicate()}
    )
    layer = "model.layers.*"
    return {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), **row),
        f"{layer}.*_layernorm": norm,
        f"{layer}.self_attn": PrepareModuleInput(
            input_kwarg_layouts={"hidden_states": between},
            desired_input_kwarg_layouts={"hidden_states": Replicate()},
        ),
        f"{layer}.self_attn.[qkv]_proj": ColwiseParallel(),
        f"{layer}.self_attn.[qk]_norm": SequenceParallel(sequence_dim=2, use_local_output=True),
        f"{layer}.self_attn.o_proj": RowwiseParallel(**row),
        f"{layer}.mlp": PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),)),
        f"{layer}.mlp.gate_proj": ColwiseParallel(),
        f"{layer}.mlp.up_proj": ColwiseParallel(),
        f"{layer}.mlp.down_proj": RowwiseParallel(**row),
        "model.norm": norm,
        "lm_head": ColwiseParallel(input_layouts=between, **head),
    }
