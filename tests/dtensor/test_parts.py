"""A pickled part is that of one rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from hyper_dtensor.collectives import all_reduce
from hyper_dtensor.parts import check_loaded, check_part, loaded_alone, part_of
from hyper_layout import DeviceMesh, Layout, LayoutError
from tests.dtensor.helpers import S0, P, R, line, on_ranks, square
from tests.support import simulated as sim


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    loaded_alone.clear()


def split_over_two() -> Layout:
    """Of two ranks, in whatever world."""
    return Layout(DeviceMesh("cpu", (2,), ("tp",)), [S0], 1)


@on_ranks(4)
def test_a_part_is_where_the_rank_is_on_the_axes_that_divide() -> None:
    dp, tp = divmod(sim.rank(), 2)
    assert part_of(Layout(square(), [R, S0], 1)) == (tp,)
    assert part_of(Layout(square(), [P, S0], 1)) == (dp, tp)
    assert part_of(Layout(square(), [R, R], 1)) == ()
    assert part_of(split_over_two()) == (None if dp else (tp,))


@on_ranks(4)
def test_the_part_of_another_rank_is_refused() -> None:
    layout = Layout(square(), [R, S0], 1)
    dp, mine = divmod(sim.rank(), 2)
    other = 1 - mine
    check_part(layout, (mine,))
    for part in ((), None):
        check_part(Layout(square(), [R, R], 1), part)
    with pytest.raises(
        LayoutError, match=rf"part tp={other} of .* holds part tp={mine}: .* a file of its own"
    ):
        check_part(layout, (other,))
    with pytest.raises(
        LayoutError, match=r"this is the part of nobody \(pickled by a process that was alone"
    ):
        check_part(layout, None)
    if dp:
        for part in ((mine,), None):
            with pytest.raises(LayoutError, match="this rank is not on its mesh"):
                check_part(split_over_two(), part)


@on_ranks(1)
def test_a_process_that_is_alone_may_hold_any_part() -> None:
    assert part_of(split_over_two()) is None
    check_part(split_over_two(), (1,))
    check_loaded()
    line()


def make_mesh(rank: int) -> None:
    if sim.rank() == rank:
        line()


def communicate(_: int = 0) -> None:
    all_reduce(sim.tensor(np.ones(2)), DeviceMesh("cpu", (2,), ("tp",)), 0)


ALONE = "It was loaded while this process was alone: load it when the processes have joined"


def test_what_was_loaded_alone_is_checked_when_processes_join() -> None:
    sim.run_ranks(1, check_part, split_over_two(), (0,))
    for _ in range(2):  # said each time
        with pytest.raises(LayoutError, match=rf"this rank holds part tp=1: .*{ALONE}"):
            sim.run_ranks(2, make_mesh, 1)
    sim.run_ranks(2, make_mesh, 0)  # it is the part of this rank, and not asked again
    assert not loaded_alone


@pytest.mark.parametrize("act", [make_mesh, communicate])
def test_the_part_of_nobody_is_refused_when_processes_join(act: Callable[[int], None]) -> None:
    sim.run_ranks(1, check_part, split_over_two(), None)
    for rank in (0, 1):
        with pytest.raises(LayoutError, match=f"the part of nobody .*{ALONE}"):
            sim.run_ranks(2, act, rank)
