"""Representative operators of MindSpore on a mesh of two axes, against one device: values and gradients.

Which layouts an operator takes on two axes is derived from those on one by code that all platforms share, and tried in
full on PyTorch; here MindSpore's part is seen: local functions, views per set of axes, and collectives on sub-groups.
"""

from __future__ import annotations

import pytest

from tests.platform_ms.comparison import compare
from tests.platform_ms.ops.samples import few, name_of
from tests.platform_ms.ops.test_layers import embedding, ids, layer_norm
from tests.support.ms_ranks import MindSporeRankPool
from tests.support.sample import Sample

X, Y = few(4, 4), few(4, 4)
BATCH_AND_FEATURES = ("S(0) R R", "R S(0) S(0)")
CASES = [
    (Sample("add", "operator.add", [X, few(4)]), [("S(0) R", "S(1) S(0)"), ("S(1) S(0)", "S(1) S(0)"), ("P R", "S(0) R"), ("V R", "P(avg) R")]),
    (Sample("mul", "operator.mul", [X, Y]), [("S(0) S(0)", "S(1) S(1)"), ("S(0) S(0)", "R P"), ("V R", "S(1) S(1)"), ("S(0) S(0)", "S(0) S(0)")]),
    (Sample("silu", "F.silu", [X]), [("S(0)", "S(1)"), ("S(1)", "S(1)"), ("V", "S(0)")]),
    (Sample("matmul", "mint.matmul", [X, Y]), [("S(0) R", "R S(1)"), ("S(1) S(0)", "S(0) R"), ("S(1) S(0)", "S(1) S(0)"), ("P R", "R S(1)"), ("V R", "S(0) R")]),
    (Sample("linear", "F.linear", [few(4, 4), few(8, 4), few(8)]), [BATCH_AND_FEATURES, ("S(0) R R", "S(1) S(1) R"), ("R S(0) S(0)", "R S(0) S(0)"), ("S(0) R R", "R R V")]),
    (Sample("sum", "mint.sum", [X], [{"dim": 1}, {}]), [("S(0)", "S(1)"), ("S(1)", "S(1)"), ("P", "S(1)")]),
    (Sample("mean", "mint.mean", [X], [{"dim": -1, "keepdim": True}]), [("S(0)", "S(1)"), ("S(1)", "S(1)"), ("V", "S(1)")]),
    (Sample("amax", "mint.amax", [X], [(1,)]), [("S(0)", "S(1)"), ("S(1)", "S(1)"), ("V", "S(1)")]),
    (Sample("softmax", "mint.softmax", [X], [(-1,)]), [("S(0)", "R"), ("S(0)", "S(0)"), ("S(0)", "V")]),
    (Sample("reshape", "mint.reshape", [few(4, 8)], [((2, 2, 2, 4),)]), [("S(0)", "S(1)"), ("S(0)", "S(0)"), ("P", "S(1)")]),
    (Sample("transpose", "mint.transpose", [X], [(0, 1)]), [("S(0)", "S(1)"), ("S(1)", "S(1)"), ("P", "P")]),
    (Sample("cat", "mint.cat", [X, Y], [(0,)], tensors_in_list=True), [("S(1) S(1)", "S(1) S(1)"), ("S(1) S(1)", "P P"), ("V R", "S(1) S(1)")]),
    (Sample("layer_norm", layer_norm, [few(4, 4, 4, dtype="float32"), few(4, dtype="float32"), few(4, dtype="float32")]), [("S(0) R R", "S(1) R R"), ("S(1) R R", "S(1) R R"), ("S(0) R R", "R R V")]),
    (Sample("embedding", embedding, [ids(4, 2), few(4, 4)]), [("S(0) R", "R S(0)"), ("S(0) R", "R S(1)"), ("R S(0)", "R S(1)"), ("R S(0)", "R S(0)")]),
    (Sample("cross_entropy", "ops.cross_entropy", [X, ids(4)], [{}, {"reduction": "sum"}]), [("S(0) S(0)", "S(1) R"), ("S(0) S(0)", "S(0) S(0)"), ("S(1) R", "S(1) R")]),
]  # fmt: skip


@pytest.mark.parametrize(("sample", "pairs"), CASES, ids=[name_of(sample) for sample, _ in CASES])
def test_on_four_ranks(sample: Sample, pairs: list[tuple[str, str]], ms_ranks4: MindSporeRankPool) -> None:
    pairs = [(_sums(dp), _sums(tp)) for dp, tp in pairs]
    tried = compare(ms_ranks4, sample, pairs=pairs).accepted
    assert len(tried) == len(pairs), tried


def _sums(column: str) -> str:
    return " ".join("P(sum)" if token == "P" else token for token in column.split())
