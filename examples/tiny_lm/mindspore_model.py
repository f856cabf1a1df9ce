"""The model of `model.py` in MindSpore's cells, with the same module names.

Nothing here knows how many devices there are. Shapes as there: B texts of S characters, V vocabulary, H
hidden size, n heads of size d.
"""

import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops

from tiny_lm.sizes import Config


class RMSNorm(nn.Cell):
    """Scales the last dim to a root mean square of one, times a learned weight."""

    def __init__(self, size: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = Parameter(mint.ones(size), name="weight")
        self.eps = eps

    def construct(self, hidden_states: Tensor) -> Tensor:
        """(..., size) to the same shape."""
        variance = mint.mean(mint.square(hidden_states), -1, True)
        return self.weight * (hidden_states * mint.rsqrt(variance + self.eps))


def rotary_embedding(
    length: int, head_dim: int, dtype: object, base: float = 10000.0
) -> tuple[Tensor, Tensor]:
    """Returns cosines and sines of the angles by which positions turn queries and keys, (S, d) each."""
    frequencies = base ** (-np.arange(0, head_dim, 2) / head_dim)
    angles = np.tile(np.arange(length)[:, None] * frequencies, (1, 2))
    return Tensor(np.cos(angles)).astype(dtype), Tensor(np.sin(angles)).astype(dtype)


def rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns (B, n, S, d) queries or keys; the two halves of d hold the two coordinates."""
    first, second = mint.chunk(heads, 2, dim=-1)
    return heads * cos + mint.cat((-second, first), dim=-1) * sin


def causal_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Mixes values by how queries match keys that are not later; query heads share key and value heads."""
    batch, heads, length, size = query.shape
    shared = heads // key.shape[1]

    def repeated(x: Tensor) -> Tensor:
        wide = mint.broadcast_to(mint.unsqueeze(x, 2), (batch, x.shape[1], shared, length, size))
        return mint.reshape(wide, (batch, heads, length, size))

    scores = mint.matmul(query, mint.transpose(repeated(key), -1, -2)) / size**0.5
    later = Tensor(np.triu(np.full((length, length), -np.inf), 1)).astype(scores.dtype)
    return mint.matmul(mint.softmax(scores + later, -1), repeated(value))


class Attention(nn.Cell):
    """Causal grouped-query attention with normalised queries and keys."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        query_size, kv_size = config.num_heads * self.head_dim, config.num_kv_heads * self.head_dim
        self.q_proj = nn.Dense(config.hidden_size, query_size, has_bias=False)
        self.k_proj = nn.Dense(config.hidden_size, kv_size, has_bias=False)
        self.v_proj = nn.Dense(config.hidden_size, kv_size, has_bias=False)
        self.o_proj = nn.Dense(query_size, config.hidden_size, has_bias=False)
        self.q_norm = RMSNorm(self.head_dim)
        self.k_norm = RMSNorm(self.head_dim)

    def construct(self, hidden_states: Tensor, position_embeddings: tuple[Tensor, Tensor]) -> Tensor:
        """(B, S, H) to (B, S, H)."""
        input_shape = hidden_states.shape[:-1]
        heads_shape = (*input_shape, -1, self.head_dim)
        query = mint.transpose(self.q_norm(self.q_proj(hidden_states).reshape(heads_shape)), 1, 2)
        key = mint.transpose(self.k_norm(self.k_proj(hidden_states).reshape(heads_shape)), 1, 2)
        value = mint.transpose(self.v_proj(hidden_states).reshape(heads_shape), 1, 2)
        query, key = rotate(query, *position_embeddings), rotate(key, *position_embeddings)
        mixed = causal_attention(query, key, value)
        return self.o_proj(mint.transpose(mixed, 1, 2).reshape((*input_shape, -1)))


class MLP(nn.Cell):
    """SwiGLU: one projection gates the other."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate_proj = nn.Dense(config.hidden_size, config.intermediate_size, has_bias=False)
        self.up_proj = nn.Dense(config.hidden_size, config.intermediate_size, has_bias=False)
        self.down_proj = nn.Dense(config.intermediate_size, config.hidden_size, has_bias=False)

    def construct(self, hidden_states: Tensor) -> Tensor:
        """(B, S, H) to (B, S, H)."""
        return self.down_proj(ops.silu(self.gate_proj(hidden_states)) * self.up_proj(hidden_states))


class DecoderLayer(nn.Cell):
    """Attention, then the MLP, each on normalised input and added to what came in."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size)
        self.mlp = MLP(config)

    def construct(self, hidden_states: Tensor, position_embeddings: tuple[Tensor, Tensor]) -> Tensor:
        """(B, S, H) to (B, S, H)."""
        hidden_states = hidden_states + self.self_attn(
            hidden_states=self.input_layernorm(hidden_states), position_embeddings=position_embeddings
        )
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


class Decoder(nn.Cell):
    """Everything before the head."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.embed_tokens = nn.Embedding(config.vocabulary_size, config.hidden_size)
        self.layers = nn.CellList([DecoderLayer(config) for _ in range(config.num_layers)])
        self.norm = RMSNorm(config.hidden_size)

    def construct(self, input_ids: Tensor) -> Tensor:
        """(B, S) token ids to (B, S, H)."""
        hidden_states = self.embed_tokens(input_ids)
        position_embeddings = rotary_embedding(hidden_states.shape[1], self.head_dim, hidden_states.dtype)
        for layer in self.layers:
            hidden_states = layer(hidden_states, position_embeddings=position_embeddings)
        return self.norm(hidden_states)


class LanguageModel(nn.Cell):
    """The decoder and its head; a tied head has the weight of the embedding."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.model = Decoder(config)
        self.lm_head = nn.Dense(config.hidden_size, config.vocabulary_size, has_bias=False)
        if config.tied:
            self.lm_head.weight = self.model.embed_tokens.embedding_table

    def construct(self, input_ids: Tensor) -> Tensor:
        """(B, S) token ids to (B, S, V) logits of the token that follows each."""
        return self.lm_head(self.model(input_ids))


def initialised(model: LanguageModel, dtype: object, seed: int) -> LanguageModel:
    """The model with weights drawn from a seed, the same in every process."""
    source = np.random.default_rng(seed)
    for name, parameter in model.parameters_and_names():
        parameter.set_dtype(dtype)
        if "norm" not in name:
            parameter.set_data(Tensor(source.normal(0, 0.02, parameter.shape)).astype(dtype))
    return model
