"""The DTensor class: the whole shape and value or a refusal, mixed operands, indexing and writes, copies."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np

from tests.platform_ms.helpers import close, distributed, mesh_of_all, refused, tensor, whole
from tests.support.ms_ranks import MindSporeRankPool


def shapes_and_values() -> None:
    from hyper_dtensor import DTensor
    from hyper_layout import Replicate, Shard

    mesh = mesh_of_all()
    x = distributed(tensor(4, 2), mesh, Shard(0))
    assert isinstance(x, DTensor) and x.shape == (4, 2) and x.to_local().shape == (2, 2)
    assert (x.size, x.ndim, x.nbytes, len(x), x.numel(), x.dim()) == (8, 2, 32, 4, 8, 2)
    assert repr(x) == str(x) == f"{x}" == "DTensor(f32[4,2] tp:S(0))"
    for ask in (
        x.item,
        x.tolist,
        x.asnumpy,
        x.numpy,
        x.data_ptr,
        x.untyped_storage,
        lambda: np.array(x),
        lambda: float(x),
    ):
        refused(RuntimeError, "full_tensor", ask)
    refused(RuntimeError, "full_tensor", lambda: 1.0 in x)
    y = distributed(tensor(4, 2), mesh, Replicate())
    assert (
        np.array_equal(np.array(y), tensor(4, 2).asnumpy()) and y.tolist() == tensor(4, 2).asnumpy().tolist()
    )
    assert bool(distributed(tensor(), mesh, Replicate()) > -100) and hash(x) != hash(y)
    assert [row.shape for row in x] == [(2,)] * 4
    close(x.full_tensor(), tensor(4, 2))


def mixed_operands() -> None:
    from mindspore import Parameter, Tensor, mint

    from hyper_dtensor import implicit_replication
    from hyper_layout import LayoutError, Shard

    mesh = mesh_of_all()
    plain, other = tensor(4, 2), tensor(4, 2, seed=1)
    x = distributed(plain, mesh, Shard(0))
    parameter = Parameter(other, name="p")
    calls: list[Any] = [
        lambda t: t + x, lambda t: x + t, lambda t: t - x, lambda t: t * x, lambda t: t / x, lambda t: t**x,
        lambda t: t.add(x), lambda t: mint.add(t, other=x), lambda t: t % x, lambda t: t // x, lambda t: mint.add(x, t),
        lambda t: t < x, lambda t: t == x, lambda t: mint.cat([t, x]), lambda t: t @ x.T,
    ]  # fmt: skip
    for call in calls:
        for first in (other, parameter):
            refused(LayoutError, r"distribute_tensor\(", lambda call=call, first=first: call(first))
    with implicit_replication():
        close(other + distributed(plain, mesh, Shard(0)).redistribute(tp=_replicate()), other + plain)
    scalar = Tensor(2.5)
    for call in (
        lambda t: t + scalar,
        lambda t: scalar * t,
        lambda t: 3 - t,
        lambda t: t / 2,
        lambda t: scalar - t,
    ):
        close(call(x), call(plain))


def into_plain_tensors() -> None:
    from mindspore import Parameter, Tensor, nn, ops

    from hyper_layout import Replicate, Shard

    mesh = mesh_of_all()
    split, same = distributed(tensor(4, 2), mesh, Shard(0)), distributed(tensor(4, 2), mesh, Replicate())
    close(Tensor(same), tensor(4, 2))
    refused(RuntimeError, "full_tensor", lambda: Tensor(split))
    cell = nn.Dense(2, 4)
    refused(RuntimeError, "full_tensor", lambda: cell.weight.set_data(split))
    refused(RuntimeError, "full_tensor", lambda: setattr(cell, "weight", split))
    refused(RuntimeError, "full_tensor", lambda: tensor(4, 2).assign_value(split))
    cell.weight.set_data(same)
    close(cell.weight, tensor(4, 2))
    assert type(Parameter(tensor(2), name="p")).__name__ == "Parameter"
    for value in (split, same):
        refused(NotImplementedError, "redistribute", lambda value=value: ops.AllReduce()(value))


def _replicate() -> Any:
    from hyper_layout import Replicate

    return Replicate()


def writes() -> None:
    from mindspore import Tensor, mint, ops

    from hyper_layout import LayoutError, Replicate, Shard

    mesh = mesh_of_all()
    for placement in (Shard(0), Shard(1), Replicate()):
        for index, value in [
            (0, 7.0),
            ((slice(None), 1), 5.0),
            (-1, 2.0),
            ((slice(1, 3),), 3.0),
            ((2, 0), 9.0),
            (..., 1.0),
        ]:
            plain, x = tensor(4, 2), distributed(tensor(4, 2), mesh, placement)
            plain[index] = value
            x[index] = value
            close(x, plain, (placement, index))
    x = distributed(tensor(4, 2), mesh, Shard(0))
    part = x[0]
    x[0] = 1.0
    refused(LayoutError, "written in place since", lambda: part + 1)
    refused(LayoutError, "writes in place into a tensor", lambda: x[1].copy_(x[1]))
    refused(NotImplementedError, "view", lambda: mint.narrow(x, 1, 0, 1).copy_(mint.narrow(x, 1, 0, 1)))
    # MindSpore's own in-place arithmetic writes nothing on CPU.
    for name, expected in [("add_", 3.0), ("mul_", 2.0), ("sub_", -1.0), ("div_", 0.5)]:
        y = distributed(Tensor(np.ones((4, 2), np.float32)), mesh, Shard(0))
        assert getattr(y, name)(2.0) is y
        assert (whole(y) == expected).all(), name
    y += 1
    assert (whole(y) == 1.5).all()
    ops.assign(y, distributed(tensor(4, 2), mesh, Shard(0)))
    close(y, tensor(4, 2))
    refused(
        LayoutError, "would write a distributed result into the plain tensor", lambda: tensor(4, 2).add_(x)
    )


def writes_and_gradients() -> None:
    import mindspore

    from hyper_dtensor import DTensor
    from hyper_layout import Shard

    mesh = mesh_of_all()

    def loss(local: Any) -> Any:
        x = DTensor.from_local(local, mesh, [Shard(0)])
        refused(NotImplementedError, "does not differentiate writing in place", lambda: x.add_(1.0))
        refused(NotImplementedError, "does not differentiate writing in place", lambda: x.__setitem__(0, 1.0))
        return x.sum()

    mindspore.grad(loss)(tensor(2, 2))


def copies() -> None:
    import mindspore
    import pytest

    from hyper_dtensor import DTensor
    from hyper_layout import LayoutError, Shard

    mesh = mesh_of_all()
    for dtype in ("float32", "float64", "int64", "bool"):
        x = distributed(
            tensor(4, 2).astype(getattr(mindspore, dtype if dtype != "bool" else "bool_")), mesh, Shard(0)
        )
        for made in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.clone(), x.copy()):
            assert isinstance(made, DTensor) and made.placements == x.placements and made.shape == x.shape
            assert made.dtype == x.dtype and np.array_equal(whole(made), whole(x))
    x = distributed(tensor(4, 2), mesh, Shard(0))
    rebuild, (local, layout, part, *rest) = x.__reduce_ex__(2)
    with pytest.raises(LayoutError, match=r"this rank holds part tp=.*pickled as the part of one rank"):
        rebuild(local, layout, (1 - part[0],), *rest)
    made = copy.deepcopy(x)
    made[0] = 100.0
    close(x, tensor(4, 2))


def casts() -> None:
    import mindspore
    from mindspore import ops

    from hyper_layout import LayoutError, Partial, Shard

    mesh = mesh_of_all()
    x = distributed(tensor(4, 2), mesh, Shard(0))
    for made in (
        x.astype(mindspore.float64),
        x.double(),
        x.to(mindspore.float64),
        ops.cast(x, mindspore.float64),
    ):
        assert made.dtype == mindspore.float64 and made.placements == (Shard(0),)
    p = distributed(tensor(4, 2), mesh, Partial())
    assert p.astype(mindspore.float64).placements == (Partial(),)
    refused(LayoutError, "floating dtypes only", lambda: p.astype(mindspore.int32))


def without_data() -> None:
    import mindspore
    from mindspore.common.initializer import initializer

    from hyper_dtensor import distribute_tensor
    from hyper_layout import Shard

    mesh = mesh_of_all()
    waiting = initializer("ones", (4, 2), mindspore.float32)
    refused(RuntimeError, "init_data", lambda: distribute_tensor(waiting, mesh, [Shard(0)]))
    made = distribute_tensor(waiting.init_data(), mesh, [Shard(0)])
    close(made, mindspore.ops.ones((4, 2), mindspore.float32))


def bfloat16_copies() -> None:
    import mindspore

    from hyper_layout import Replicate, Shard

    mesh = mesh_of_all(1, 2)
    x = distributed(tensor(4, 2).astype(mindspore.bfloat16), mesh, Replicate(), Shard(0))
    expected = tensor(4, 2).astype(mindspore.bfloat16).astype(mindspore.float32)
    for made in (x.clone(), copy.deepcopy(x), x.redistribute(placements=[Shard(0), Shard(1)])):
        assert made.dtype == mindspore.bfloat16
        close(made.full_tensor().astype(mindspore.float32), expected)


def test_whole_shape_and_value_or_refused(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(shapes_and_values)


def test_plain_operands_are_refused_on_either_side_and_numbers_mix(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(mixed_operands)


def test_plain_tensors_take_whole_values_alone(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(into_plain_tensors)


def test_writes_reach_the_tensor_or_are_refused(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(writes)


def test_writes_inside_of_a_gradient_computation_are_refused(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(writes_and_gradients)


def test_copies_and_pickles_are_distributed(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(copies)


def test_casts(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(casts)


def test_a_tensor_that_waits_for_its_initialiser_is_refused(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(without_data)


def test_copies_of_bfloat16(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(bfloat16_copies)
