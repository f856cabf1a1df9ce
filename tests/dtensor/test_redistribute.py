"""Redistribution: all pairs of layouts, forward, gradient and second derivative (design rules 4 and 5)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from hyper_dtensor import CommDebugMode, DTensor
from hyper_layout import Layout, LayoutError, Partial, Placement, Shard, StridedShard
from tests.dtensor.helpers import (
    AVG,
    S0,
    S1,
    P,
    R,
    equal,
    line,
    make,
    on_ranks,
    plain_grad,
    square,
    values,
    weight_of_rank,
    whole,
)
from tests.support import simulated as sim

EACH: list[Placement] = [R, S0, S1, P, AVG]
PAIRS = [*product(EACH, EACH), (StridedShard(0, 2), S0), (StridedShard(1, 2), S1)]
SOURCES = [
    (placements, varying)
    for placements in PAIRS
    for varying in range(4)
    if all(not varying >> axis & 1 or placements[axis] is R for axis in range(2))
]


def name(case: object) -> str:
    placements, varying = case  # type: ignore[misc]
    return " ".join(p.notation + ("v" if varying >> a & 1 else "") for a, p in enumerate(placements))


def check_pair(x: DTensor, target: Sequence[Placement], value: Any, *, second_derivative: bool) -> None:
    """Value and derivatives, for consumers that use the result alike and by rank."""
    alike, by_rank, second = (values(*value.shape, seed=seed) for seed in range(1, 4))
    mine = weight_of_rank(x.device_mesh)
    y = x.redistribute(target)
    assert y.layout is Layout(x.device_mesh, tuple(target), value.ndim)
    everywhere = y.redistribute([R] * x.device_mesh.ndim)
    view = everywhere.to_local(grad_placements=[P] * x.device_mesh.ndim)
    equal(view, value)
    loss = (everywhere.to_local() ** 2 * sim.tensor(alike)).sum()
    loss = loss + mine * (view**2 * sim.tensor(by_rank)).sum()
    gradient = plain_grad(loss, x, create_graph=second_derivative)
    equal(gradient, 2 * value * (alike + by_rank))
    if second_derivative:
        again = (gradient.full_tensor() * sim.tensor(second)).sum()
        equal(plain_grad(again, x), 2 * second * (alike + by_rank))


@pytest.mark.parametrize("number", range(len(SOURCES)), ids=[name(source) for source in SOURCES])
def test_every_pair_of_layouts(number: int) -> None:
    placements, varying = SOURCES[number]
    value = values(4, 8)

    def body() -> None:
        mesh = square()
        for at, target in enumerate(PAIRS):
            x = make(value, mesh, placements, varying=varying)
            check_pair(x, target, value, second_derivative=at % 8 == number % 8)

    sim.run_ranks(4, body)


@on_ranks(2, 4)
def test_every_pair_on_one_axis() -> None:
    value = values(4, 8)
    for source, target in product(EACH, EACH):
        for varying in (0, 1) if source is R else (0,):
            x = make(value, line(), [source], varying=varying)
            check_pair(x, [target], value, second_derivative=True)


@on_ranks(4)
def test_three_dims_and_three_axes() -> None:
    from hyper_dtensor import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 1, 2), mesh_dim_names=("a", "b", "c"))
    value = values(4, 2, 4)
    for source in ([S0, S1, S0], [R, P, S0], [P, R, P], [Shard(-1), R, Shard(2)]):
        for target in ([S1, R, S0], [P, P, R], [R, S0, Shard(2)], [S0, S0, S0]):
            check_pair(make(value, mesh, source), target, value, second_derivative=False)


@on_ranks(2)
@pytest.mark.parametrize("op", ["max", "min", "prod"])
def test_reductions_without_gradient(op: str) -> None:
    mesh, value = line(), values(4, 8)
    x = make(value, mesh, [Partial(op)], requires_grad=False)
    equal(x.redistribute([R]), value)
    equal(x.redistribute([S1]), value)
    equal(make(value, mesh, [R], requires_grad=False).redistribute([Partial(op)]), value)
    equal(make(value, mesh, [S0], requires_grad=False).redistribute([Partial(op)]), value)


@on_ranks(2)
def test_reductions_that_carry_no_gradient_are_refused_where_one_is_needed() -> None:
    mesh = line()
    for op in ("max", "min", "prod"):
        x = make(values(4), mesh, [Partial(op)])
        with pytest.raises(
            LayoutError, match=rf"tp:P\({op}\) carries no gradient.*amax, amin, prod.*detach\(\)"
        ):
            x.redistribute([R])
        with pytest.raises(LayoutError, match="carries no gradient"):
            x.to_local()
        with pytest.raises(LayoutError, match="carries no gradient"):
            make(values(4), mesh, [R]).redistribute([Partial(op)])
        with pytest.raises(LayoutError, match="carries no gradient"):
            x.backward(sim.tensor(values(4)))
        with sim.no_grad():
            equal(x.redistribute([R]), values(4))


# -- how it is asked for ------------------------------------------------------------------------------------
@on_ranks(4)
def test_by_axis_name() -> None:
    mesh = square()
    x = make(values(4, 8), mesh, [S0, R])
    assert x.redistribute(tp=S1).placements == (S0, S1)
    assert x.redistribute(dp=R).placements == (R, R)
    assert x.redistribute(dp=Shard(-1), tp=S0).placements == (S1, S0)
    assert x.redistribute(tp=S0).placements == (S0, S0)
    assert x.redistribute(mesh, [R, S0]).placements == (R, S0)
    assert x.redistribute(placements=[R, S0]).placements == (R, S0)
    assert x.redistribute([S0, R]) is x


@on_ranks(2)
def test_wrong_requests() -> None:
    mesh = line()
    x = make(values(4, 6), mesh, [R])
    with pytest.raises(ValueError, match=r"either placements, one per mesh axis, or axis names"):
        x.redistribute()
    with pytest.raises(ValueError, match=r"either placements, one per mesh axis, or axis names"):
        x.redistribute([R], tp=S0)
    with pytest.raises(ValueError, match="as one list"):
        x.redistribute(R, S0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"mesh axis 'dp' is not known: this mesh has 'tp'"):
        x.redistribute(dp=S0)
    with pytest.raises(ValueError, match=r"needs one placement per mesh axis \('tp'\), but got 2"):
        x.redistribute([R, R])
    with pytest.raises(ValueError, match=r"Shard\(dim=2\) on mesh axis 'tp' is out of range"):
        x.redistribute([Shard(2)])
    with pytest.raises(ValueError, match="another mesh"):
        x.redistribute(line("other"), [R])
    with pytest.raises(ValueError, match="another mesh"):
        x.redistribute(placements=[R], device_mesh=line("other"))
    assert x.redistribute(placements=[R], device_mesh=x.device_mesh).placements == (R,)
    with pytest.raises(
        ValueError, match=r"dim 0 of size 3 cannot be split .* nearest sizes that can are 2 and 4"
    ):
        make(values(3), mesh, [R]).redistribute([S0])


# -- what is sent -------------------------------------------------------------------------------------------
@on_ranks(2)
@pytest.mark.parametrize(
    ("source", "varying", "target", "forward", "backward"),
    [
        (P, 0, R, "all_reduce", None),
        (P, 0, S0, "reduce_scatter", "all_gather"),
        (S0, 0, S1, "all_to_all", "all_to_all"),
        (S0, 0, R, "all_gather", None),
        (R, 0, S0, None, "all_gather"),
        (R, 1, S0, None, None),
        (R, 0, P, None, None),
        (R, 1, P, None, None),
        (R, 0, AVG, None, "all_reduce"),
        (AVG, 0, R, "all_reduce", None),
    ],
)
def test_collectives_of_each_step(
    source: Placement, varying: int, target: Placement, forward: str | None, backward: str | None
) -> None:
    mesh = line()
    x = make(values(4, 8), mesh, [source], varying=varying)
    with CommDebugMode() as comm:
        y = x.redistribute([target])
        y.backward(sim.tensor(values(4, 8)))
    assert comm.forward_counts == ({forward: 1} if forward else {})
    assert comm.backward_counts == ({backward: 1} if backward else {})


@on_ranks(2)
def test_gathered_result_is_invariant_and_keeps_other_axes() -> None:
    mesh = line()
    for source in (S0, P):
        y = make(values(4, 8), mesh, [source]).redistribute([R])
        assert y._spec.varying == 0
    assert make(values(4, 8), mesh, [R], varying=1).redistribute([S0]).redistribute([R])._spec.varying == 0


@on_ranks(4)
def test_only_the_axis_of_a_step_changes_its_gradient_state() -> None:
    mesh = square()
    y = make(values(4, 8), mesh, [R, S0], varying=1).redistribute([R, R])
    assert y._spec.varying == 1
    (y.to_local(grad_placements=[P, R]) * sim.tensor(weight_of_rank(mesh["dp"]))).sum().backward()


@on_ranks(2)
def test_a_result_never_shares_memory_with_its_source() -> None:
    mesh = line()
    for source, target in product([R, S0, P, AVG], [R, S0, S1, P, AVG]):
        if source is not target:
            x = make(values(4, 8), mesh, [source], requires_grad=False)
            before = x._local.array.copy()
            y = x.redistribute([target])
            y._local.array[...] = -1.0
            equal(x._local.array, before)


@on_ranks(2, 4)
def test_no_gradient_no_views() -> None:
    mesh = line()
    x = make(values(4, 8), mesh, [S0])
    with sim.no_grad():
        y = x.redistribute([R])
        assert y._untracked
        assert y._origin is None
    assert not y.requires_grad
    equal(whole(y), values(4, 8))
