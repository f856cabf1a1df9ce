"""Module verbs on cells: walking, hooks with keywords and several outputs, watching, buffers; random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.platform_ms.helpers import close, mesh_of_all, mlp, tensor, whole
from tests.support.ms_ranks import MindSporeRankPool


def introspection() -> None:
    from mindspore import mint, nn

    from hyper_dtensor import get_platform
    from hyper_dtensor.platform import modules_below

    platform = get_platform()
    cell = mlp()
    assert [name for name, _ in modules_below(platform, cell)] == ["", "0", "1", "2"]
    assert list(platform.children(cell)) == ["0", "1", "2"] and list(platform.parameters(cell[0])) == [
        "weight",
        "bias",
    ]
    assert not platform.parameters(cell) and not platform.buffers(cell)
    assert platform.is_linear_module(cell[0]) and platform.is_linear_module(mint.nn.Linear(2, 2))
    assert platform.is_embedding_module(nn.Embedding(2, 2)) and platform.is_embedding_module(
        mint.nn.Embedding(2, 2)
    )
    assert not platform.is_linear_module(nn.LayerNorm((2,))) and not platform.is_embedding_module(cell[0])


def hooks() -> None:
    from mindspore import nn

    from hyper_dtensor import get_platform

    class Two(nn.Cell):
        def construct(self, x: Any, *, scale: Any) -> Any:
            return x * scale, x

    platform, cell, seen = get_platform(), Two(), []

    def before(module: Any, args: Any, kwargs: Any) -> Any:
        seen.append((len(args), dict(kwargs)))
        return (args[0] + 1,), {"scale": kwargs["scale"] * 2}

    def after(module: Any, args: Any, kwargs: Any, output: Any) -> Any:
        seen.append((len(output), dict(kwargs)))
        return (*output, "more")

    handles = [platform.before_forward(cell, before), platform.after_forward(cell, after)]
    x = tensor(2)
    scaled, same, more = cell(x, scale=3)
    close(scaled, (x + 1) * 6)
    close(same, x + 1)
    assert more == "more" and seen == [(1, {"scale": 3}), (2, {"scale": 6})]
    for handle in handles:
        handle.remove()
    assert len(cell(x, scale=3)) == 2


def watched() -> None:
    from mindspore import nn

    from hyper_dtensor import get_platform

    platform, cell, seen = get_platform(), mlp(), []
    call = nn.Cell.__call__
    with platform.watch_modules(
        lambda m: seen.append(("in", type(m).__name__)), lambda m: seen.append(("out", ""))
    ):
        cell(tensor(3, 8))
    assert [what for what, _ in seen].count("in") == [what for what, _ in seen].count("out") == 4
    assert seen[0] == ("in", "SequentialCell") and seen[-1] == ("out", "")
    assert nn.Cell.__call__ is call


def by_module() -> None:
    from hyper_parallel import ColwiseParallel, CommDebugMode, RowwiseParallel, parallelize_module

    cell = parallelize_module(mlp(), mesh_of_all(), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    with CommDebugMode(cell) as comm:
        cell(tensor(3, 8))
    assert comm.by_module == {("2", "all_reduce"): 1}


def compiled() -> None:
    import mindspore
    from mindspore import mint

    from hyper_layout import Shard
    from hyper_parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    from tests.platform_ms.helpers import distributed, refused

    @mindspore.jit
    def total(x: Any) -> Any:
        return mint.sum(x)

    x = distributed(tensor(4, 2), mesh_of_all(), Shard(0))
    close(total(tensor(4, 2)), mint.sum(tensor(4, 2)))
    refused(NotImplementedError, "PyNative mode", lambda: total(x))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    cell = parallelize_module(mlp(), mesh_of_all(), plan)
    cell.construct = mindspore.jit(cell.construct)
    refused(NotImplementedError, "PyNative mode", lambda: cell(tensor(3, 8)))


def random_numbers() -> None:
    import mindspore
    from mindspore import nn, ops

    from hyper_dtensor import DTensor, get_platform, rand, randn
    from hyper_layout import Replicate, Shard

    mesh = mesh_of_all()
    me = get_platform().rank()

    def parts(x: Any) -> list[np.ndarray]:
        group = get_platform().group(mesh.ranks_along(0))
        return [np.asarray(p) for p in get_platform().all_gather_object(x.to_local().asnumpy(), group)]

    for make in (rand, randn):
        first, second = parts(make(4, 8, device_mesh=mesh, placements=[Replicate()]))
        assert np.array_equal(first, second)
        first, second = parts(make(4, 8, device_mesh=mesh, placements=[Shard(0)]))
        assert not np.array_equal(first, second)
    x = DTensor.from_local(mindspore.Tensor(np.ones((64, 8), np.float32)), mesh, [Shard(0)])
    layer = nn.Dropout(p=0.5).set_train()
    for dropped in (ops.dropout(x, 0.5), layer(x)):
        first, second = parts(dropped)
        assert not np.array_equal(first, second) and set(np.unique(first)) == {0.0, 2.0}
        assert 0.3 < (first == 0).mean() < 0.7
    y = DTensor.from_local(mindspore.Tensor(np.ones((64, 8), np.float32)), mesh, [Replicate()])
    assert np.array_equal(*parts(ops.dropout(y, 0.5)))
    assert whole(layer.set_train(False)(x)).all() and me in (0, 1)


def test_walking_cells(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(introspection)


def test_hooks_see_keywords_and_several_outputs(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(hooks)


def test_watching_every_cell(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(watched)


def test_collectives_are_attributed_to_cells(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(by_module)


def test_compiled_functions_refuse_distributed_tensors(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(compiled)


def test_replicate_pieces_of_random_tensors_agree_and_shards_differ(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(random_numbers)
