import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

from hyper_layout import (
    REDUCE_OPS,
    DeviceMesh,
    Layout,
    LayoutError,
    Partial,
    Placement,
    Replicate,
    Shard,
    StridedShard,
    parse_placement,
)

EACH = [Replicate(), Shard(0), Shard(-1), StridedShard(1, 4), *map(Partial, REDUCE_OPS)]


@pytest.mark.parametrize("placement", EACH, ids=repr)
def test_equal_content_is_the_same_object(placement: Placement):
    assert eval(repr(placement)) is placement
    assert parse_placement(placement.notation) is placement
    assert pickle.loads(pickle.dumps(placement)) is placement
    assert copy.copy(placement) is placement
    assert copy.deepcopy(placement) is placement


def test_different_content_is_different():
    assert len(set(EACH)) == len(EACH)
    assert Shard(0) != Shard(1)
    assert Shard(0) != StridedShard(0, 2)
    assert Partial() is Partial("sum")
    assert Partial("max") != Partial("min")


def test_what_each_is():
    assert Replicate().is_replicate() and not Replicate().is_shard() and not Replicate().is_partial()
    assert Shard(1).is_shard() and Shard(1).is_shard(1) and not Shard(1).is_shard(0)
    assert StridedShard(1, 2).is_shard(1) and not StridedShard(1, 2).is_partial()
    assert Partial("max").is_partial() and Partial("max").is_partial("max")
    assert not Partial("max").is_partial("sum") and not Partial("max").is_replicate()


def test_notation():
    assert [placement.notation for placement in EACH[:5]] == ["R", "S(0)", "S(-1)", "SS(1, 4)", "P(sum)"]


@pytest.mark.parametrize("placement", EACH, ids=repr)
def test_immutable(placement: Placement):
    with pytest.raises(AttributeError, match="immutable"):
        placement.dim = 3  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="immutable"):
        del placement.dim  # type: ignore[attr-defined]


def test_threads_get_the_same_object():
    with ThreadPoolExecutor(8) as threads:
        for dim in range(1000, 1050):
            assert len(set(map(id, threads.map(Shard, [dim] * 8)))) == 1


def test_bad_content():
    with pytest.raises(LayoutError, match="sum, avg, max, min, prod, but got 'mean'"):
        Partial("mean")
    with pytest.raises(LayoutError, match="split_factor of at least 1, but got 0"):
        StridedShard(0, 0)
    with pytest.raises(TypeError):
        Shard(1.0)  # type: ignore[arg-type]
    for text in ("", "r", "S", "S()", "S(a)", "P(mean)", "SS(0)", "R R"):
        with pytest.raises(LayoutError):
            parse_placement(text)


def test_one_placement_is_no_list_of_placements() -> None:
    mesh = DeviceMesh("cpu", (2,), ("tp",))
    with pytest.raises(TypeError, match=r"write \[Shard\(dim=0\)\] instead of Shard\(dim=0\)"):
        Layout(mesh, Shard(0), 1)  # type: ignore[arg-type]
