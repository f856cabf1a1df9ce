"""``zeros, ones, empty, full, rand, randn``: values, seeds, errors."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import hyper_dtensor as hd
from hyper_layout import Layout, Shard
from tests.dtensor.helpers import S0, S1, P, R, equal, line, on_ranks, square, whole
from tests.support import simulated as sim


@on_ranks(2, 4)
def test_constants() -> None:
    mesh = line()
    for placement in (R, S0, S1):
        equal(hd.zeros(4, 8, device_mesh=mesh, placements=[placement]), np.zeros((4, 8)))
        equal(hd.ones((4, 8), device_mesh=mesh, placements=[placement]), np.ones((4, 8)))
        equal(hd.full([4, 8], 2.5, device_mesh=mesh, placements=[placement]), np.full((4, 8), 2.5))
        t = hd.empty(4, 8, device_mesh=mesh, placements=[placement], requires_grad=True)
        assert (t.shape, t.requires_grad) == ((4, 8), True)
        assert t._local.shape == t.layout.local_shape((4, 8))
    assert hd.zeros(device_mesh=mesh).shape == ()
    assert hd.zeros(4, device_mesh=mesh).placements == (R,)
    assert hd.ones(4, dtype="int64", device_mesh=mesh).dtype == np.int64  # type: ignore[attr-defined]


@on_ranks(2)
def test_the_current_mesh() -> None:
    with line() as mesh:
        assert hd.ones(4, placements=[S0]).device_mesh is mesh
    with pytest.raises(ValueError, match=r"ones needs device_mesh=, or a current mesh \(with mesh: ...\)"):
        hd.ones(4)


@pytest.mark.parametrize("make", [hd.rand, hd.randn])
@on_ranks(4)
def test_replicate_pieces_agree_and_shards_differ(make: object) -> None:
    mesh = square()
    for number, placements in enumerate(product([R, S0, S1], [R, S0, S1])):
        sim.manual_seed(number)
        t = make(8, 8, device_mesh=mesh, placements=placements)  # type: ignore[operator]
        pieces = sim.gather([t._local.array])
        for one, other in product(range(4), range(4)):
            same_block = t.layout.local_slice((8, 8), one) == t.layout.local_slice((8, 8), other)
            assert np.array_equal(pieces[one][0], pieces[other][0]) is same_block
        assert len(np.unique(whole(t))) == 64
        sim.manual_seed(number)
        again = make(8, 8, device_mesh=mesh, placements=placements)  # type: ignore[operator]
        equal(again._local, t._local)
        assert not np.array_equal(
            make(8, 8, device_mesh=mesh, placements=placements)._local.array, t._local.array
        )  # type: ignore[operator]


@on_ranks(2)
def test_what_the_numbers_are() -> None:
    mesh = line()
    uniform, normal = (
        whole(hd.rand(4000, device_mesh=mesh, placements=[S0])),
        whole(hd.randn(4000, device_mesh=mesh)),
    )
    assert 0 <= uniform.min() <= uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.05
    assert abs(normal.mean()) < 0.1
    assert abs(normal.std() - 1) < 0.1


@on_ranks(2)
def test_the_default_generator_moves_by_one_draw_on_every_rank() -> None:
    mesh = line()
    for shape in (4, 400):
        hd.rand(shape, device_mesh=mesh, placements=[S0])
    drawn = hd.get_platform().draw_seed("cpu")
    assert sim.gather(drawn) == [drawn] * 2


def test_different_seeds_are_refused_on_every_rank() -> None:
    """Ranks 0 to 2 agree, and rank 3 differs: nobody is left waiting."""

    def body() -> None:
        mesh = hd.init_device_mesh("cpu", (2, 2), mesh_dim_names=("seed_a", "seed_b"))
        sim.manual_seed(int(sim.rank() == 3))
        hd.rand(4, device_mesh=mesh)

    for _ in range(2):  # a refusal is not remembered as a check that passed
        for error in sim.errors_of(4, body):
            assert isinstance(error, RuntimeError)
            assert "the default random generators differ, so Replicate tensors would not agree" in str(error)
            assert "seed all ranks alike" in str(error)
            assert "on mesh axis 'seed_a' rank(s) [3] hold another value than rank 1" in str(error)


@on_ranks(2)
def test_bad_input() -> None:
    mesh = line()
    with pytest.raises(ValueError, match=r"ones cannot be made Partial \(tp:P\(sum\)\): make it Replicate"):
        hd.ones(4, device_mesh=mesh, placements=[P])
    with pytest.raises(ValueError, match=r"rand cannot be made Partial"):
        hd.rand(4, device_mesh=mesh, placements=[P])
    with pytest.raises(ValueError, match="dim 0 of size 3 cannot be split"):
        hd.ones(3, device_mesh=mesh, placements=[S0])
    with pytest.raises(ValueError, match="out of range"):
        hd.ones(4, device_mesh=mesh, placements=[Shard(1)])
    with pytest.raises(ValueError, match=r"random numbers cannot be laid out as tp:P\(sum\)"):
        from hyper_dtensor.random_state import local_seed

        local_seed(Layout(mesh, (P,), 1), "cpu")
