"""Parameters that are DTensors: names, optimizers, checkpoints, copies, ties."""

from __future__ import annotations

import copy
import tempfile
from typing import Any

import pytest

from tests.platform_ms.helpers import close, distributed, gradients_equal, mesh_of_all, mlp, refused, tensor
from tests.support.ms_ranks import MindSporeRankPool

OPTIMIZERS = [
    "nn.SGD", "nn.Momentum", "nn.Adam", "nn.AdamWeightDecay", "nn.RMSProp", "nn.Adagrad",
    "experimental.optim.SGD", "experimental.optim.Adam", "experimental.optim.AdamW",
]  # fmt: skip


def parallel() -> Any:
    from hyper_parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    return parallelize_module(mlp(), mesh_of_all(), {"0": ColwiseParallel(), "2": RowwiseParallel()})


def step(cell: Any, x: Any) -> Any:
    import mindspore
    from mindspore import mint

    return mindspore.value_and_grad(lambda x: mint.mean(mint.square(cell(x))), None, cell.trainable_params())(
        x
    )


def trained(name: str) -> None:
    import mindspore
    from mindspore import nn
    from mindspore.experimental import optim

    scope = nn if name.startswith("nn.") else optim
    make = getattr(scope, name.rpartition(".")[2])
    options: tuple[Any, ...] = (0.05, 0.9) if name == "nn.Momentum" else (0.05,)
    ours, single, x = parallel(), mlp(), tensor(3, 8, seed=1)
    names = [parameter.name for parameter in single.trainable_params()]
    assert [parameter.name for parameter in ours.trainable_params()] == names
    assert all(isinstance(parameter, mindspore.Parameter) for parameter in ours.trainable_params())
    optimizers = [make(cell.trainable_params(), *options) for cell in (ours, single)]
    for _ in range(3):
        (loss, gradients), (expected, wanted) = step(ours, x), step(single, x)
        close(loss, expected)
        gradients_equal(ours.trainable_params(), gradients, wanted)
        optimizers[0](gradients)
        optimizers[1](wanted)
    for mine, theirs in zip(ours.trainable_params(), single.trainable_params(), strict=True):
        close(mine, theirs, mine.name)
    assert abs(single.trainable_params()[0].asnumpy() - mlp().trainable_params()[0].asnumpy()).max() > 1e-4


def refused_optimizers() -> None:
    from mindspore import mint

    from hyper_layout import LayoutError

    cell, x = parallel(), tensor(3, 8, seed=1)
    for make in (mint.optim.SGD, mint.optim.AdamW):  # on CPU they train nothing, or have no kernel
        optimizer = make(cell.trainable_params(), lr=0.05)
        _, gradients = step(cell, x)
        refused(
            LayoutError, "plain tensor", lambda optimizer=optimizer, gradients=gradients: optimizer(gradients)
        )


def built_too_early() -> None:
    from mindspore import nn
    from mindspore.experimental import optim

    from hyper_parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    plan, x = {"0": ColwiseParallel(), "2": RowwiseParallel()}, tensor(3, 8, seed=1)
    for make in (lambda p: nn.SGD(p, 0.05), lambda p: nn.Adam(p, 0.05), lambda p: optim.AdamW(p, 0.05)):
        cell = mlp()
        optimizer = make(cell.trainable_params())
        optimizer(step(cell, x)[1])  # of the plain cell, which it was built for
        parallelize_module(cell, mesh_of_all(), plan)
        _, gradients = step(cell, x)
        refused(
            RuntimeError,
            r"was built before its parameter '0.weight' became DTensor\(f32\[16,8\] tp:S\(0\)\), and its states.*: "
            "build the optimizer after parallelize_module",
            lambda optimizer=optimizer, gradients=gradients: optimizer(gradients),
        )
        make(cell.trainable_params())(gradients)


def saved_and_loaded() -> None:
    import mindspore
    from mindspore import ops

    from hyper_dtensor import get_platform

    cell = parallel()
    path = f"{tempfile.mkdtemp()}/rank{get_platform().rank()}.ckpt"
    mindspore.save_checkpoint(cell, path)
    again = parallel()
    for parameter in again.trainable_params():
        parameter.set_data(ops.zeros_like(parameter.to_local()))
        assert not parameter.full_tensor().asnumpy().any()
    missing, unexpected = mindspore.load_param_into_net(again, mindspore.load_checkpoint(path))
    assert (missing, unexpected) == ([], [])
    for loaded, single in zip(again.trainable_params(), mlp().trainable_params(), strict=True):
        close(loaded, single, loaded.name)
    # What was loaded is what is computed with.
    close(again(tensor(3, 8)), mlp()(tensor(3, 8)))
    # A checkpoint of one device holds whole tensors.
    mindspore.save_checkpoint(mlp(), path + ".whole")
    whole = parallel()
    whole[0].weight.set_data(ops.zeros_like(whole[0].weight.to_local()))
    mindspore.load_param_into_net(whole, mindspore.load_checkpoint(path + ".whole.ckpt"))
    close(whole[0].weight, mlp()[0].weight)
    refused(
        RuntimeError,
        "same shape",
        lambda: mindspore.load_param_into_net(mlp(), mindspore.load_checkpoint(path)),
    )


def copied_and_exchanged() -> None:
    from mindspore import Parameter

    from hyper_dtensor import DTensor
    from hyper_layout import LayoutError, Shard

    mesh = mesh_of_all()
    cell = parallel()
    twin = copy.deepcopy(cell)
    for mine, other in zip(cell.trainable_params(), twin.trainable_params(), strict=True):
        assert isinstance(other, DTensor) and isinstance(other, Parameter) and other is not mine
        assert other.name == mine.name and other.placements == mine.placements
    twin[0].weight.set_data(twin[0].weight * 0)
    close(cell[0].weight, mlp()[0].weight)
    assert not twin[0].weight.full_tensor().asnumpy().any()
    refused(ValueError, "this rank's part", lambda: cell[0].weight.set_data(tensor(3, 3)))
    cell[0].weight.set_data(tensor(16, 8))
    close(cell[0].weight, tensor(16, 8))
    refused(
        LayoutError,
        "redistribute",
        lambda: cell[0].weight.set_data(distributed(tensor(16, 8), mesh, Shard(1))),
    )
    made = Parameter(distributed(tensor(4, 2), mesh, Shard(0)), name="made", requires_grad=False)
    assert isinstance(made, DTensor) and (made.name, made.requires_grad, made.shape) == (
        "made",
        False,
        (4, 2),
    )
    close(made, tensor(4, 2))


def tied() -> None:
    import mindspore
    from mindspore import mint, nn

    from hyper_dtensor import DTensor
    from hyper_parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    class Tied(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(8, 4)
            self.head = nn.Dense(4, 8, has_bias=False)
            self.head.weight = self.embed.embedding_table
            self.embed.embedding_table.set_data(tensor(8, 4))

        def construct(self, ids: Any) -> Any:
            return self.head(self.embed(ids))

    ids = mindspore.Tensor([[0, 3, 5, 7]], mindspore.int32)
    single, cell = Tied(), Tied()
    plan = {"embed": RowwiseParallel(), "head": ColwiseParallel(use_local_output=False)}
    parallelize_module(cell, mesh_of_all(), plan)
    assert cell.head.weight is cell.embed.embedding_table and isinstance(cell.head.weight, DTensor)

    def gradients(net: Any) -> Any:
        return mindspore.value_and_grad(
            lambda x: mint.sum(mint.square(net(x))), None, net.trainable_params()
        )(ids)

    (loss, found), (expected, wanted) = gradients(cell), gradients(single)
    close(loss, expected)
    gradients_equal(cell.trainable_params(), found, wanted)


def changed_in_place() -> None:
    """A parameter that becomes another one in the same object: what calls remember of it is renewed."""
    import mindspore
    from mindspore import nn

    from hyper_dtensor import distribute_parameter, get_platform
    from hyper_dtensor.meta import meta_of
    from hyper_layout import Shard

    mesh = mesh_of_all()
    cell = nn.Dense(4, 4, weight_init=tensor(4, 4), has_bias=False)
    weight = distribute_parameter(cell, "weight", mesh, [Shard(0)], src_data_rank=None)
    for dtype in (mindspore.float32, mindspore.float16, mindspore.float64):
        weight.set_dtype(dtype)
        for _ in range(2):
            product = weight * 2
            assert weight.dtype == product.dtype == product.to_local().dtype == meta_of(weight).dtype == dtype
            close(product.astype(mindspore.float32), tensor(4, 4) * 2, tolerance=1e-2)
    get_platform().set_parameter(cell, "weight", weight.redistribute([Shard(1)]))
    assert cell.weight is weight and meta_of(weight).spec is weight._spec
    close((weight * 2).astype(mindspore.float32), tensor(4, 4) * 2, tolerance=1e-2)
    # The local tensor of another DTensor would keep its dtype.
    split = distributed(tensor(4, 4), mesh, Shard(0))
    refused(TypeError, "astype", lambda: split.set_dtype(mindspore.float16))


def test_parameters_that_change_in_place(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(changed_in_place)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_equals_one_device(name: str, ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(trained, name)


def test_optimizers_without_kernels_are_refused(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(refused_optimizers)


def test_optimizers_that_were_built_too_early_are_refused(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(built_too_early)


def test_checkpoints_hold_the_part_of_each_rank(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(saved_and_loaded)


def test_copies_keep_name_and_layout_and_data_is_exchanged(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(copied_and_exchanged)


def test_a_parameter_of_two_cells_stays_one(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(tied)
