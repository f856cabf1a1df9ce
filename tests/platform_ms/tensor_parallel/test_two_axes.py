"""Data and tensor parallelism on one mesh of two axes, against one device."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.platform_ms.helpers import close, gradients_equal, mesh_of_all, mlp, tensor
from tests.support.ms_ranks import MindSporeRankPool


def trained() -> None:
    import mindspore
    from mindspore import Tensor, mint, nn

    from hyper_dtensor import DTensor, distribute_module, distribute_parameter
    from hyper_layout import Replicate, Shard

    mesh = mesh_of_all(2, 2)
    cuts = {"0": {"weight": Shard(0), "bias": Shard(0)}, "2": {"weight": Shard(1), "bias": Replicate()}}

    def partition(name: str, cell: Any, mesh: Any) -> None:
        for key, placement in cuts.get(name, {}).items():
            distribute_parameter(cell, key, mesh, [Replicate(), placement])

    ours, single = distribute_module(mlp(), mesh, partition), mlp()
    x = tensor(4, 8, seed=1)
    local = Tensor(np.split(x.asnumpy(), 2)[mesh.get_local_rank(0)].copy())

    def loss(cell: Any, x: Any) -> Any:
        output = cell(x)
        if isinstance(output, DTensor):
            output = output.redistribute(tp=Replicate())
        return mint.mean(mint.square(output))

    def split_loss(local: Any) -> Any:
        return loss(ours, DTensor.from_local(local, mesh, [Shard(0), Replicate()]))

    optimizers = [nn.Adam(cell.trainable_params(), 0.01) for cell in (ours, single)]
    for _ in range(3):
        value, found = mindspore.value_and_grad(split_loss, None, ours.trainable_params())(local)
        expected, wanted = mindspore.value_and_grad(
            lambda x: loss(single, x), None, single.trainable_params()
        )(x)
        close(value, expected)
        gradients_equal(ours.trainable_params(), found, wanted)
        optimizers[0](found)
        optimizers[1](wanted)
    for mine, theirs in zip(ours.trainable_params(), single.trainable_params(), strict=True):
        close(mine, theirs, mine.name)


def test_training_on_two_axes_equals_one_device(ms_ranks4: MindSporeRankPool) -> None:
    ms_ranks4.run(trained)
