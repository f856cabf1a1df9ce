"""Reductions that are put together: in which collectives, in which order, and whom they are attributed to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hyper_dtensor import CommDebugMode, get_platform, gradients
from hyper_dtensor.coalesced import Summand, new_summand, reduce_together
from hyper_dtensor.comm_debug import Cause
from hyper_layout import current_rank
from tests.dtensor.helpers import R, line, make, on_ranks, square, values
from tests.support import simulated as sim

NOBODY = Cause((), "")


def addend(number: int, shape: tuple[int, ...], dtype: str, rank: int) -> Any:
    return (values(*shape, seed=number) * (rank + 1)).astype(dtype)


@on_ranks(4)
def test_one_collective_per_group_and_dtype() -> None:
    mesh, rank = square(), current_rank()
    both, dp, tp = 0b11, 0b01, 0b10
    cases = [
        (tp, (4,), "float64"),
        (dp, (2, 3), "float64"),
        (both, (), "float64"),
        (tp, (3,), "float32"),
        (both, (2, 2), "float32"),
        (tp, (5,), "float64"),
    ]
    summands = [Summand(number, mesh, axes, NOBODY) for number, (axes, _, _) in enumerate(cases)]
    local = [sim.tensor(addend(n, shape, dtype, rank)) for n, (_, shape, dtype) in enumerate(cases)]
    given = [each.array.copy() for each in local]
    sums = list(local)
    with CommDebugMode() as comm:
        reduce_together(summands, sums)
    assert comm.by_axis == {("tp", "all_reduce"): 2, ("dp", "all_reduce"): 2}
    assert comm.total_bytes == (4 + 1 + 5) * 8 + (6 + 1) * 8 + (3 + 4) * 4 + 4 * 4
    for number, (axes, shape, dtype) in enumerate(cases):
        others = [
            other
            for other in range(4)
            if (axes & dp or other // 2 == rank // 2) and (axes & tp or other % 2 == rank % 2)
        ]
        expected = sum(addend(number, shape, dtype, other) for other in others)
        assert sums[number].shape == shape
        np.testing.assert_allclose(sums[number].array, expected, rtol=1e-6)
        # What was given is as it was: it may be used elsewhere.
        np.testing.assert_array_equal(local[number].array, given[number])


@on_ranks(4)
def test_a_mesh_and_its_submesh_share_a_group() -> None:
    mesh = square()
    ones = [sim.tensor(np.ones(2)), sim.tensor(np.ones(3))]
    with CommDebugMode() as comm:
        reduce_together([Summand(0, mesh, 0b10, NOBODY), Summand(1, mesh["tp"], 0b1, NOBODY)], ones)
    assert comm.counts == {"all_reduce": 1}
    assert [each.array.tolist() for each in ones] == [[2.0] * 2, [2.0] * 3]


@on_ranks(2)
def test_the_module_that_all_have_in_common() -> None:
    for modules, common in (
        (["layers.1.norm"], "layers.1.norm"),
        (["layers.1.norm", "layers.1.mlp"], "layers.1"),
        (["layers.1.norm", "layers.10.norm"], "layers"),
        (["norm", "layers.1"], ""),
        (["", "layers"], ""),
    ):
        with CommDebugMode() as mode:
            pass
        with CommDebugMode() as comm:
            summands = [
                Summand(n, line(), 1, Cause((mode, comm), module)) for n, module in enumerate(modules)
            ]
            reduce_together(summands, [sim.tensor(np.ones(2)) for _ in modules])
        assert comm.by_module == {(common, "all_reduce"): 1}
        assert comm.backward_counts == {"all_reduce": 1}
        assert mode.total == 0  # no longer open


@on_ranks(1)
def test_an_axis_of_size_one_sends_nothing() -> None:
    x = sim.tensor(np.ones(2))
    sums = [x]
    with CommDebugMode() as comm:
        reduce_together([Summand(0, line(), 1, NOBODY)], sums)
    assert comm.total == 0
    assert sums == [x]


@on_ranks(1)
def test_the_platform_is_asked_unless_it_is_switched_off() -> None:
    asked: list[Summand] = []

    def deferred_view(t: Any, axes: int) -> Any:
        summand = new_summand(t, axes)
        if summand is None:
            return None
        asked.append(summand)
        return t._local

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(get_platform(), "deferred_view", deferred_view, raising=True)
        tensors = [make(values(4), line(), [R]) for _ in range(2)]
        for t in tensors:
            for _ in range(2):  # the second time it is remembered
                assert gradients.varying_view(t, 1) is t._local
        assert [each.axes for each in asked] == [1, 1]
        assert asked[0].number < asked[1].number
        assert asked[0].mesh is line()
        patch.setenv("HYPER_PARALLEL_COALESCE", "0")
        t = make(values(4), line(), [R])
        assert gradients.varying_view(t, 1) is not t._local
        assert len(asked) == 2
