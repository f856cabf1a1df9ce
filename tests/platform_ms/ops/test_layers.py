"""Norms, embeddings and losses of MindSpore in every form, against one device."""

from __future__ import annotations

import pytest

from tests.platform_ms.comparison import compare
from tests.platform_ms.ops.samples import few, name_of
from tests.support.ms_ranks import MindSporeRankPool
from tests.support.sample import Input, Sample


def layer_norm(x: object, weight: object, bias: object) -> object:
    from mindspore import ops

    return ops.LayerNorm(-1, -1, 1e-5)(x, weight, bias)[0]


def embedding(ids: object, weight: object) -> object:
    from mindspore import ops

    return ops.gather(weight, ids, 0)


def ids(*shape: int, high: int = 4) -> Input:
    dims = tuple(f"S({dim})" for dim, size in enumerate(shape) if size > 1)
    return Input(shape, "integers", "int32", high=high, tokens=("R", *dims))


CLASSES = ["S(0) S(0) -> P(sum)", "S(0) R -> P(sum)", "S(1) R -> R"]
SAMPLES = [
    Sample(
        "layer_norm",
        layer_norm,
        [few(4, 2, 4, dtype="float32"), few(4, dtype="float32"), few(4, dtype="float32")],
        accepts=["S(0) R R -> S(0)", "S(1) R R -> S(1)"],
        label="f32",
    ),
    Sample(
        "embedding",
        embedding,
        [ids(4, 2), few(4, 2)],
        accepts=["S(0) R -> S(0)", "R S(1) -> S(2)", "R S(0) -> P(sum)", "R P -> P"],
    ),
    Sample(
        "cross_entropy", "ops.cross_entropy", [few(4, 4), ids(4)], [{}, {"reduction": "sum"}], accepts=CLASSES
    ),
    Sample(
        "cross_entropy",
        "ops.cross_entropy",
        [few(4, 4), ids(4)],
        [{"ignore_index": 1}, {"label_smoothing": 0.1}],
        accepts=CLASSES,
    ),
    Sample(
        "cross_entropy",
        "ops.cross_entropy",
        [few(4, 4), ids(4)],
        [{"reduction": "none"}],
        accepts=["S(0) S(0) -> S(0)", "S(1) R -> R"],
    ),
    Sample(
        "nll_loss",
        "ops.nll_loss",
        [few(4, 4, dtype="float32"), ids(4)],
        [{}, {"reduction": "sum"}],
        accepts=["S(0) S(0) -> P(sum)"],
    ),
    Sample(
        "mse_loss",
        "ops.mse_loss",
        [few(4, 2, dtype="float32"), few(4, 2, dtype="float32")],
        [{}, {"reduction": "sum"}],
        accepts=["S(0) S(0) -> P(sum)", "S(0) R -> P(sum)"],
    ),
    Sample(
        "l1_loss",
        "ops.l1_loss",
        [few(4, 2, dtype="float32"), few(4, 2, dtype="float32")],
        [{}],
        accepts=["S(0) S(0) -> P(sum)"],
    ),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=name_of)
def test_on_two_ranks(sample: Sample, ms_ranks2: MindSporeRankPool) -> None:
    compare(ms_ranks2, sample)
