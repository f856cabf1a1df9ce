"""``distribute_tensor``, ``distribute_parameter`` and ``distribute_module``."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from hyper_dtensor import (
    CommDebugMode,
    DTensor,
    distribute_module,
    distribute_parameter,
    distribute_tensor,
)
from hyper_layout import DeviceMesh, Layout, Partial, Shard, StridedShard, current_rank
from tests.dtensor.helpers import AVG, S0, S1, P, R, equal, line, on_ranks, part, square, values
from tests.support import simulated as sim

EACH = [R, S0, S1, P, AVG, Partial("max"), Partial("prod")]
PAIRS = [
    *(pair for pair in product(EACH, EACH) if len({p for p in pair if p.is_partial()} - {P, AVG}) < 2),
    (StridedShard(0, 2), S0),
    (StridedShard(1, 2), S1),
]
PAIRS = [
    pair
    for pair in PAIRS
    if not (any(p in (P, AVG) for p in pair) and any(p in (Partial("max"), Partial("prod")) for p in pair))
]


@pytest.mark.parametrize("source", [0, 1, None])
@on_ranks(4)
def test_every_placement(source: int | None) -> None:
    """With a source, only its data counts; without one, nothing is sent."""
    mesh, value = square(), values(4, 8)
    holds_truth = source is None or mesh.get_coordinate() == (source, source)
    mine = sim.tensor(value if holds_truth else np.full((4, 8), np.nan))
    for placements in PAIRS:
        with CommDebugMode() as comm:
            t = distribute_tensor(mine, mesh, placements, src_data_rank=source)
        assert comm.total == (0 if source is None else 2)
        assert set(comm.counts) <= {"broadcast", "scatter"}
        assert t.layout is Layout(mesh, placements, 2)
        assert t.shape == (4, 8)
        equal(t, value)


@on_ranks(2, 4)
def test_no_placements_means_replicate() -> None:
    value = values(4, 8)
    t = distribute_tensor(sim.tensor(value), line())
    assert t.placements == (R,)
    equal(t, value)


@on_ranks(2)
def test_the_result_is_a_leaf_of_its_own() -> None:
    mesh, value = line(), values(4, 8)
    for source, placement, requires_grad in product((0, None), (R, S0, P), (True, False)):
        tensor = sim.tensor(value, requires_grad=requires_grad)
        t = distribute_tensor(tensor, mesh, [placement], src_data_rank=source)
        assert t.requires_grad is requires_grad
        assert t._local.is_leaf
        with sim.no_grad():
            t._local.fill_(0.0)
        equal(tensor.detach(), value)
    inner = sim.tensor(value, requires_grad=True) * 2.0
    t = distribute_tensor(inner, mesh, [S0])
    assert t._local.is_leaf
    assert t.requires_grad


@on_ranks(2)
def test_meta_tensors_never_communicate() -> None:
    mesh = line()
    with CommDebugMode() as comm:
        t = distribute_tensor(
            sim.SimTensor(np.broadcast_to(0.0, (4, 8)), meta=True), mesh, [S0], src_data_rank=0
        )
    assert comm.total == 0
    assert t._local.is_meta
    assert (t.shape, t._local.shape) == ((4, 8), (2, 8))


@on_ranks(2)
def test_a_dtensor_of_the_wanted_layout_is_returned() -> None:
    mesh = line()
    t = distribute_tensor(sim.tensor(values(4, 8)), mesh, [S0])
    assert distribute_tensor(t, mesh, [Shard(-2)]) is t
    with pytest.raises(
        ValueError, match=r"got DTensor\(f64\[4,8\] tp:S\(0\)\): a DTensor is moved with redistribute"
    ):
        distribute_tensor(t, mesh, [R])


@on_ranks(2)
def test_bad_input() -> None:
    mesh = line()
    with pytest.raises(TypeError, match="distribute_tensor takes a tensor of NumPy, got ndarray"):
        distribute_tensor(values(4), mesh, [R])
    with pytest.raises(
        ValueError, match=r"dim 0 of size 3 .* 'tp' \(size 2\): the nearest sizes that can are 2 and 4"
    ):
        distribute_tensor(sim.tensor(values(3)), mesh, [S0])
    with pytest.raises(ValueError, match="out of range for a tensor of rank 1"):
        distribute_tensor(sim.tensor(values(4)), mesh, [S1])
    with pytest.raises(ValueError, match="one placement per mesh axis"):
        distribute_tensor(sim.tensor(values(4)), mesh, [R, R])
    with pytest.raises(ValueError, match=r"src_data_rank=2 is no coordinate of mesh axis 'tp' \(size 2\)"):
        distribute_tensor(sim.tensor(values(4)), mesh, [R], src_data_rank=2)


# -- modules ------------------------------------------------------------------------------------------------
class Block(sim.SimModule):
    """Two linear layers that share a weight, a frozen one, a buffer, and an input by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.first = sim.SimLinear(8, 8, seed=1)
        self.second = sim.SimLinear(8, 8, bias=False, seed=2)
        self.second.weight = self.first.weight
        self.frozen = sim.SimLinear(8, 8, seed=3)
        self.frozen.weight.requires_grad = False
        self.register_buffer("table", sim.tensor(values(8)))
        self.register_buffer("none", None)

    def forward(self, x: Any, *, scale: Any = None) -> Any:
        self.seen = x, scale
        return x


@pytest.mark.parametrize("source", [0, None])
@on_ranks(2, 4)
def test_what_is_left_becomes_replicate(source: int | None) -> None:
    mesh, model = line(), Block()
    before = dict(model.named_parameters())
    if source == 0 and current_rank():
        for p in model.parameters():
            p.array = p.array * np.nan
    assert distribute_module(model, mesh, src_data_rank=source) is model
    reference = dict(Block().named_parameters())
    for name, p in model.named_parameters():
        assert p is before[name]  # ties and optimizers keep the object
        assert isinstance(p, DTensor)
        assert p.placements == (R,)
        assert p.requires_grad is reference[name].requires_grad
        equal(p, reference[name].detach())
    assert model.second.weight is model.first.weight
    assert not model.frozen.weight.requires_grad
    assert isinstance(model.table, DTensor)
    assert model.own_buffers["none"] is None


@on_ranks(2, 4)
def test_partition_fn_sees_every_module_and_decides() -> None:
    mesh, model = line(), Block()
    seen = []

    def partition(name: str, module: sim.SimModule, device_mesh: DeviceMesh) -> None:
        seen.append(name)
        if name in ("first", "second"):
            distribute_parameter(module, "weight", device_mesh, [S0])
        if name == "first":
            distribute_parameter(module, "bias", device_mesh, [S0])

    distribute_module(model, mesh, partition)
    assert seen == ["", "first", "second", "frozen"]
    assert model.first.weight.placements == model.first.bias.placements == (S0,)
    assert model.second.weight is model.first.weight
    assert model.frozen.weight.placements == (R,)
    reference = Block()
    equal(model.first.weight._local.detach(), part(reference.first.weight.array, model.first.weight.layout))


@on_ranks(2)
def test_a_second_call_is_refused() -> None:
    mesh, model = line(), Block()
    distribute_module(model, mesh)
    with pytest.raises(
        RuntimeError, match="distribute_module was applied to this Block before; apply one style"
    ):
        distribute_module(model, mesh)
    distribute_module(sim.SimSequential(sim.SimLinear(2, 2)), mesh)


@on_ranks(2)
def test_input_and_output_fn() -> None:
    mesh, model = line(), Block()

    def prepare(module: Any, inputs: tuple[Any, ...], device_mesh: DeviceMesh) -> Any:
        assert module is model
        return (DTensor.from_local(inputs[0], device_mesh, [R]), *inputs[1:])

    def finish(module: Any, output: DTensor, device_mesh: DeviceMesh) -> Any:
        assert module is model
        return output.redistribute([S0]).to_local()

    distribute_module(model, mesh, None, prepare, finish)
    scale, x = sim.tensor(2.0), sim.tensor(values(4))
    output = model(x, scale=scale)
    assert isinstance(model.seen[0], DTensor)
    assert model.seen[1] is scale  # keyword inputs pass through
    assert output.shape == (2,)


@on_ranks(2)
def test_what_input_fn_may_return() -> None:
    for prepared, got in (("one", "one"), (("one",), "one"), (None, "given")):
        model = Block()
        distribute_module(model, line(), None, lambda module, inputs, mesh, value=prepared: value)
        assert model("given") == got


@on_ranks(2)
def test_distribute_parameter() -> None:
    mesh, model = line(), Block()
    with pytest.raises(AttributeError, match="Block has no parameter or buffer 'weight'"):
        distribute_parameter(model, "weight", mesh, [R])
    t = distribute_parameter(model.first, "weight", mesh, [S0])
    assert distribute_parameter(model.second, "weight", mesh, [S0]).layout is t.layout
    with pytest.raises(
        ValueError,
        match=r"parameter 'weight' of SimLinear is laid out as DTensor.* already .*same placements",
    ):
        distribute_parameter(model.second, "weight", mesh, [S1])
    with pytest.raises(ValueError, match=r"parameter 'weight' of SimLinear: dim 0 of size 3"):
        distribute_parameter(sim.SimLinear(2, 3), "weight", mesh, [S0])
    assert distribute_parameter(model, "table", mesh, [S0]).placements == (S0,)
    assert isinstance(model.table, DTensor)


@on_ranks(2)
def test_distribute_parameter_returns_the_parameter() -> None:
    model = Block()
    t = distribute_parameter(model.first, "weight", line(), [S0])
    assert t is model.first.weight
