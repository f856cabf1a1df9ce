"""Gradient computations: what they start from, how long views live, higher derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.platform_ms.helpers import close, distributed, mesh_of_all, refused, tensor
from tests.support.ms_ranks import MindSporeRankPool


def starts_from_ones_over_all_ranks() -> None:
    import mindspore
    from mindspore import mint

    from hyper_dtensor import DTensor
    from hyper_layout import LayoutError, Partial, Replicate, Shard

    mesh = mesh_of_all()
    x = tensor(4, 2)
    part = np.split(x.asnumpy(), 2)[mesh.get_local_rank(0)].copy()
    expected = mindspore.grad(lambda x: mint.sum(mint.square(x)))(x)

    def split(local: Any) -> Any:  # Partial(sum)
        return mint.sum(mint.square(DTensor.from_local(local, mesh, [Shard(0)])))

    def average(local: Any) -> Any:  # Partial(avg): twice the loss on each rank
        found = split(local) * 2
        return DTensor.from_local(found.to_local(), mesh, [Partial("avg")])

    def varying(local: Any) -> Any:
        x = DTensor.from_local(local, mesh, [Replicate()], grad_placements=[Partial()])
        return mint.sum(mint.square(x))

    def invariant(local: Any) -> Any:
        return mint.sum(mint.square(DTensor.from_local(local, mesh)))

    def largest(local: Any) -> Any:
        return DTensor.from_local(mint.sum(local), mesh, [Partial("max")])

    local = mindspore.Tensor(part)
    for function in (split, lambda local: split(local).full_tensor(), average):
        found = mindspore.grad(function)(local)
        close(DTensor.from_local(found, mesh, [Shard(0)]), expected)
    _, found = mindspore.value_and_grad(lambda local: (split(local), local), 0, has_aux=True)(local)
    close(DTensor.from_local(found, mesh, [Shard(0)]), expected)
    close(mindspore.grad(invariant)(x), expected)
    close(DTensor.from_local(mindspore.grad(varying)(x), mesh, [Partial()]), expected)
    refused(LayoutError, "carries no gradient", lambda: mindspore.grad(largest)(local))


def views_live_for_one_computation() -> None:
    import mindspore
    from mindspore import Parameter, mint

    from hyper_dtensor import CommDebugMode
    from hyper_layout import Replicate, Shard

    mesh = mesh_of_all()
    weight = Parameter(distributed(tensor(2, 2), mesh, Replicate()), name="weight")
    outside = distributed(tensor(2), mesh, Replicate())
    x = distributed(tensor(4, 2, seed=1), mesh, Shard(0))

    def loss() -> Any:
        # Two uses of the weight in ops that vary: one all-reduce.
        return mint.sum(mint.matmul(x, weight) * mint.matmul(x * outside, weight))

    plain = Parameter(tensor(2, 2), name="weight")
    whole = tensor(4, 2, seed=1)
    expected = mindspore.value_and_grad(
        lambda: mint.sum(mint.matmul(whole, plain) * mint.matmul(whole * tensor(2), plain)), None, [plain]
    )()[1][0]
    for _ in range(3):
        with CommDebugMode() as comm:
            _, (found,) = mindspore.value_and_grad(loss, None, [weight])()
        close(found, expected)
        assert comm.counts == {"all_reduce": 1} and comm.backward_counts == comm.counts, comm
    with CommDebugMode() as comm:
        loss()  # gradients are off: no view, nothing sent
        with mindspore._no_grad():
            loss()
    assert not comm.total


def cells_that_return_a_loss() -> None:
    import mindspore
    from mindspore import mint, nn, ops

    from hyper_dtensor import DTensor
    from hyper_layout import Partial, Shard

    mesh = mesh_of_all()

    class Loss(nn.Cell):
        def __init__(self, split: bool) -> None:
            super().__init__()
            self.layer, self.split = nn.Dense(2, 2, has_bias=False), split
            self.layer.weight.set_data(tensor(2, 2))

        def construct(self, x: Any) -> Any:
            if self.split:
                x = DTensor.from_local(x, mesh, [Shard(0)])
            return mint.sum(mint.square(self.layer(x)))

    from hyper_dtensor import distribute_module

    ours, single = distribute_module(Loss(True), mesh), Loss(False)
    local = mindspore.Tensor(np.split(tensor(4, 2).asnumpy(), 2)[mesh.get_local_rank(0)].copy())
    for make in (
        lambda cell: mindspore.grad(cell, None, cell.trainable_params()),
        lambda cell: ops.GradOperation(get_by_list=True)(cell, cell.trainable_params()),
    ):
        for found, expected in zip(make(ours)(local), make(single)(tensor(4, 2)), strict=True):
            close(found, expected)
    ours.set_grad()
    total = ours(local)
    assert total.placements == (Partial(),)


def higher_derivatives() -> None:
    import mindspore
    from mindspore import mint

    from hyper_dtensor import DTensor
    from hyper_layout import Replicate, Shard

    mesh = mesh_of_all()
    x, w = tensor(4, 2, dtype="float64"), tensor(2, 2, seed=1, dtype="float64")

    def single(w: Any) -> Any:
        product = mint.matmul(x, w)
        return mint.sum(product * product * product)

    def split(w: Any) -> Any:
        rows = distributed(x, mesh, Shard(0))
        product = mint.matmul(rows, DTensor.from_local(w, mesh, [Replicate()]))
        product = product.redistribute(tp=Shard(1))
        return mint.sum(product * product * product).full_tensor()

    for function in (single, split):
        first = mindspore.grad(function)
        second = mindspore.grad(lambda w, first=first: mint.sum(first(w) * w))
        third = mindspore.grad(lambda w, second=second: mint.sum(second(w) * w))
        if function is single:
            expected = [first(w), second(w), third(w)]
        else:
            for order, (wanted, gradient) in enumerate(zip(expected, (first, second, third), strict=True)):
                close(gradient(w), wanted, order, 1e-12)


def backward_from_a_tensor() -> None:
    import mindspore
    from mindspore.graph.api import _pynative_executor

    from hyper_layout import Shard

    mesh = mesh_of_all()
    x = distributed(tensor(4, 2), mesh, Shard(0))
    refused(RuntimeError, "mindspore.value_and_grad", lambda: x.sum().backward())
    x.requires_grad = True
    assert x.requires_grad
    _pynative_executor.set_grad_flag(True)
    (x * x).sum().backward()
    _pynative_executor.set_grad_flag(False)
    assert x.grad is not None and x.grad.placements == (Shard(0),)
    close(x.grad, mindspore.grad(lambda x: (x * x).sum())(tensor(4, 2)))


def gradient_of_a_distributed_input() -> None:
    import mindspore

    from hyper_dtensor import DTensor
    from hyper_layout import Shard

    mesh = mesh_of_all()
    x = distributed(tensor(4, 2), mesh, Shard(0))
    for _ in range(2):
        found = mindspore.grad(lambda x: (x * x).sum())(x)
        close(DTensor.from_local(found, mesh, [Shard(0)]), tensor(4, 2) * 2)


def every_redistribution() -> None:
    import itertools

    import mindspore
    from mindspore import mint

    from hyper_dtensor import DTensor
    from hyper_layout import Partial, Replicate, Shard

    mesh = mesh_of_all(2, 2)
    whole, weight = tensor(4, 4), tensor(4, 4, seed=3)
    expected = mindspore.grad(lambda x: mint.sum(mint.square(x) * weight))(whole)
    kinds = (Replicate(), Shard(0), Shard(1), Partial())
    for source, target in itertools.product(itertools.product(kinds, repeat=2), repeat=2):
        start = distributed(whole, mesh, *source)

        def loss(local: Any, source: Any = source, target: Any = target) -> Any:
            x = DTensor.from_local(local, mesh, list(source)).redistribute(list(target))
            return mint.sum(mint.square(x.full_tensor()) * weight)

        value, found = mindspore.value_and_grad(loss)(start.to_local())
        close(value, mint.sum(mint.square(whole) * weight), (source, target))
        layout = [p if p.is_shard() else Replicate() for p in source]
        close(DTensor.from_local(found, mesh, layout), expected, (source, target))


def test_backward_starts_from_one_over_all_ranks(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(starts_from_ones_over_all_ranks)


def test_views_are_shared_and_live_for_one_computation(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(views_live_for_one_computation)


def test_cells_are_differentiated_as_functions_are(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(cells_that_return_a_loss)


def test_higher_derivatives_are_exact(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(higher_derivatives)


def test_backward_of_a_tensor(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(backward_from_a_tensor)


def test_gradient_of_a_distributed_input_in_every_step(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(gradient_of_a_distributed_input)


def test_redistribution_between_all_layouts_of_two_axes(ms_ranks4: MindSporeRankPool) -> None:
    ms_ranks4.run(every_redistribution)
