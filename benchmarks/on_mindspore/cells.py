"""The transformer block of plain cells."""

from __future__ import annotations

from typing import Any

from mindspore import mint, nn
from mindspore.mint.nn import functional as F

from benchmarks.plans import FEATURES, HEADS, HIDDEN

__all__ = ["Attention", "Block", "GatedMlp", "attend"]


def attend(q: Any, k: Any, v: Any, head_dim: int) -> Any:
    """Attention of projections ``[B, S, heads * head_dim]``, joined to such a tensor again."""
    shape = (*q.shape[:-1], -1, head_dim)
    q, k, v = (mint.transpose(t.reshape(shape), 1, 2) for t in (q, k, v))
    scores = mint.softmax(mint.matmul(q, mint.transpose(k, -1, -2)) * head_dim**-0.5, -1)
    return mint.transpose(mint.matmul(scores, v), 1, 2).flatten(2)


class Attention(nn.Cell):
    """Self-attention without biases; q, k and v share one input."""

    def __init__(self) -> None:
        super().__init__()
        self.head_dim = HIDDEN // HEADS
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            mint.nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(4)
        )

    def construct(self, x: Any) -> Any:
        """``[B, S, H] -> [B, S, H]``."""
        return self.o_proj(attend(self.q_proj(x), self.k_proj(x), self.v_proj(x), self.head_dim))


class GatedMlp(nn.Cell):
    """A gated MLP without biases."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = mint.nn.Linear(HIDDEN, FEATURES, bias=False)
        self.up_proj = mint.nn.Linear(HIDDEN, FEATURES, bias=False)
        self.down_proj = mint.nn.Linear(FEATURES, HIDDEN, bias=False)

    def construct(self, x: Any) -> Any:
        """``[B, S, H] -> [B, S, H]``."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Cell):
    """Norm, attention, norm, MLP, with residuals."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm((HIDDEN,)), nn.LayerNorm((HIDDEN,))
        self.attention, self.mlp = Attention(), GatedMlp()

    def construct(self, x: Any) -> Any:
        """``[B, S, H] -> [B, S, H]``."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))
