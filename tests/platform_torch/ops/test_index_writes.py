"""What is written through views and indices is never lost, and no value of one call is used in another."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.ranks import RankPool


def _mesh() -> Any:
    import hyper_ops
    from hyper_dtensor import init_device_mesh

    hyper_ops.load_ops()
    return init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))


def _split(dim: int = 0, requires_grad: bool = False) -> tuple[Any, Any]:
    """A whole tensor and its split form."""
    import torch

    from hyper_dtensor import distribute_tensor
    from hyper_layout import Shard

    whole = torch.arange(24, dtype=torch.float64).reshape(4, 6)
    t = distribute_tensor(whole.clone(), _mesh(), [Shard(dim)])
    return whole, t.requires_grad_() if requires_grad else t


@contextmanager
def refused(*parts: str) -> Iterator[None]:
    from hyper_layout import LayoutError

    with pytest.raises(LayoutError) as error:
        yield
    for part in parts:
        assert part in str(error.value), str(error.value)


WRITES: dict[str, Callable[[Any], Any]] = {
    "zero_": lambda y: y.zero_(),
    "add_": lambda y: y.add_(y),
    "of a view": lambda y: y.view(2, 3).mul_(2.0),
    "of a slice": lambda y: y[1:].fill_(0.0),
    "setitem": lambda y: y.__setitem__(0, 1.0),
    "of data": lambda y: y.data.zero_(),
    "of detach": lambda y: y.detach().zero_(),
    "of redistribute": lambda y: y.redistribute(tp=_replicate()).zero_(),
    "out=": lambda y: _add_out(y),
    "unregistered": lambda y: y.redistribute(tp=_replicate()).cauchy_(),
}


def _replicate() -> Any:
    from hyper_layout import Replicate

    return Replicate()


def _add_out(y: Any) -> Any:
    import torch

    return torch.add(y.clone(), y.clone(), out=y)


def write_into_copy(name: str) -> None:
    whole, x = _split()
    for row in (x[1], x.select(0, -1)):
        with refused("is a copy", ".clone()", "x[i] = value"):
            WRITES[name](row)
    assert (x.full_tensor() == whole).all()


@pytest.mark.parametrize("name", WRITES)
def test_a_write_into_a_copied_row_is_refused(ranks2: RankPool, name: str) -> None:
    ranks2.run(write_into_copy, name)


def write_into_clone() -> None:
    import torch

    whole, x = _split()
    row = x[1].clone()
    row.zero_()
    row.redistribute(tp=_replicate()).add_(1.0)
    deep = copy.deepcopy(x[1])
    deep.zero_()
    assert (row.full_tensor() == torch.zeros(6)).all() and (deep.full_tensor() == 0).all()
    assert (x.full_tensor() == whole).all()


def test_a_clone_may_be_written(ranks2: RankPool) -> None:
    ranks2.run(write_into_clone)


def read_stale() -> None:
    whole, x = _split()
    row = x[1]
    view = row[2:]
    assert (view.full_tensor() == whole[1, 2:]).all()
    x[0] = 7.0
    for use in (
        lambda: row + 1.0,
        lambda: view.sum(),
        lambda: row.unsqueeze(0),
        lambda: row.full_tensor(),
        lambda: view.redistribute(tp=_replicate()),
        lambda: row.to_local(),
    ):
        with refused("written in place since", "Take it again"):
            use()
    assert (x[1].full_tensor() == whole[1]).all()


def test_a_copied_row_is_not_read_after_its_source_was_written(ranks2: RankPool) -> None:
    ranks2.run(read_stale)


def write_through_views() -> None:
    whole, x = _split(1)
    reference = whole.clone()
    for t in (reference, x):
        t[1:3].zero_()
        t[0].add_(100.0)
        t.transpose(0, 1)[:, 2].mul_(-1.0)
        t.view(2, 2, 6)[1, 1] = 5.0
        t[..., None].squeeze(-1)[3] = 6.0
        t.detach()[2].fill_(8.0)
    assert (x.full_tensor() == reference).all()


def test_writes_through_views_reach_the_tensor(ranks2: RankPool) -> None:
    ranks2.run(write_through_views)


def view_of_another_gradient_state() -> None:
    """The values of such a view are shared, its gradient is not: writing into it is refused, reading is exact."""
    import torch

    from hyper_dtensor import DTensor, distribute_tensor
    from hyper_layout import Shard

    mesh = _mesh()
    split = distribute_tensor(torch.ones(2, 12, dtype=torch.float64), mesh, [Shard(0)])
    for take in (
        lambda x: x.view_as(split),
        lambda x: x.expand_as(x.view_as(split).view(4, 6)),
        lambda x: x.type_as(split),
    ):
        leaf = torch.arange(24.0, dtype=torch.float64).reshape(4, 6).requires_grad_()
        x = DTensor.from_local(leaf * 2.0, mesh)
        y = take(x)
        with refused("writes in place", ".clone()"):
            y.zero_()
        (y * y).sum().backward()
        assert (leaf.grad == 8.0 * leaf).all()
        with torch.no_grad():
            take(x).zero_()
        assert (x.to_local() == 0).all()


def test_a_view_of_another_gradient_state_is_not_written(ranks2: RankPool) -> None:
    ranks2.run(view_of_another_gradient_state)


def refuse_real_slice() -> None:
    _, x = _split()
    with refused("getitem", "'tp'", "redistribute(tp=R)"):
        x[1:3].zero_()
    with refused("split"):
        x.split(2)
    with refused("reshape", "dim 0"):
        x.transpose(0, 1).reshape(24)


def test_pieces_of_a_split_dim_are_refused_with_cures(ranks2: RankPool) -> None:
    ranks2.run(refuse_real_slice)


def other_values_in_a_known_form() -> None:
    import torch

    from hyper_dtensor import DTensor

    whole, x = _split()
    mesh = x.device_mesh
    for i in (0, 3, 1, -1, 2):
        assert (x[i].full_tensor() == whole[i]).all()
        n = torch.tensor(i)
        assert (x[n].full_tensor() == whole[n]).all()
        d = DTensor.from_local(n, mesh)
        assert (x[d].full_tensor() == whole[n]).all()
        assert (x[:, d].full_tensor() == whole[:, n]).all()
        x[d, 1] = float(i)
        whole[n, 1] = float(i)
        assert (x.full_tensor() == whole).all()
    for n in (2, 1, 5):
        d = DTensor.from_local(torch.tensor(n), mesh)
        assert (x[:, :d].full_tensor() == whole[:, :n]).all()
        assert (x.narrow(1, d, 1).full_tensor() == whole.narrow(1, n, 1)).all()
        assert x.unsqueeze(-1).expand(4, 6, d).shape == (4, 6, n)


def test_values_of_one_call_are_not_used_in_another(ranks2: RankPool) -> None:
    ranks2.run(other_values_in_a_known_form)


def out_of_range() -> None:
    import torch

    from hyper_dtensor import DTensor

    _, x = _split()
    mesh = x.device_mesh
    bad = torch.tensor([0, 4])
    zeros = torch.zeros(2, 6, dtype=torch.int64)
    for use in (
        lambda: x[4],
        lambda: x[-5],
        lambda: x[torch.tensor(4)],
        lambda: x[bad],
        lambda: x[torch.tensor([-5])],
        lambda: x.select(0, 4),
        lambda: x.index_select(0, bad),
        lambda: torch.gather(x, 0, zeros - 1),
        lambda: torch.take_along_dim(x, zeros + 4, 0),
        lambda: x.scatter_add(0, zeros + 4, DTensor.from_local(torch.ones(2, 6, dtype=torch.float64), mesh)),
        lambda: x.__setitem__(4, 0.0),
        lambda: x.__setitem__((torch.tensor(9), 0), 0.0),
        lambda: x[0, 0, 0],
        lambda: x.transpose(0, 2),
    ):
        with pytest.raises(IndexError):
            use()


def test_indices_out_of_range_raise_on_every_rank(ranks2: RankPool) -> None:
    ranks2.run(out_of_range)


def out_of_range_on_one_row_of_ranks() -> None:
    import torch

    import hyper_ops
    from hyper_dtensor import DTensor, init_device_mesh
    from hyper_layout import Replicate, Shard

    hyper_ops.load_ops()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    table = DTensor.from_local(torch.zeros(2, 3), mesh, [Replicate(), Shard(0)])
    ids = torch.tensor([0, 1 + 8 * mesh.get_local_rank("dp")])
    for use in (
        lambda: table[DTensor.from_local(ids, mesh, [Shard(0), Replicate()])],
        lambda: table.index_select(0, DTensor.from_local(ids, mesh, [Shard(0), Replicate()])),
    ):
        with pytest.raises(IndexError, match="size 4"):
            use()


def test_a_bad_part_of_split_indices_raises_on_every_rank(ranks4: RankPool) -> None:
    ranks4.run(out_of_range_on_one_row_of_ranks)


SHAPE_WRITES = ["t_", "squeeze_", "unsqueeze_", "transpose_", "swapaxes_", "swapdims_", "resize_"]


def change_shape_in_place(name: str) -> None:
    import torch

    from hyper_dtensor import distribute_tensor

    arguments = {
        "unsqueeze_": (0,),
        "transpose_": (0, 1),
        "swapaxes_": (0, 1),
        "swapdims_": (0, 1),
        "resize_": (2, 2),
    }
    x = distribute_tensor(torch.zeros(2, 3), _mesh(), [_replicate()])
    with refused(name, "out-of-place"):
        getattr(x, name)(*arguments.get(name, ()))
    assert x.shape == x.to_local().shape == (2, 3)


@pytest.mark.parametrize("name", SHAPE_WRITES)
def test_no_operation_changes_the_shape_in_place(ranks2: RankPool, name: str) -> None:
    ranks2.run(change_shape_in_place, name)


def random_like() -> None:
    import torch

    from hyper_dtensor import DTensor, distribute_tensor
    from hyper_layout import Shard

    mesh = _mesh()
    torch.manual_seed(3)
    split = distribute_tensor(torch.zeros(2, 400), mesh, [Shard(1)])
    whole = distribute_tensor(torch.zeros(2, 400), mesh, [_replicate()])
    drawn = [
        torch.randn_like(split),
        torch.rand_like(split),
        torch.randn_like(whole),
        torch.randint_like(whole, 0, 9),
    ]
    assert [t.placements[0].is_shard() for t in drawn] == [True, True, False, False]
    first, second = drawn[0].full_tensor().chunk(2, 1)
    assert not (first == second).any()
    assert abs(float(first.mean())) < 0.2 and abs(float(first.std()) - 1) < 0.2
    both = DTensor.from_local(drawn[2].to_local()[None], mesh, [Shard(0)]).full_tensor()
    assert (both[0] == both[1]).all()
    again = [torch.randn_like(split).to_local()]
    torch.manual_seed(3)
    assert (torch.randn_like(split).to_local() == drawn[0].to_local()).all()
    assert not (again[0] == drawn[0].to_local()).any()


def test_random_like(ranks2: RankPool) -> None:
    ranks2.run(random_like)


def backward_of_owned_row() -> tuple[str, ...]:
    """The graph of x[i] is the same on the owner and on the others."""
    whole, x = _split(requires_grad=True)
    row = x[3]
    names = []
    node = row.to_local().grad_fn
    while node is not None:
        names.append(type(node).__name__)
        node = node.next_functions[0][0] if node.next_functions else None
    (row.redistribute(tp=_replicate()) ** 2).sum().backward()
    assert (x.grad.full_tensor()[3] == 2 * whole[3]).all() and (x.grad.full_tensor()[:3] == 0).all()
    assert names[0] == "MaskedFillBackward0"
    return tuple(names)


def test_the_owner_of_a_row_builds_the_same_graph(ranks2: RankPool) -> None:
    first, second = ranks2.run(backward_of_owned_row)
    assert first == second
