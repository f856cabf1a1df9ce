"""RFC 8.2 C1-C14: values and gradients on 2 and 4 ranks are those of one device.

Gradients are compared as they are: where the RFC divides the gathered gradient of a row-wise weight by the
number of ranks, there is nothing to divide here (``docs/gradients.md``).
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hyper_dtensor import CommDebugMode
from hyper_parallel import (
    ColwiseParallel,
    DTensor,
    NoParallel,
    Partial,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    Replicate,
    RowwiseParallel,
    SequenceParallel,
    Shard,
    parallelize_module,
)
from tests.platform_torch.tensor_parallel.common import (
    check,
    line,
    on_ranks,
    piece,
    values,
    world,
)

R = Replicate()
BATCH, SEQUENCE, HIDDEN, FEATURES, VOCABULARY = 2, 8, 8, 12, 16


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear1 = nn.Linear(HIDDEN, FEATURES)
        self.linear2 = nn.Linear(FEATURES, HIDDEN)

    def forward(self, x: Any) -> Any:
        return self.linear2(torch.relu(self.linear1(x)))


class HeadNorm(nn.Module):
    """The RMSNorm of Llama and Qwen3, in their own words."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * values(size, seed=4))

    def forward(self, x: Any) -> Any:
        dtype = x.dtype
        x = x.to(torch.float64)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * x.to(dtype)


class Summands(nn.Module):
    def forward(self, x: Any) -> Any:
        return DTensor.from_local(x, line(), [Partial()])


def activations() -> torch.Tensor:
    return values(BATCH, SEQUENCE, HIDDEN, seed=1)


@on_ranks(2, 4)
@pytest.mark.parametrize("bias", [True, False])
def test_c1_colwise_linear(bias: bool) -> None:
    check(nn.Linear(HIDDEN, FEATURES, bias=bias).double(), ColwiseParallel(), activations(), out_dim=-1)


@on_ranks(2, 4)
@pytest.mark.parametrize("bias", [True, False])
def test_c2_rowwise_linear(bias: bool) -> None:
    linear = nn.Linear(HIDDEN, FEATURES, bias=bias).double()
    check(linear, RowwiseParallel(), activations(), in_dim=-1)
    check(linear, RowwiseParallel(input_layouts=R), activations())


@on_ranks(2, 4)
def test_c2_rowwise_linear_into_shards() -> None:
    """The output is reduce-scattered along the sequence."""
    linear = nn.Linear(HIDDEN, FEATURES).double()
    check(linear, RowwiseParallel(output_layouts=Shard(1)), activations(), in_dim=-1, out_dim=1)


@on_ranks(2, 4)
def test_c3_colwise_and_rowwise_mlp() -> None:
    plan = {"linear1": ColwiseParallel(), "linear2": RowwiseParallel()}
    check(Mlp().double(), plan, activations())


@on_ranks(2, 4)
def test_c4_colwise_embedding() -> None:
    ids = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE), generator=torch.Generator().manual_seed(2))
    embedding = nn.Embedding(VOCABULARY, HIDDEN).double()
    check(embedding, ColwiseParallel(), ids, out_dim=-1)
    check(embedding, ColwiseParallel(output_layouts=R), ids)


@on_ranks(2, 4)
def test_c5_rowwise_embedding() -> None:
    ids = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE), generator=torch.Generator().manual_seed(2))
    embedding = nn.Embedding(VOCABULARY, HIDDEN, padding_idx=3).double()
    check(embedding, RowwiseParallel(), ids)
    check(embedding, RowwiseParallel(input_layouts=R, output_layouts=Shard(1)), ids, out_dim=1)
    output = check(embedding, RowwiseParallel(output_layouts=Shard(1), use_local_output=False), ids)
    assert output.placements == (Shard(1),)


@on_ranks(2, 4)
@pytest.mark.parametrize("affine", [True, False])
def test_c6_sequence_parallel_layer_norm(affine: bool) -> None:
    norm = nn.LayerNorm(HIDDEN, elementwise_affine=affine).double()
    if affine:
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    output = check(norm, SequenceParallel(), activations(), in_dim=1)
    assert output.placements == (Shard(1),)
    check(norm, SequenceParallel(use_local_output=True), activations(), in_dim=1, out_dim=1)


@on_ranks(2, 4)
def test_c7_sequence_parallel_dropout() -> None:
    output = check(nn.Dropout(0.0), SequenceParallel(), activations(), in_dim=1)
    assert output.placements == (Shard(1),)


@on_ranks(2, 4)
def test_c8_no_parallel_linear() -> None:
    linear = nn.Linear(HIDDEN, FEATURES).double()
    with CommDebugMode() as comm:
        check(linear, NoParallel(), activations())
    assert set(comm.counts) <= {"broadcast"}, "whole values everywhere: computing sends nothing"
    output = check(linear, NoParallel(use_local_output=False), activations())
    assert isinstance(output, DTensor)


@on_ranks(2, 4)
def test_c9_sequence_parallel_into_no_parallel() -> None:
    model = nn.Sequential(nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, FEATURES)).double()
    nn.init.normal_(model[0].weight)
    check(model, {"0": SequenceParallel(), "1": NoParallel()}, activations(), in_dim=1)
    back = NoParallel(input_layout=Shard(1), output_layout=Shard(1))
    check(model, {"0": SequenceParallel(), "1": back}, activations(), in_dim=1, out_dim=1)


@on_ranks(2, 4)
def test_c10_prepare_input_into_colwise_linear() -> None:
    """Batch shards are gathered at the entrance of the parent; as plain tensors they must be told apart."""
    model = nn.Sequential(nn.Sequential(nn.Linear(HIDDEN, FEATURES))).double()
    layouts: dict[str, Any] = {"input_layouts": (Shard(0),), "desired_input_layouts": (R,)}
    x = values(4, HIDDEN, seed=1)
    check(model, {"0": PrepareModuleInput(**layouts), "0.0": ColwiseParallel()}, x, in_dim=0, out_dim=-1)
    check(model, {"0": PrepareModuleInput(**layouts, use_local_output=True)}, x, in_dim=0)


@on_ranks(2, 4)
def test_c11_rowwise_into_prepare_output() -> None:
    model = nn.Sequential(nn.Linear(HIDDEN, FEATURES)).double()
    row = RowwiseParallel(use_local_output=False)
    exit_ = PrepareModuleOutput(output_layouts=R, desired_output_layouts=Shard(0), use_local_output=True)
    x = values(4, HIDDEN, seed=1)
    check(nn.Sequential(model), {"0": exit_, "0.0": row}, x, in_dim=-1, out_dim=0)
    whole_again = PrepareModuleOutput(output_layouts=Shard(0), desired_output_layouts=R)
    scattered = RowwiseParallel(output_layouts=Shard(0))
    check(nn.Sequential(model), {"0": whole_again, "0.0": scattered}, x, in_dim=-1)


@on_ranks(2, 4)
def test_c12_prepare_input_output_around_an_mlp() -> None:
    """Sequence shards come in, the MLP computes on the whole sequence, sequence shards go out."""
    plan = {
        "0": PrepareModuleInputOutput(
            input_layouts=(Shard(1),),
            desired_input_layouts=(R,),
            output_layouts=R,
            desired_output_layouts=Shard(1),
        ),
        "0.linear1": ColwiseParallel(),
        "0.linear2": RowwiseParallel(),
    }
    check(nn.Sequential(Mlp()).double(), plan, activations(), in_dim=1, out_dim=1)
    plan["0.linear2"] = RowwiseParallel(output_layouts=Shard(1), use_local_output=False)
    check(nn.Sequential(Mlp()).double(), plan, activations(), in_dim=1, out_dim=1)


def reduced(
    dtype: torch.dtype, reduce_dtype: torch.dtype | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Output of a row-parallel layer in a low precision, the exact sum of its local products, and the layer's
    output in float64."""
    linear = nn.Linear(64, 32).to(dtype)
    with torch.no_grad():
        linear.weight.copy_(values(32, 64, seed=5))
        linear.bias.copy_(values(32, seed=6))
    weight, bias = linear.weight.detach().clone(), linear.bias.detach().clone()
    x = values(16, 64, seed=7, dtype=dtype)
    # What each rank computes in the module's dtype is the same either way; only the sum over ranks differs.
    parts = [F.linear(piece(x, -1, r), piece(weight, 1, r), bias if r == 0 else None) for r in range(world())]
    exact = torch.stack([part.double() for part in parts]).sum(0)
    parallel = parallelize_module(linear, line(), RowwiseParallel(reduce_dtype=reduce_dtype))
    output = parallel(piece(x, -1).clone().requires_grad_())
    assert output.dtype == dtype
    output.sum().backward()
    assert parallel.weight.grad is not None
    assert parallel.weight.grad.dtype == dtype
    return output.detach(), exact, F.linear(x.double(), weight.double(), bias.double())


@on_ranks(4)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_c13_reduce_dtype_is_better_on_four_ranks(dtype: torch.dtype) -> None:
    """Three additions round three times in the module's dtype, but only once after a sum in float32."""
    plain, exact, reference = reduced(dtype, None)
    raised, _, _ = reduced(dtype, torch.float32)
    for truth in (exact, reference):
        errors = [float((output.double() - truth).norm() / truth.norm()) for output in (plain, raised)]
        assert errors[1] < 0.95 * errors[0], errors
    # The sum of four numbers in float32 is next to exact, so the result is the exact sum, rounded once.
    assert torch.equal(raised, exact.float().to(dtype))


@on_ranks(2)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_c13_reduce_dtype_changes_nothing_on_two_ranks(dtype: torch.dtype) -> None:
    """Two addends have one sum and it is rounded once either way.

    Through float32 it is rounded twice, but the first rounding cannot change the second: float32 has 24 bits, and
    for a sum of two numbers of p bits 2p + 2 are enough (p = 8 for bfloat16, 11 for float16).
    """
    plain, exact, _ = reduced(dtype, None)
    raised, _, _ = reduced(dtype, torch.float32)
    assert torch.equal(plain, raised)
    assert torch.equal(plain, exact.to(dtype))


@on_ranks(4)
def test_c13_reduce_dtype_of_prepare_output() -> None:
    """PrepareModuleOutput reduces a Partial output in the given dtype, and rounds back."""

    parts = [values(64, seed=20 + r, dtype=torch.bfloat16) for r in range(4)]
    exact = torch.stack([part.double() for part in parts]).sum(0)
    mine = parts[line().get_local_rank()]
    outputs = []
    for dtype in (None, torch.float32):
        style = PrepareModuleOutput(output_layouts=R, desired_output_layouts=R, reduce_dtype=dtype)
        outputs.append(parallelize_module(Summands(), line(), style)(mine))
        assert outputs[-1].dtype == torch.bfloat16
    errors = [float((output.double() - exact).norm()) for output in outputs]
    assert errors[1] < errors[0]
    scattered = PrepareModuleOutput(
        output_layouts=R, desired_output_layouts=Shard(0), reduce_dtype=torch.float32
    )
    output = parallelize_module(Summands(), line(), scattered)(mine)
    assert torch.equal(output, piece(outputs[1], 0))


@on_ranks(2, 4)
@pytest.mark.parametrize("kind", ["own", "framework"])
def test_c14_sequence_parallel_over_heads(kind: str) -> None:
    """``sequence_dim=2``: the norms of q and k on ``[B, S, heads, d]``, split by heads."""
    norm: nn.Module = HeadNorm(6) if kind == "own" else nn.RMSNorm(6, eps=1e-6).double()
    if kind == "framework":
        nn.init.normal_(norm.weight)
    x = values(BATCH, 3, 8, 6, seed=3)
    style = SequenceParallel(sequence_dim=2, use_local_output=True)
    check(norm, style, x, in_dim=2, out_dim=2)
    output = check(norm, SequenceParallel(sequence_dim=2), x, in_dim=2)
    assert output.placements == (Shard(2),)


@on_ranks(2)
def test_c14_a_sequence_that_does_not_divide() -> None:
    norm = parallelize_module(nn.LayerNorm(4), line(), SequenceParallel(use_local_output=True))
    gathered = parallelize_module(
        nn.Identity(), line(), PrepareModuleInput(input_layouts=R, desired_input_layouts=Shard(1))
    )
    with pytest.raises(ValueError, match=r"dim 1 of size 3 .* 'tp' \(size 2\)"):
        norm(gathered(torch.ones(2, 3, 4)))
