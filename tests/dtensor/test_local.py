"""``from_local``, ``to_local``, ``full_tensor``: every line of the table in design rule 5."""

from __future__ import annotations

from itertools import product

import pytest

from hyper_dtensor import CommDebugMode, DTensor, Spec
from hyper_layout import DeviceMesh, Partial, Placement, Shard
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
    part,
    plain_grad,
    square,
    values,
    weight_of_rank,
)
from tests.support import simulated as sim

# placement, varying, gradient asked for, collective of the backward
TABLE = [
    (R, 0, R, {}),
    (R, 0, P, {"all_reduce": 1}),
    (R, 1, R, {}),
    (R, 1, P, {}),
    (P, 0, R, {}),
    (P, 0, P, {"all_reduce": 1}),
    (AVG, 0, R, {}),
    (AVG, 0, P, {"all_reduce": 1}),
    (S0, 0, S0, {}),
]


@pytest.mark.parametrize(("placement", "varying", "grad", "sent"), TABLE)
@on_ranks(2, 4)
def test_to_local(placement: Placement, varying: int, grad: Placement, sent: dict[str, int]) -> None:
    mesh = line()
    value, weight = values(4, 8), values(4, 8, seed=1)
    x = make(value, mesh, [placement], varying=varying)
    with CommDebugMode() as comm:
        local = x.to_local(grad_placements=[grad])
        equal(local.detach(), x._local.detach())
        mine = sim.tensor(part(weight, x.layout) if placement.is_shard() else weight)
        share = weight_of_rank(mesh) if grad.is_partial() else 1.0
        (local * mine * share).sum().backward()
    assert comm.counts == sent
    assert x.grad is not None
    equal(x.grad, weight)


@on_ranks(2)
def test_to_local_takes_the_whole_gradient_by_default() -> None:
    mesh = line()
    weight = values(4, 8, seed=1)
    for placement, varying, grad, _ in TABLE:
        x = make(values(4, 8), mesh, [placement], varying=varying)
        if not grad.is_partial():
            mine = sim.tensor(part(weight, x.layout) if placement.is_shard() else weight)
            (x.to_local() * mine).sum().backward()
            assert x.grad is not None
            equal(x.grad, weight)


@on_ranks(4)
def test_to_local_on_two_axes() -> None:
    mesh = square()
    weight = values(4, 8, seed=1)
    rows = [row for row in TABLE if not row[0].is_shard()] + [(S1, 0, S1, {})]
    for (p0, v0, g0, _), (p1, v1, g1, _) in product(rows, rows):
        x = make(values(4, 8), mesh, [p0, p1], varying=v0 | v1 << 1)
        local = x.to_local(grad_placements=[g0, g1])
        share = 1.0
        for grad, name in ((g0, "dp"), (g1, "tp")):
            share *= weight_of_rank(mesh[name]) if grad.is_partial() else 1.0
        if S1 in (p0, p1):
            only_shards = make(weight, mesh, [p if p is S1 else R for p in (p0, p1)])
            mine = only_shards._local.detach()
        else:
            mine = sim.tensor(weight)
        # The share of a rank depends on its line: make it a number of its place on each axis alone.
        (local * mine * share).sum().backward()
        assert x.grad is not None
        equal(x.grad, weight)


@on_ranks(2, 4)
def test_from_local() -> None:
    mesh, value = line(), values(4, 8)
    for placement in (R, S0, S1, P, Shard(-1)):
        t = DTensor.from_local(
            sim.tensor(part(value, make(value, mesh, [placement]).layout)), mesh, [placement]
        )
        assert t.shape == (4, 8)
        assert t.placements == (S1 if placement == Shard(-1) else placement,)
        assert (t._spec.varying, t.requires_grad) == (0, False)
        equal(t, value)
    assert DTensor.from_local(sim.tensor(value), mesh).placements == (R,)


@on_ranks(2, 4)
def test_from_local_is_differentiable() -> None:
    mesh, value, weight = line(), values(4, 8), values(4, 8, seed=1)
    leaf = sim.tensor(value, requires_grad=True)
    t = DTensor.from_local(leaf * 2.0, mesh, [R])
    (t.full_tensor() * sim.tensor(weight)).sum().backward()
    assert leaf.grad is not None
    equal(leaf.grad, 2 * weight)


@on_ranks(2, 4)
def test_from_local_whose_gradient_is_a_summand() -> None:
    mesh, value, weight = line(), values(4, 8), values(4, 8, seed=1)
    leaf = sim.tensor(value, requires_grad=True)
    t = DTensor.from_local(leaf, mesh, [R], grad_placements=[P])
    assert t._spec is Spec.of(t.layout, 1)
    with CommDebugMode() as comm:
        (t.to_local(grad_placements=[P]) * sim.tensor(weight) * weight_of_rank(mesh)).sum().backward()
        assert comm.total == 0
    assert leaf.grad is not None
    equal(leaf.grad, weight * weight_of_rank(mesh))
    assert t.grad is not None
    assert t.grad.placements == (P,)
    equal(t.grad, weight)


@on_ranks(2, 4)
def test_full_tensor_is_differentiable_from_every_placement() -> None:
    mesh, value, weight = line(), values(4, 8), values(4, 8, seed=1)
    for placement, varying in ((R, 0), (R, 1), (S0, 0), (S1, 0), (P, 0), (AVG, 0)):
        x = make(value, mesh, [placement], varying=varying)
        full = x.full_tensor()
        assert isinstance(full, sim.SimTensor)
        equal(full, value)
        (full * sim.tensor(weight)).sum().backward()
        assert x.grad is not None
        equal(x.grad, weight)
        by_rank = x.full_tensor(grad_placements=[P]) * sim.tensor(weight) * weight_of_rank(mesh)
        equal(plain_grad(by_rank.sum(), x), weight)


@on_ranks(2)
def test_bad_input() -> None:
    mesh, local = line(), sim.tensor(values(4, 8))
    t = DTensor.from_local(local, mesh, [R])
    with pytest.raises(TypeError, match="from_local takes this rank's local tensor of NumPy, got list"):
        DTensor.from_local([1.0], mesh, [R])
    with pytest.raises(TypeError, match="got a DTensor already"):
        DTensor.from_local(t, mesh, [R])
    with pytest.raises(TypeError, match="takes a DeviceMesh, got tuple"):
        DTensor.from_local(local, (2,), [R])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"one placement per mesh axis \('tp'\), but got 2"):
        DTensor.from_local(local, mesh, [R, R])
    with pytest.raises(
        ValueError, match=r"Shard\(dim=2\) on mesh axis 'tp' is out of range for a tensor of rank 2"
    ):
        DTensor.from_local(local, mesh, [Shard(2)])
    with pytest.raises(TypeError, match="on mesh axis 'tp' must be a Placement"):
        DTensor.from_local(local, mesh, ["S(0)"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="the gradient of a Partial tensor is Replicate, not Partial"):
        DTensor.from_local(local, mesh, [P], grad_placements=[P])
    with pytest.raises(
        ValueError, match=r"the tensor is Shard\(dim=0\) and its gradient cannot\s+be Partial"
    ):
        DTensor.from_local(local, mesh, [S0], grad_placements=[P])
    with pytest.raises(
        ValueError, match=r"gradient cannot\s+be Shard\(dim=0\); use Replicate\(\) or Partial\(\)"
    ):
        t.to_local(grad_placements=[S0])
    with pytest.raises(ValueError, match="one placement per mesh axis"):
        t.to_local(grad_placements=[R, R])


@on_ranks(4)
def test_run_check_names_the_ranks_that_differ_on_every_rank() -> None:
    mesh = square()
    rank = mesh.rank_list.index(sim.rank())
    DTensor.from_local(sim.tensor([1.0]), mesh, [R, R], run_check=True)
    DTensor.from_local(sim.tensor([float(rank // 2)]), mesh, [S0, R], run_check=True)
    with pytest.raises(
        RuntimeError, match=r"dp:S\(0\) tp:R.*mesh axis 'tp' rank\(s\) \[3\] hold another value than rank 2"
    ):
        DTensor.from_local(sim.tensor([float(rank == 3)]), mesh, [S0, R], run_check=True)


@on_ranks(2)
def test_a_mesh_of_size_one_needs_no_communication() -> None:
    mesh = DeviceMesh("cpu", (1,), ("tp",), (sim.rank(),))
    value = values(4, 8)
    for placement in (R, S0, P, AVG, Partial("max")):
        x = make(value, mesh, [placement], requires_grad=False)
        with CommDebugMode() as comm:
            equal(x.full_tensor(), value)
            equal(x.redistribute([S1]), value)
        assert comm.total == 0
