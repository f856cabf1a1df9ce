"""Forms that MindSpore has no kernel for on CPU: on DTensors they are there, equal to another form on one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.platform_ms.comparison import compare
from tests.platform_ms.ops.samples import few, name_of
from tests.support.ms_ranks import MindSporeRankPool
from tests.support.sample import Input, Sample


def ids(*shape: int, high: int = 4) -> Input:
    dims = tuple(f"S({dim})" for dim, size in enumerate(shape) if size > 1)
    return Input(shape, "integers", "int32", high=high, tokens=("R", *dims))


def sort(x: Any) -> Any:
    from mindspore import mint

    return mint.sort(x, dim=1)[0]


def sort_reference(x: Any) -> Any:
    from mindspore import ops

    return ops.sort(x, 1)[0]


def topk(x: Any) -> Any:
    from mindspore import mint

    return mint.topk(x, 2)[0]


def topk_reference(x: Any) -> Any:
    from mindspore import ops

    return ops.topk(x, 2)[0]


def select(x: Any, index: Any) -> Any:
    from mindspore import mint

    return mint.index_select(x, 0, index)


def gather(x: Any, index: Any) -> Any:
    from mindspore import ops

    return ops.gather(x, index, 0)


def embedding(index: Any, weight: Any) -> Any:
    from mindspore.mint.nn import functional as F

    return F.embedding(index, weight)


def gather_rows(index: Any, weight: Any) -> Any:
    from mindspore import ops

    return ops.gather(weight, index, 0)


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    from mindspore import ops

    return ops.layer_norm(x, (4,), weight, bias)


def layer_norm_primitive(x: Any, weight: Any, bias: Any) -> Any:
    from mindspore import ops

    return ops.LayerNorm(-1, -1, 1e-5)(x, weight, bias)[0]


def rms_norm(x: Any, weight: Any) -> Any:
    from mindspore import ops

    return ops.rms_norm(x, weight)[0]


def rms_norm_reference(x: Any, weight: Any) -> Any:
    from mindspore import mint

    return x * mint.rsqrt(mint.mean(mint.square(x), -1, True) + 1e-6) * weight


def roll(x: Any) -> Any:
    from mindspore import mint

    return mint.roll(x, 1, 1)


def roll_reference(x: Any) -> Any:
    from mindspore import mint

    return mint.cat([x[:, -1:], x[:, :-1]], 1)


def var_reference(x: Any, dim: int) -> Any:
    from mindspore import mint

    centred = x - mint.mean(x, dim, True)
    return mint.sum(mint.square(centred), dim) / (x.shape[dim] - 1)


def einsum(x: Any, y: Any) -> Any:
    from mindspore import mint

    return mint.einsum("ij,kj->ik", x, y)


def einsum_reference(x: Any, y: Any) -> Any:
    from mindspore import mint

    return mint.matmul(x, y.T)


def square(x: Any, y: Any) -> Any:
    from mindspore import mint

    return mint.mean(mint.square(x - y))


def f32(*shape: int) -> Input:
    return few(*shape, dtype="float32")


CASES: list[tuple[Sample, str | Callable[..., Any]]] = [
    (Sample("sort", sort, [few(4, 2)], accepts=["S(0) -> S(0)"]), sort_reference),
    (Sample("topk", topk, [few(4, 4)], accepts=["S(0) -> S(0)"]), topk_reference),
    (Sample("cumsum", "mint.cumsum", [few(4, 2)], [(1,)], accepts=["S(0) -> S(0)", "P -> P"]), "ops.cumsum"),
    (Sample("log_softmax", "F.log_softmax", [f32(4, 2)], [(1,)], accepts=["S(1) -> S(1)"]), "ops.log_softmax"),
    (Sample("gelu", "F.gelu", [f32(4, 2)], [{}, {"approximate": "tanh"}], accepts=["S(0) -> S(0)"]), "ops.gelu"),
    (Sample("var", "mint.var", [few(4, 2)], [(1,), (0,)], accepts=["S(0)", "S(1)"]), var_reference),
    (Sample("logsumexp", "mint.logsumexp", [few(4, 2)], [(1,)], accepts=["S(1) -> R"]), "ops.logsumexp"),
    (Sample("norm", "mint.norm", [few(4, 2)], [{"dim": 1}], accepts=["S(1) -> R"]), "ops.norm"),
    (Sample("index_select", select, [few(4, 2), ids(2)], accepts=["S(0) R -> P(sum)", "S(1) R -> S(1)"]), gather),
    (Sample("embedding", embedding, [ids(4, 2), few(4, 2)], accepts=["R S(0) -> P(sum)", "R S(1) -> S(2)"]), gather_rows),
    (Sample("layer_norm", layer_norm, [f32(4, 2, 4), f32(4), f32(4)], accepts=["S(1) R R -> S(1)"]), layer_norm_primitive),
    (Sample("rms_norm", rms_norm, [few(4, 2, 4), few(4)], accepts=["S(1) R -> S(1)"]), rms_norm_reference),
    (Sample("roll", roll, [few(4, 2)], accepts=["S(0) -> S(0)", "P -> P"]), roll_reference),
    (Sample("tril", "mint.tril", [few(4, 2)], accepts=["S(0) -> S(0)", "S(1) -> S(1)"]), "ops.tril"),
    (Sample("einsum", einsum, [few(4, 2), few(6, 2)], accepts=["S(1) S(1) -> P", "S(0) R -> S(0)"]), einsum_reference),
    (Sample("stack", "mint.stack", [few(4, 2)] * 2, [(1,)], tensors_in_list=True, accepts=["S(0) S(0) -> S(0)"]), "ops.stack"),
    (Sample("mse_loss", "F.mse_loss", [few(4, 2)] * 2, accepts=["S(0) S(0) -> P(sum)"]), square),
    (Sample("cross_entropy", "F.cross_entropy", [few(4, 4), ids(4)], accepts=["S(1) R -> R", "S(0) S(0) -> P"]), "ops.cross_entropy"),
    (Sample("repeat_interleave", "mint.repeat_interleave", [few(4, 2)], [(2, 1)], accepts=["S(1) -> S(1)"]), "ops.repeat_interleave"),
    (Sample("zeros_like", "mint.zeros_like", [few(4, 2)], accepts=["S(0) -> S(0)"]), "ops.zeros_like"),
]  # fmt: skip


@pytest.mark.parametrize(("sample", "reference"), CASES, ids=[name_of(sample) for sample, _ in CASES])
def test_on_two_ranks(sample: Sample, reference: Any, ms_ranks2: MindSporeRankPool) -> None:
    compare(ms_ranks2, sample, reference)
