"""Collectives on the rows and columns of a 2 x 2 mesh: exact for every dtype, whatever MindSpore has for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.ms_ranks import MindSporeRankPool

DTYPES = ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"]
AXES = ("dp", "tp")


def array(rank: int, dtype: str, *shape: int) -> np.ndarray:
    """Values of a rank, the extremes of the dtype among them."""
    source = np.random.default_rng(rank)
    values = source.standard_normal(shape) * 3
    found = values > 0 if dtype == "bool" else values.astype(dtype)
    flat = found.reshape(-1)
    if dtype.startswith("float"):
        limits = np.finfo(dtype)
        flat[:4] = [np.nan, -0.0, np.inf, limits.max]
    elif dtype != "bool":
        limits = np.iinfo(dtype)
        flat[:2] = [limits.max, limits.min]
    return found


def same(found: Any, expected: np.ndarray, what: Any) -> None:
    """The same bits."""
    got = found.asnumpy()
    assert got.dtype == expected.dtype and got.shape == expected.shape, (
        what,
        got.dtype,
        got.shape,
        expected.shape,
    )
    assert np.array_equal(
        got.view(np.uint8) if got.ndim else got, expected.view(np.uint8) if got.ndim else expected
    ), what


def moved_exactly() -> None:
    from mindspore import Tensor

    from hyper_dtensor import get_platform, init_device_mesh

    platform = get_platform()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=AXES)
    for axis in (0, 1):
        ranks = mesh.ranks_along(axis)
        group, me = platform.group(ranks), ranks.index(platform.rank())
        for dtype in DTYPES:
            a, b = (array(rank, dtype, 4, 2, 6) for rank in ranks)
            mine = Tensor([a, b][me])
            for dim in range(3):
                same(platform.all_gather(mine, dim, group), np.concatenate([a, b], dim), (dtype, dim))
                parts = [np.ascontiguousarray(np.split(x, 2, dim)[me]) for x in (a, b)]
                same(platform.all_to_all(mine, dim, 0, group), np.concatenate(parts, 0), (dtype, dim))
                same(
                    platform.scatter(mine, dim, 1, group),
                    np.ascontiguousarray(np.split(b, 2, dim)[me]),
                    (dtype, dim),
                )
            same(platform.broadcast(mine, 1, group), b, dtype)
            scalar = platform.broadcast(Tensor(np.asarray([a, b][me].reshape(-1)[5])), 0, group)
            assert scalar.shape == () and scalar.asnumpy() == a.reshape(-1)[5]
            same(mine, [a, b][me], "the input is left alone")


def reduced() -> None:
    from mindspore import Tensor

    from hyper_dtensor import get_platform, init_device_mesh

    platform = get_platform()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=AXES)
    numpy = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}
    for axis in (0, 1):
        ranks = mesh.ranks_along(axis)
        group, me = platform.group(ranks), ranks.index(platform.rank())
        for dtype in DTYPES:
            pair = [np.random.default_rng(rank).integers(0, 5, (4, 2)).astype(dtype) for rank in ranks]
            if dtype.startswith("float"):
                pair[0][0, 0] = np.nan  # maxima and minima keep it
            mine = Tensor(pair[me])
            for op, function in numpy.items():
                wide = [x.astype(np.int64) if dtype == "bool" and op == "sum" else x for x in pair]
                expected = function(*wide)
                found = platform.all_reduce(mine, op, group).asnumpy()
                assert found.dtype == expected.dtype and np.array_equal(
                    found, expected, equal_nan=expected.dtype.kind == "f"
                ), (dtype, op)
                piece = platform.reduce_scatter(mine, 0, op, group).asnumpy()
                assert np.array_equal(
                    piece, np.split(expected, 2)[me], equal_nan=expected.dtype.kind == "f"
                ), (dtype, op)


def bfloat16() -> None:
    import mindspore
    from mindspore import Tensor

    from hyper_dtensor import get_platform, init_device_mesh

    platform = get_platform()
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
    group = platform.group(mesh.ranks_along(0))
    mine = Tensor(np.array([platform.rank() + 0.5, -0.0, np.inf], np.float32)).astype(mindspore.bfloat16)
    joined = platform.all_gather(mine, 0, group)
    assert joined.dtype == mindspore.bfloat16
    wide = joined.astype(mindspore.float32).asnumpy().reshape(4, 3)
    assert (
        wide[:, 0].tolist() == [0.5, 1.5, 2.5, 3.5]
        and np.signbit(wide[:, 1]).all()
        and np.isinf(wide[:, 2]).all()
    )
    total = platform.all_reduce(mine, "sum", group)
    assert total.dtype == mindspore.bfloat16 and float(total.astype(mindspore.float32)[0]) == 8.0


def objects_and_order() -> list[Any]:
    from mindspore import Tensor

    from hyper_dtensor import get_platform, init_device_mesh

    platform = get_platform()
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",), rank_list=(2, 0, 3, 1))
    group = platform.group(mesh.ranks_along(0))
    mine = Tensor([platform.rank()])
    return [
        platform.all_gather_object({"rank": platform.rank(), "text": "x" * platform.rank()}, group),
        platform.all_gather(mine, 0, group).asnumpy().tolist(),
        platform.group_ranks(group),
        platform.group_ranks(platform.native_group(group)),
        mesh.get_group() == platform.native_group(group),
    ]


def test_what_is_moved_keeps_its_bits(ms_ranks4: MindSporeRankPool) -> None:
    ms_ranks4.run(moved_exactly)


def test_reductions_of_every_dtype(ms_ranks4: MindSporeRankPool) -> None:
    ms_ranks4.run(reduced)


def test_bfloat16_keeps_its_bits(ms_ranks4: MindSporeRankPool) -> None:
    ms_ranks4.run(bfloat16)


def test_objects_of_any_length_and_the_order_of_the_mesh(ms_ranks4: MindSporeRankPool) -> None:
    order = [2, 0, 3, 1]
    expected = [
        [{"rank": rank, "text": "x" * rank} for rank in order],
        order,
        tuple(order),
        (0, 1, 2, 3),
        True,
    ]
    assert ms_ranks4.run(objects_and_order) == [expected] * 4
