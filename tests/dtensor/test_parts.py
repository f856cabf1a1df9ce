"""A pickled part is that of one rank."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from hyper_dtensor import DTensor, Spec
from hyper_dtensor.dtensor import wrap
from hyper_dtensor.parts import check_loaded, check_part, part_of
from hyper_layout import DeviceMesh, Layout, LayoutError, Placement
from tests.dtensor.helpers import S0, P, R, line, on_ranks, square
from tests.support import simulated as sim


def loaded(mesh: DeviceMesh, *placements: Placement) -> DTensor:
    return wrap(sim.tensor(np.zeros(2)), Spec.of(Layout(mesh, placements, 1)), (4,))


def pair() -> DeviceMesh:
    """Two ranks, of whatever world."""
    return DeviceMesh("cpu", (2,), ("tp",))


@on_ranks(4)
def test_a_part_is_where_the_rank_is_on_the_axes_that_divide() -> None:
    dp, tp = divmod(sim.rank(), 2)
    assert part_of(Layout(square(), [R, S0], 1)) == (tp,)
    assert part_of(Layout(square(), [P, S0], 1)) == (dp, tp)
    assert part_of(Layout(square(), [R, R], 1)) == ()
    assert part_of(Layout(pair(), [S0], 1)) == (None if dp else (tp,))


@on_ranks(4)
def test_the_part_of_another_rank_is_refused() -> None:
    x = loaded(square(), R, S0)
    dp, mine = divmod(sim.rank(), 2)
    other = 1 - mine
    check_part(x, (mine,))
    for part in ((), None):
        check_part(loaded(square(), R, R), part)
    with pytest.raises(
        LayoutError, match=rf"part tp={other} of .* holds part tp={mine}: .* a file of its own"
    ):
        check_part(x, (other,))
    with pytest.raises(
        LayoutError, match=r"this is the part of nobody \(pickled by a process that was alone"
    ):
        check_part(x, None)
    if dp:
        for part in ((mine,), None):
            with pytest.raises(LayoutError, match="this rank is not on its mesh"):
                check_part(loaded(pair(), S0), part)


@on_ranks(1)
def test_a_process_that_is_alone_may_hold_any_part() -> None:
    x = loaded(pair(), S0)
    assert part_of(x.layout) is None
    check_part(x, (1,))
    check_loaded()


def load_alone(part: tuple[int, ...] | None) -> DTensor:
    def load() -> DTensor:
        x = loaded(pair(), S0)
        check_part(x, part)
        return x

    (x,) = sim.run_ranks(1, load)
    return x


def make_mesh(rank: int) -> None:
    if sim.rank() == rank:
        line()


def test_what_was_loaded_alone_is_checked_when_a_mesh_is_made() -> None:
    right = load_alone((0,))
    sim.run_ranks(2, make_mesh, 0)
    wrong = load_alone((0,)), load_alone(None)
    for _ in wrong:
        with pytest.raises(LayoutError, match="a DTensor is pickled as the part of one rank"):
            sim.run_ranks(2, make_mesh, 1)
    del right, wrong
    load_alone((0,))
    gc.collect()
    sim.run_ranks(2, make_mesh, 1)  # nobody holds it any more
