"""A small decoder-only transformer of plain `torch.nn` modules, with the module names of Llama and Qwen3.

Nothing here knows how many devices there are. Tensor parallelism comes from outside, by module name, and
needs no more than what those models do anyway: attention takes as many heads as its projections deliver (the
-1 in its views), and positions are counted from the embedded text.

Shapes: B texts of S characters, V vocabulary, H hidden size, n heads of size d.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tiny_lm.sizes import Config


class RMSNorm(nn.Module):
    """Scales the last dim to a root mean square of one, times a learned weight."""

    def __init__(self, size: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(..., size) to the same shape."""
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        return self.weight * (hidden_states * torch.rsqrt(variance + self.eps))


class RotaryEmbedding(nn.Module):
    """The angles by which positions turn queries and keys."""

    inv_freq: Tensor

    def __init__(self, head_dim: int, base: float = 10000.0) -> None:
        super().__init__()
        inv_freq = base ** (-torch.arange(0, head_dim, 2) / head_dim)
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """(S,) positions to the cosines and the sines of their angles, (S, d) each."""
        angles = (positions[:, None] * self.inv_freq).repeat(1, 2)
        return angles.cos(), angles.sin()


def rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns (B, n, S, d) queries or keys; the two halves of d hold the two coordinates."""
    first, second = heads.chunk(2, dim=-1)
    return heads * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    """Causal grouped-query attention with normalised queries and keys."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        query_size, kv_size = config.num_heads * self.head_dim, config.num_kv_heads * self.head_dim
        self.q_proj = nn.Linear(config.hidden_size, query_size, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, kv_size, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, kv_size, bias=False)
        self.o_proj = nn.Linear(query_size, config.hidden_size, bias=False)
        self.q_norm = RMSNorm(self.head_dim)
        self.k_norm = RMSNorm(self.head_dim)

    def forward(self, hidden_states: Tensor, position_embeddings: tuple[Tensor, Tensor]) -> Tensor:
        """(B, S, H) to (B, S, H)."""
        input_shape = hidden_states.shape[:-1]
        heads_shape = (*input_shape, -1, self.head_dim)
        query = self.q_norm(self.q_proj(hidden_states).view(heads_shape)).transpose(1, 2)
        key = self.k_norm(self.k_proj(hidden_states).view(heads_shape)).transpose(1, 2)
        value = self.v_proj(hidden_states).view(heads_shape).transpose(1, 2)
        query, key = rotate(query, *position_embeddings), rotate(key, *position_embeddings)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(*input_shape, -1))


class MLP(nn.Module):
    """SwiGLU: one projection gates the other."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(B, S, H) to (B, S, H)."""
        return self.down_proj(F.silu(self.gate_proj(hidden_states)) * self.up_proj(hidden_states))


class DecoderLayer(nn.Module):
    """Attention, then the MLP, each on normalised input and added to what came in."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size)
        self.mlp = MLP(config)

    def forward(self, hidden_states: Tensor, position_embeddings: tuple[Tensor, Tensor]) -> Tensor:
        """(B, S, H) to (B, S, H)."""
        hidden_states = hidden_states + self.self_attn(
            hidden_states=self.input_layernorm(hidden_states), position_embeddings=position_embeddings
        )
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


class Decoder(nn.Module):
    """Everything before the head."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocabulary_size, config.hidden_size)
        self.rotary_emb = RotaryEmbedding(config.head_dim)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size)

    def forward(self, input_ids: Tensor) -> Tensor:
        """(B, S) token ids to (B, S, H)."""
        hidden_states = self.embed_tokens(input_ids)
        positions = torch.arange(hidden_states.shape[1], device=hidden_states.device)
        position_embeddings = self.rotary_emb(positions)
        for layer in self.layers:
            hidden_states = layer(hidden_states, position_embeddings=position_embeddings)
        return self.norm(hidden_states)


class LanguageModel(nn.Module):
    """The decoder and its head; a tied head has the weight of the embedding."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.model = Decoder(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocabulary_size, bias=False)
        self.apply(_initialise)
        if config.tied:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, input_ids: Tensor) -> Tensor:
        """(B, S) token ids to (B, S, V) logits of the token that follows each."""
        return self.lm_head(self.model(input_ids))


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
