"""What styles refuse on cells: the table of the styles RFC, section 9.3, and rows A1 to A12."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from tests.platform_ms.helpers import mesh_of_all, mlp, refused, tensor
from tests.support.ms_ranks import MindSporeRankPool


def plans() -> None:
    from hyper_parallel import ColwiseParallel, ParallelStyle, parallelize_module

    mesh = mesh_of_all()
    refused(TypeError, "abstract", ParallelStyle)  # A1
    refused(TypeError, "ParallelStyle", lambda: parallelize_module(mlp(), mesh, [ColwiseParallel()]))  # A3
    refused(TypeError, "ParallelStyle", lambda: parallelize_module(mlp(), mesh, {"0": "colwise"}))
    for name in ("", "a..b"):  # A4
        refused(
            ValueError,
            "empty part",
            lambda name=name: parallelize_module(mlp(), mesh, {name: ColwiseParallel()}),
        )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cell = mlp()
        assert parallelize_module(cell, mesh, {"nothing": ColwiseParallel()}) is cell  # A5
        assert parallelize_module(cell, mesh, None) is cell  # A12
    assert [str(each.message).partition(":")[0] for each in caught] == [
        "parallelize_plan",
        "parallelize_module got no parallelize_plan",
    ]


def two_axes() -> None:  # A2
    from hyper_parallel import ColwiseParallel, init_device_mesh, parallelize_module

    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("dp", "tp"))
    refused(
        ValueError,
        r'1D DeviceMesh.*device_mesh\["tp"\]',
        lambda: parallelize_module(mlp(), mesh, ColwiseParallel()),
    )


def other_cells() -> None:  # A6
    from mindspore import nn

    from hyper_parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    class Own(nn.Cell):
        def construct(self, x: Any) -> Any:
            return x

    for cell in (nn.LayerNorm((8,)), nn.ReLU(), nn.Conv2d(2, 2, 1), Own()):
        for style in (ColwiseParallel(), RowwiseParallel()):
            refused(
                NotImplementedError,
                "Linear and Embedding",
                lambda cell=cell, style=style: parallelize_module(cell, mesh_of_all(), style),
            )


def boundaries() -> None:  # A7, A8
    from mindspore import nn

    from hyper_layout import Replicate, Shard
    from hyper_parallel import PrepareModuleInput, PrepareModuleOutput, parallelize_module

    class Two(nn.Cell):
        def construct(self, x: Any, y: Any) -> Any:
            return x, y

    refused(
        AssertionError,
        "same length",
        lambda: PrepareModuleInput(input_layouts=(Shard(0), None), desired_input_layouts=Replicate()),
    )
    refused(
        AssertionError,
        "same length",
        lambda: PrepareModuleOutput(output_layouts=(Shard(0), None), desired_output_layouts=Replicate()),
    )
    cell = parallelize_module(
        Two(), mesh_of_all(), PrepareModuleInput(input_layouts=Shard(0), desired_input_layouts=Replicate())
    )
    refused(ValueError, "same length", lambda: cell(tensor(2, 2), tensor(2, 2)))
    style = PrepareModuleInput(
        input_layouts=(Shard(0), Shard(0)), desired_input_layouts=(Replicate(), Replicate())
    )
    cell = parallelize_module(Two(), mesh_of_all(), style)
    refused(AssertionError, "expecting a tensor or DTensor", lambda: cell(tensor(2, 2), 3))


def inputs_and_outputs() -> None:  # A9, A10
    from mindspore import nn

    from hyper_parallel import RowwiseParallel, SequenceParallel, parallelize_module

    class Forgets(nn.Dense):
        def construct(self, x: Any) -> Any:
            return tensor(2, 4)

    cell = parallelize_module(nn.LayerNorm((8,)), mesh_of_all(), SequenceParallel())
    for value in ([1, 2], 3):
        refused(ValueError, "tensor or DTensor", lambda value=value: cell(value))
    cell = parallelize_module(Forgets(8, 4), mesh_of_all(), RowwiseParallel())
    refused(TypeError, "return a DTensor", lambda: cell(tensor(2, 4)))


def twice() -> None:  # A11
    from mindspore import nn

    from hyper_parallel import ColwiseParallel

    cell, style = nn.Dense(8, 16), ColwiseParallel()
    style.apply(cell, mesh_of_all())
    refused(RuntimeError, "was applied", lambda: style.apply(cell, mesh_of_all()))


def uneven() -> None:
    from mindspore import nn

    from hyper_parallel import ColwiseParallel, parallelize_module

    refused(
        ValueError, "dim 0", lambda: parallelize_module(nn.Dense(8, 15), mesh_of_all(), ColwiseParallel())
    )


def of_rank_zero() -> None:  # B7, B8
    import mindspore
    import numpy as np

    from hyper_dtensor import get_platform
    from hyper_parallel import ColwiseParallel, CommDebugMode, RowwiseParallel, parallelize_module
    from tests.platform_ms.helpers import close

    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    cell = mlp()
    if get_platform().rank() != 0:
        for parameter in cell.trainable_params():
            parameter.set_data(mindspore.Tensor(np.zeros(parameter.shape, np.float32)))
    for given, source in ((cell, 0), (mlp(), None)):
        with CommDebugMode() as comm:
            parallelize_module(given, mesh_of_all(), plan, src_data_rank=source)
        assert bool(comm.total) == (source is not None)
        for parameter, single in zip(given.trainable_params(), mlp().trainable_params(), strict=True):
            close(parameter, single, parameter.name)


CASES = [plans, two_axes, other_cells, boundaries, inputs_and_outputs, twice, uneven, of_rank_zero]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_on_two_ranks(case: Any, ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(case)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_on_four_ranks(case: Any, ms_ranks4: MindSporeRankPool) -> None:
    ms_ranks4.run(case)
