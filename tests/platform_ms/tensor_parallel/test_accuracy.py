"""Styles on cells against one device: rows B1 to B6, C1 to C9, C11, C14 and D3 of the styles RFC."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.platform_ms.helpers import close, mesh_of_all, mlp, tensor
from tests.platform_ms.tensor_parallel.common import check, filled, piece
from tests.support.ms_ranks import MindSporeRankPool


def placed(parameter: Any, placement: Any, local: tuple[int, ...]) -> None:
    from mindspore import Parameter

    from hyper_dtensor import DTensor

    assert isinstance(parameter, DTensor) and isinstance(parameter, Parameter)
    assert parameter.placements == (placement,) and tuple(parameter.to_local().shape) == local


def linear_layers() -> list[Any]:
    from mindspore import mint, nn

    return [filled(nn.Dense(8, 16)), filled(mint.nn.Linear(8, 16)), filled(nn.Dense(8, 16, has_bias=False))]


def colwise_linear() -> None:  # B1, C1
    from hyper_dtensor import get_platform
    from hyper_layout import Replicate, Shard
    from hyper_parallel import ColwiseParallel

    n = get_platform().world_size()
    for cell in linear_layers():
        for x in (tensor(3, 8), tensor(2, 3, 8)):
            split = check(cell, ColwiseParallel(), x, out_dim=len(x.shape) - 1)
            placed(split.weight, Shard(0), (16 // n, 8))
            if split.bias is not None:
                placed(split.bias, Shard(0), (16 // n,))
        check(cell, ColwiseParallel(output_layouts=Replicate()), tensor(3, 8))
        check(cell, ColwiseParallel(input_layouts=Shard(0)), tensor(4, 8), in_dim=0, out_dim=1)
        check(cell, ColwiseParallel(use_local_output=False), tensor(3, 8))


def rowwise_linear() -> None:  # B2, C2
    from hyper_dtensor import get_platform
    from hyper_layout import Replicate, Shard
    from hyper_parallel import RowwiseParallel

    n = get_platform().world_size()
    for cell in linear_layers():
        split = check(cell, RowwiseParallel(), tensor(3, 8), in_dim=1)
        placed(split.weight, Shard(1), (16, 8 // n))
        if split.bias is not None:
            placed(split.bias, Replicate(), (16,))
        check(cell, RowwiseParallel(output_layouts=Shard(0)), tensor(4, 8), in_dim=1, out_dim=0)
        check(cell, RowwiseParallel(input_layouts=Replicate()), tensor(2, 3, 8))


def two_layers() -> None:  # C3
    from hyper_parallel import ColwiseParallel, CommDebugMode, RowwiseParallel

    split = check(mlp(), {"0": ColwiseParallel(), "2": RowwiseParallel()}, tensor(3, 8))
    with CommDebugMode() as comm:
        split(tensor(3, 8))
    assert comm.counts == {"all_reduce": 1}


def embeddings() -> None:  # B3, B4, C4, C5
    from mindspore import Tensor, mint, nn

    from hyper_dtensor import get_platform
    from hyper_layout import Replicate, Shard
    from hyper_parallel import ColwiseParallel, RowwiseParallel

    n = get_platform().world_size()
    ids = Tensor(np.array([[0, 3, 7, 1], [7, 7, 2, 4]], np.int32))
    native, like_torch = filled(nn.Embedding(8, 4)), filled(mint.nn.Embedding(8, 4))
    for cell, weight in ((native, "embedding_table"), (like_torch, "weight")):
        split = check(cell, ColwiseParallel(), ids, out_dim=2, reference=native)
        placed(getattr(split, weight), Shard(1), (8, 4 // n))
        split = check(cell, RowwiseParallel(), ids, reference=native)
        placed(getattr(split, weight), Shard(0), (8 // n, 4))
        check(cell, RowwiseParallel(output_layouts=Shard(1)), ids, out_dim=1, reference=native)
        check(cell, ColwiseParallel(output_layouts=Replicate()), ids, reference=native)


def sequence_norms() -> None:  # B5, C6, C14
    from mindspore import mint, nn

    from hyper_dtensor import DTensor
    from hyper_layout import Replicate
    from hyper_parallel import SequenceParallel

    native, like_torch = filled(nn.LayerNorm((8,), -1, -1, epsilon=1e-5)), filled(mint.nn.LayerNorm((8,)))
    for cell in (native, like_torch):
        split = check(cell, SequenceParallel(), tensor(2, 4, 8), in_dim=1, reference=native)
        for parameter in split.trainable_params():
            placed(parameter, Replicate(), (8,))
        output = split(piece(tensor(2, 4, 8), 1))
        assert isinstance(output, DTensor) and output.shape == (2, 4, 8)
        # Norms over heads: (B, S, N, D), split by heads.
        style = SequenceParallel(sequence_dim=2, use_local_output=True)
        check(cell, style, tensor(2, 3, 4, 8), in_dim=2, out_dim=2, reference=native)


def sequence_dropout() -> None:  # C7
    from mindspore import nn

    from hyper_parallel import SequenceParallel

    check(nn.Dropout(p=0.0), SequenceParallel(), tensor(2, 4, 8), in_dim=1)


def no_parallel() -> None:  # B6, C8, C9
    from hyper_layout import Replicate, Shard
    from hyper_parallel import NoParallel

    for cell in linear_layers():
        split = check(cell, NoParallel(), tensor(3, 8))
        placed(split.weight, Replicate(), (16, 8))
        check(cell, NoParallel(input_layout=Shard(1)), tensor(2, 4, 8), in_dim=1)


def prepared() -> None:  # C10, C11, C12
    from mindspore import mint, nn

    from hyper_layout import Replicate, Shard
    from hyper_parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        PrepareModuleInputOutput,
        PrepareModuleOutput,
        RowwiseParallel,
    )

    class Wrapped(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()

        def construct(self, x: Any) -> Any:
            return self.body(x)

    class Keywords(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def construct(self, x: Any) -> Any:
            return self.inner(x, "unused", scale=x)

    class Inner(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()

        def construct(self, x: Any, other: Any, scale: Any = None) -> Any:
            return mint.cat([self.body(x), scale], -1)

    layers = {
        "body.0": ColwiseParallel(),
        "body.2": RowwiseParallel(output_layouts=Shard(0), use_local_output=False),
    }
    check(
        Wrapped(),
        {**layers, "body": PrepareModuleInput(input_layouts=Shard(0), desired_input_layouts=Replicate())},
        tensor(4, 8), in_dim=0,
    )  # fmt: skip
    output = PrepareModuleOutput(output_layouts=Shard(0), desired_output_layouts=Replicate())
    check(Wrapped(), {**layers, "body": output}, tensor(4, 8))
    both = PrepareModuleInputOutput(
        input_layouts=Shard(0), desired_input_layouts=Replicate(),
        output_layouts=Shard(0), desired_output_layouts=Shard(0),
    )  # fmt: skip
    check(Wrapped(), {**layers, "body": both}, tensor(4, 8), in_dim=0, out_dim=0)
    plan = {
        "inner": PrepareModuleInputOutput(
            input_layouts=(Shard(0), None), desired_input_layouts=(Replicate(), None),
            input_kwarg_layouts={"scale": Shard(0)}, desired_input_kwarg_layouts={"scale": Replicate()},
            output_layouts=Replicate(), desired_output_layouts=Shard(0),
        ),
        "inner.body.0": ColwiseParallel(),
        "inner.body.2": RowwiseParallel(use_local_output=False),
    }  # fmt: skip
    check(Keywords(), plan, tensor(4, 8), in_dim=0, out_dim=0)


def several_outputs() -> None:
    from mindspore import nn

    from hyper_dtensor import DTensor
    from hyper_layout import Replicate, Shard
    from hyper_parallel import PrepareModuleOutput, parallelize_module

    class Two(nn.Cell):
        def construct(self, x: Any) -> Any:
            return x * 2, "text", x

    style = PrepareModuleOutput(
        output_layouts=(Shard(0), None, Shard(0)),
        desired_output_layouts=(Replicate(), None, Shard(0)),
        use_local_output=False,
    )
    cell = parallelize_module(Two(), mesh_of_all(), style)
    doubled, text, same = cell(piece(tensor(4, 2), 0))
    assert text == "text" and isinstance(same, DTensor) and same.placements == (Shard(0),)
    assert doubled.placements == (Replicate(),)
    close(doubled, tensor(4, 2) * 2)


def reduced_in_float32() -> None:  # C13
    """Three additions round three times in float16, but only once after a sum in float32.

    On two ranks nothing differs: two addends have one sum, which is rounded once either way. Through float32 it is
    rounded twice, but 24 bits are enough for a sum of two numbers of 11 bits (2 * 11 + 2). The bits of bfloat16 travel
    through float32 on the CPU, and it has no matrix product there.
    """
    import copy

    import mindspore
    from mindspore import Parameter, Tensor, nn

    from hyper_dtensor import get_platform
    from hyper_layout import Shard
    from hyper_parallel import RowwiseParallel, parallelize_module

    mesh, size = mesh_of_all(), get_platform().world_size()
    x, half = tensor(16, 64, seed=7).astype(mindspore.float16), nn.Dense(64, 32, has_bias=False)
    half.weight = Parameter(tensor(32, 64, seed=5).astype(mindspore.float16), name="weight")

    def part(rank: int) -> Any:
        """What a rank computes: the same with and without; only the sum over ranks differs."""
        cell, rows = (
            nn.Dense(64 // size, 32, has_bias=False),
            slice(rank * (64 // size), (rank + 1) * (64 // size)),
        )
        cell.weight = Parameter(Tensor(half.weight.asnumpy()[:, rows].copy()), name="weight")
        return cell(Tensor(x.asnumpy()[:, rows].copy())).asnumpy()

    exact = np.stack([part(rank) for rank in range(size)]).astype(np.float64).sum(0)
    reference = x.asnumpy().astype(np.float64) @ half.weight.asnumpy().astype(np.float64).T
    found = {}
    for dtype in (None, mindspore.float32):
        for output_layout in (None, Shard(0)):
            style = RowwiseParallel(output_layouts=output_layout, reduce_dtype=dtype)
            split = parallelize_module(copy.deepcopy(half), mesh, style)
            step = mindspore.value_and_grad(
                lambda x, split=split: ((output := split(x)).astype(mindspore.float32).sum(), output),
                None,
                split.trainable_params(),
                has_aux=True,
            )
            (_, output), (gradient,) = step(piece(x, 1))
            assert output.dtype == gradient.dtype == mindspore.float16
            found[dtype, output_layout] = output.asnumpy()
    plain, raised = found[None, None], found[mindspore.float32, None]
    assert np.array_equal(raised, exact.astype(np.float32).astype(np.float16))
    for dtype in (None, mindspore.float32):
        here = piece(Tensor(found[dtype, None]), 0).asnumpy()
        assert np.array_equal(found[dtype, Shard(0)], here), dtype
    if size == 2:
        assert np.array_equal(plain, raised)
    else:
        for truth in (exact, reference):
            errors = [
                float(np.linalg.norm(output - truth) / np.linalg.norm(truth)) for output in (plain, raised)
            ]
            assert errors[1] < 0.95 * errors[0], errors


def smallest_block() -> None:  # D3
    from mindspore import mint, nn

    from hyper_dtensor import get_platform
    from hyper_layout import Replicate, Shard
    from hyper_parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel

    class Attention(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.num_heads, self.head_dim = 4, 4
            self.q_proj, self.k_proj, self.v_proj = (nn.Dense(16, 16) for _ in range(3))
            self.o_proj = nn.Dense(16, 16)

        def construct(self, hidden_states: Any) -> Any:
            batch, length, _ = hidden_states.shape

            def heads(x: Any) -> Any:
                return mint.transpose(x.reshape(batch, length, -1, self.head_dim), 1, 2)

            q, k, v = (
                heads(self.q_proj(hidden_states)),
                heads(self.k_proj(hidden_states)),
                heads(self.v_proj(hidden_states)),
            )
            scores = mint.softmax(mint.matmul(q, mint.transpose(k, -1, -2)) / 2.0, -1)
            merged = mint.transpose(mint.matmul(scores, v), 1, 2).reshape(batch, length, -1)
            return self.o_proj(merged)

    class Block(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm((16,))
            self.self_attn = Attention()

        def construct(self, x: Any) -> Any:
            return x + self.self_attn(hidden_states=self.norm(x))

    plan = {
        "norm": SequenceParallel(),
        "self_attn": PrepareModuleInput(
            input_kwarg_layouts={"hidden_states": Shard(1)}, desired_input_kwarg_layouts={"hidden_states": Replicate()}
        ),
        "self_attn.q_proj": ColwiseParallel(),
        "self_attn.k_proj": ColwiseParallel(),
        "self_attn.v_proj": ColwiseParallel(),
        "self_attn.o_proj": RowwiseParallel(output_layouts=Shard(1), use_local_output=True),
    }  # fmt: skip
    assert get_platform().world_size() in (2, 4)
    check(filled(Block()), plan, tensor(2, 8, 16), in_dim=1, out_dim=1, tolerance=5e-5)


CASES = [
    colwise_linear, rowwise_linear, two_layers, embeddings, sequence_norms, sequence_dropout, no_parallel, prepared,
    several_outputs, reduced_in_float32, smallest_block,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_on_two_ranks(case: Any, ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(case)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_on_four_ranks(case: Any, ms_ranks4: MindSporeRankPool) -> None:
    ms_ranks4.run(case)
