"""The signature tables: every name is served, and primitive and keyword forms are one call (RFC section 7.1)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.ms_ranks import MindSporeRankPool


def every_name() -> list[str]:
    from hyper_dispatch import find_op
    from hyper_platform_ms import names

    table = names._table()
    found = [*table["forms"], *(name for each in table["same"].values() for name in each)]
    assert len(set(found)) == len(found), "a name stands twice"
    wrong = []
    for name in found:
        bare = name.removeprefix("Tensor.")
        known = names.describe(bare, bare != name)
        if known is None or find_op(known.name) is None:
            wrong.append(name)
    assert {**names.functions()}
    return wrong


def sort_forms() -> None:
    """``SortExt`` takes positional arguments alone, the method keywords, ``Sort`` its attributes: one call."""
    import mindspore
    import numpy as np
    from mindspore import Tensor, mint, ops

    from hyper_dispatch import dispatcher
    from hyper_dtensor import DTensor, init_device_mesh
    from hyper_layout import LayoutError, Shard

    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    whole = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    local = np.ascontiguousarray(np.split(whole, 2)[mesh.get_local_rank(0)])
    x = DTensor.from_local(Tensor(local), mesh, [Shard(0)])
    forms: dict[str, Any] = {
        "mint.sort": lambda: mint.sort(x, dim=1, descending=True),
        "positional SortExt": lambda: x.__fallback__(_Named("SortExt"), (x, 1, True, False)),
        "keywords of the method": lambda: x.sort(dim=1, descending=True),
        "ops.sort": lambda: ops.sort(x, 1, True),
        "the primitive Sort": lambda: ops.Sort(1, True)(x),
    }
    dispatcher.clear_cache()
    for name, call in forms.items():
        values, places = call()
        assert (values.placements, places.placements) == ((Shard(0),), (Shard(0),)), name
        assert np.array_equal(values.full_tensor().asnumpy(), -np.sort(-whole, 1)), name
        assert np.array_equal(places.full_tensor().asnumpy(), np.argsort(-whole, 1)), name
    assert dispatcher.cache_info("sort")["sort"].entries == 1, "equivalent calls share one entry"
    assert mindspore.int32 == ops.Sort(1, True)(x)[1].dtype
    with pytest.raises(LayoutError, match="sort cannot take its operand on mesh axis 'tp'"):
        ops.sort(x, 0)


class _Named:
    """An operator as MindSpore hands it over: only its name counts."""

    def __init__(self, name: str) -> None:
        self.name = name


def rfc_sort() -> list[Any]:
    """The Sort strategy of the RFC, registered under MindSpore's name of a primitive."""
    from hyper_dispatch import DistributedOp, dispatcher, register_op
    from hyper_dtensor import DTensor, init_device_mesh
    from hyper_layout import Shard

    class Sort(DistributedOp):
        def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            x, dim, descending, stable = args
            local_args = (x.to_local(), dim, descending, stable)  # a primitive: all positional
            return local_args, {}, [x.layout, dim]

        def infer_layout(self, cache_values: Any) -> Any:
            return (cache_values[0], cache_values[0]), None

    import numpy as np
    from mindspore import Tensor

    register_op("SortOfTheRfc", Sort("SortOfTheRfc"))
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    x = DTensor.from_local(Tensor(np.array([[3.0, 1.0, 2.0]])), mesh, [Shard(0)])
    seen: list[Any] = []

    def primitive(*args: Any) -> Any:
        seen.append(args[1:])
        return args[0], args[0]

    dispatcher.dispatch("SortOfTheRfc", primitive, (x, 1, False, True), {})
    return seen


def registered_by_a_user() -> None:
    """A name of MindSpore that is in no table, registered: calls of one form share a plan."""
    from mindspore import mint, ops

    from hyper_dispatch import dispatcher, register_op
    from hyper_layout import Shard
    from tests.platform_ms.helpers import close, distributed, mesh_of_all, tensor

    register_op("HShrink", "elementwise", signature="input, lambd=0.5")
    x = distributed(tensor(4, 2), mesh_of_all(), Shard(0))
    for _ in range(3):
        close(ops.hardshrink(x), ops.hardshrink(tensor(4, 2)))
        close(mint.nn.functional.hardshrink(x, 0.1), ops.hardshrink(tensor(4, 2), 0.1))
    info = dispatcher.cache_info("HShrink")["HShrink"]
    assert info.entries <= 2 and info.hits >= 4, info


def beyond() -> None:
    from mindspore import Tensor

    from hyper_dtensor import DTensor, init_device_mesh

    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    x = DTensor.from_local(Tensor([[1.0, 2.0]]), mesh)
    with pytest.raises(NotImplementedError, match="sum of a DTensor does not take initial=3"):
        x.sum(axis=1, initial=3)


def unknown() -> None:
    from mindspore import Tensor, ops

    from hyper_dtensor import DTensor, init_device_mesh
    from hyper_layout import Shard

    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    whole = DTensor.from_local(Tensor([[1.0, 2.0], [3.0, 4.0]]), mesh)
    assert ops.matrix_band_part(whole, 0, 0).asnumpy().tolist() == [[1.0, 0.0], [0.0, 4.0]]
    split = DTensor.from_local(Tensor([[1.0, 2.0], [3.0, 4.0]]), mesh, [Shard(0)])
    with pytest.raises(NotImplementedError, match="no distributed rule is registered for 'MatrixBandPart'"):
        ops.matrix_band_part(split, 0, 0)


def test_every_name_of_the_table_is_served(ms_ranks2: MindSporeRankPool) -> None:
    assert ms_ranks2.run(every_name) == [[], []]


def test_forms_of_sort_are_one_call(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(sort_forms)


def test_a_strategy_under_the_name_of_a_primitive_gets_positional_arguments(
    ms_ranks2: MindSporeRankPool,
) -> None:
    assert ms_ranks2.run(rfc_sort) == [[(1, False, True)]] * 2


def test_what_a_form_says_beyond_the_operation_is_refused(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(beyond)


def test_an_unknown_operator_runs_on_whole_tensors_and_is_refused_on_split_ones(
    ms_ranks2: MindSporeRankPool,
) -> None:
    ms_ranks2.run(unknown)


def test_a_name_that_a_user_registers(ms_ranks2: MindSporeRankPool) -> None:
    ms_ranks2.run(registered_by_a_user)
