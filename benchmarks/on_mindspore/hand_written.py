"""The transformer block as one writes it by hand in MindSpore, with Megatron's pairs of collectives.

Parameters are the local parts; activations are local tensors ``[B, S, H]``. With sequence parallelism those
outside of attention and MLP hold this rank's part of the sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindspore import Tensor, mint, nn
from mindspore.common._grad_function import _Function
from mindspore.mint.nn import functional as F

from benchmarks.on_mindspore.cells import attend
from hyper_dtensor import Platform

__all__ = ["Block"]


class CopyToRegion(_Function):
    """Megatron's f: identity forward, all-reduce backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, platform: Platform, group: Any) -> Tensor:
        """See the class."""
        ctx.platform, ctx.group = platform, group
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """See the class."""
        return ctx.platform.all_reduce(gradient, "sum", ctx.group), None, None


class ReduceFromRegion(_Function):
    """Megatron's g: all-reduce forward, identity backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, platform: Platform, group: Any) -> Tensor:
        """See the class."""
        return platform.all_reduce(x, "sum", group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """See the class."""
        return gradient, None, None


class GatherIntoRegion(_Function):
    """All-gather along the sequence forward, reduce-scatter backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, platform: Platform, group: Any) -> Tensor:
        """See the class."""
        ctx.platform, ctx.group = platform, group
        return platform.all_gather(x, 1, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """See the class."""
        return ctx.platform.reduce_scatter(gradient, 1, "sum", ctx.group), None, None


class ScatterFromRegion(_Function):
    """Reduce-scatter along the sequence forward, all-gather backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, platform: Platform, group: Any) -> Tensor:
        """See the class."""
        ctx.platform, ctx.group = platform, group
        return platform.reduce_scatter(x, 1, "sum", group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """See the class."""
        return ctx.platform.all_gather(gradient, 1, ctx.group), None, None


class Block(nn.Cell):
    """Norm, attention, norm, MLP, with residuals; this rank's part of the parameters.

    Args:
        platform: Whose collectives it uses.
        ranks: The ranks of the group.
        hidden: Global size.
        heads: Global number of heads.
        features: Global size.
        sequence: Sequence parallelism.
    """

    def __init__(
        self, platform: Platform, ranks: int, hidden: int, heads: int, features: int, *, sequence: bool
    ) -> None:
        super().__init__()
        self.collective = (platform, platform.group(tuple(range(ranks))))
        inner, self.head_dim = hidden // ranks, hidden // heads
        self.norm1, self.norm2 = nn.LayerNorm((hidden,)), nn.LayerNorm((hidden,))
        self.q_proj, self.k_proj, self.v_proj = (mint.nn.Linear(hidden, inner, bias=False) for _ in range(3))
        self.o_proj = mint.nn.Linear(inner, hidden, bias=False)
        self.gate_proj = mint.nn.Linear(hidden, features // ranks, bias=False)
        self.up_proj = mint.nn.Linear(hidden, features // ranks, bias=False)
        self.down_proj = mint.nn.Linear(features // ranks, hidden, bias=False)
        self.sequence = sequence
        self.enter = GatherIntoRegion if sequence else CopyToRegion
        self.leave = ScatterFromRegion if sequence else ReduceFromRegion

    def construct(self, x: Tensor) -> Tensor:
        """``[B, S, H] -> [B, S, H]``."""
        x = x + self._attention(self.norm1(x))
        return x + self._mlp(self.norm2(x))

    def _attention(self, x: Tensor) -> Tensor:
        x = self.enter.apply(x, *self.collective)
        merged = attend(self.q_proj(x), self.k_proj(x), self.v_proj(x), self.head_dim)
        return self.leave.apply(self.o_proj(merged), *self.collective)

    def _mlp(self, x: Tensor) -> Tensor:
        x = self.enter.apply(x, *self.collective)
        gated = F.silu(self.gate_proj(x)) * self.up_proj(x)
        return self.leave.apply(self.down_proj(gated), *self.collective)

    def finish(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        """With sequence parallelism the gradients of the norms are summands: one all-reduce for all of them.

        Args:
            gradients: Of ``trainable_params()``, in their order.
        """
        if not self.sequence:
            return gradients
        of_norms = [number for number, p in enumerate(self.trainable_params()) if p.name.startswith("norm")]
        platform, group = self.collective
        joined = platform.all_reduce(mint.cat([gradients[number] for number in of_norms], 0), "sum", group)
        summed = list(gradients)
        for number, total in zip(of_norms, mint.chunk(joined, len(of_norms), 0), strict=True):
            summed[number] = total
        return summed
