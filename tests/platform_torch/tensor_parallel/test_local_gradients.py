"""``local_grad_placements``: a Replicate output that every rank uses in its own way."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from hyper_parallel import (
    ColwiseParallel,
    NoParallel,
    Partial,
    PrepareModuleInput,
    PrepareModuleOutput,
    Replicate,
    RowwiseParallel,
    Shard,
    parallelize_module,
)
from tests.platform_torch.tensor_parallel.common import close, line, on_ranks, piece, same_gradients, values

HIDDEN, HEADS, HEAD = 8, 4, 2


class OneKeyHead(nn.Module):
    """Grouped-query attention with one key and value head: fewer than there are ranks."""

    def __init__(self, kv_heads: int = 1) -> None:
        super().__init__()
        self.head_dim, self.heads, self.kv_heads = HEAD, HEADS, kv_heads
        self.q_proj = nn.Linear(HIDDEN, HEADS * HEAD)
        self.k_proj, self.v_proj = (nn.Linear(HIDDEN, kv_heads * HEAD) for _ in range(2))
        self.o_proj = nn.Linear(HEADS * HEAD, HIDDEN)

    def forward(self, x: Any) -> Any:
        """Query heads of this rank with the key head that serves them."""
        q, k, v = (
            projection(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        mine = range(q.shape[1])
        if q.shape[1] < self.heads:
            mine = range(line().get_local_rank() * q.shape[1], (line().get_local_rank() + 1) * q.shape[1])
        serving = [head * self.kv_heads // self.heads for head in mine]
        attended = F.scaled_dot_product_attention(q, k[:, serving], v[:, serving], is_causal=True)
        return self.o_proj(attended.transpose(1, 2).flatten(2))


def errors(kv_heads: int, **options: Any) -> dict[str, float]:
    """Relative errors of the gradients, by name."""
    torch.manual_seed(0)
    single = OneKeyHead(kv_heads).double()
    plan: dict[str, Any] = {
        "q_proj": ColwiseParallel(),
        "[kv]_proj": NoParallel(**options),
        "o_proj": RowwiseParallel(),
    }
    parallel = parallelize_module(copy.deepcopy(single), line(), plan)
    leaves = [values(2, 4, HIDDEN).requires_grad_() for _ in range(2)]
    sensitivity = values(2, 4, HIDDEN, seed=9)
    for model, leaf in zip((single, parallel), leaves, strict=True):
        output = model(leaf * 2)
        output.backward(sensitivity)
    close(output, single(leaves[0] * 2))
    pairs = {
        name: (p.grad, dict(parallel.named_parameters())[name].grad) for name, p in single.named_parameters()
    }
    pairs["input"] = (leaves[0].grad, leaves[1].grad)
    found = {}
    for name, (expected, got) in pairs.items():
        whole = got.full_tensor() if hasattr(got, "full_tensor") else got
        # The bias of a key projection shifts all scores of a query alike: its gradient is zero but for rounding.
        found[name] = float((whole - expected).norm() / expected.norm().clamp_min(1e-3))
    return found


@on_ranks(2, 4)
def test_fewer_key_heads_than_ranks() -> None:
    exact = errors(1, local_grad_placements=Partial())
    assert max(exact.values()) < 1e-12, exact


@on_ranks(4)
def test_two_key_heads_on_four_ranks() -> None:
    """Each rank slices the one head that serves it."""
    exact = errors(2, local_grad_placements=Partial())
    assert max(exact.values()) < 1e-12, exact


@on_ranks(2, 4)
def test_without_it_the_gradients_would_be_wrong() -> None:
    """The library cannot see what is done with a local tensor; the output is right all the same."""
    wrong = errors(1)
    assert all(wrong[name] > 0.1 for name in ("k_proj.weight", "v_proj.weight", "v_proj.bias", "input")), (
        wrong
    )
    assert wrong["o_proj.weight"] < 1e-12


@on_ranks(2)
def test_every_style_with_a_local_output_takes_it() -> None:
    """Each rank uses its own slice of a whole local tensor."""

    class Slices(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            return piece(self.inner(x), -1)

    partial = Partial()
    for style in (
        ColwiseParallel(output_layouts=Replicate(), local_grad_placements=partial),
        RowwiseParallel(input_layouts=Replicate(), local_grad_placements=partial),
        NoParallel(local_grad_placements=partial),
    ):
        torch.manual_seed(0)
        single = nn.Linear(HIDDEN, HIDDEN).double()
        parallel = Slices(parallelize_module(copy.deepcopy(single), line(), style))
        leaves = [values(3, HIDDEN).requires_grad_() for _ in range(2)]
        single(leaves[0]).backward(values(3, HIDDEN, seed=9))
        parallel(leaves[1]).backward(piece(values(3, HIDDEN, seed=9), -1))
        assert leaves[0].grad is not None
        close(leaves[1].grad, leaves[0].grad)
        same_gradients(single, parallel.inner)
    for style in (
        PrepareModuleInput(
            input_layouts=Shard(0),
            desired_input_layouts=Replicate(),
            use_local_output=True,
            local_grad_placements=partial,
        ),
        PrepareModuleOutput(
            output_layouts=Shard(0), desired_output_layouts=Replicate(), local_grad_placements=partial
        ),
    ):
        module = Slices(parallelize_module(nn.Identity(), line(), style))
        x = values(2, HIDDEN).requires_grad_()
        module(x).backward(piece(values(4, HIDDEN, seed=9), -1))
        close(x.grad, piece(values(4, HIDDEN, seed=9), 0))
