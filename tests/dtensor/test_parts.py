"""A pickled part is that of one rank."""

from __future__ import annotations

import pytest

from hyper_dtensor import init_device_mesh
from hyper_dtensor.parts import check_part, part_of
from hyper_layout import Layout, LayoutError
from tests.dtensor.helpers import S0, P, R, line, on_ranks, square
from tests.support import simulated as sim


@on_ranks(4)
def test_a_part_is_where_the_rank_is_on_the_axes_that_divide() -> None:
    dp, tp = divmod(sim.rank(), 2)
    assert part_of(Layout(square(), [R, S0], 1)) == (tp,)
    assert part_of(Layout(square(), [P, S0], 1)) == (dp, tp)
    assert part_of(Layout(square(), [R, R], 1)) == ()


@on_ranks(4)
def test_the_part_of_another_rank_is_refused() -> None:
    layout = Layout(square(), [R, S0], 1)
    mine = sim.rank() % 2
    other = 1 - mine
    check_part(layout, (mine,))
    check_part(Layout(square(), [R, R], 1), ())
    with pytest.raises(
        LayoutError, match=rf"part tp={other} of .* this rank holds part tp={mine}: .* a file of"
    ):
        check_part(layout, (other,))
    half = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",), rank_list=(0, 1))
    if sim.rank() >= 2:
        with pytest.raises(LayoutError, match="this rank is not on this mesh"):
            check_part(Layout(half, [S0], 1), (0,))


@on_ranks(1)
def test_one_process_may_hold_the_part_of_any_rank() -> None:
    layout = Layout(line(), [S0], 1)
    assert part_of(layout) is None
    check_part(layout, (1,))
