"""``CommDebugMode``: counts and bytes by kind, axis, module and direction."""

from __future__ import annotations

from typing import Any

from hyper_dtensor import CommDebugMode, Communication, DTensor, distribute_tensor, local_map
from tests.dtensor.helpers import S0, S1, P, R, line, make, on_ranks, square, values
from tests.support import simulated as sim


class Gather(sim.SimModule):
    """Gathers its input, and uses it as the ranks of a varying op do."""

    def forward(self, x: DTensor) -> DTensor:
        return local_map(lambda t: t * 2.0, [P])(x.redistribute([R]))


class Scatter(sim.SimModule):
    """Reduces and scatters its input."""

    def forward(self, x: DTensor) -> DTensor:
        return x.redistribute([S0])


class Model(sim.SimModule):
    def __init__(self) -> None:
        super().__init__()
        self.inner = sim.SimSequential(Gather(), Scatter())

    def forward(self, x: DTensor) -> DTensor:
        return self.inner(x)  # type: ignore[no-any-return]


@on_ranks(2, 4)
def test_by_module_and_direction() -> None:
    x, model = make(values(4, 8), line(), [S0]), Model()
    with CommDebugMode(model) as comm:
        y = model(x)
        y.backward(sim.tensor(values(4, 8)))
    assert comm.counts == {"all_gather": 2, "reduce_scatter": 2}
    assert comm.forward_counts == comm.backward_counts == {"all_gather": 1, "reduce_scatter": 1}
    assert comm.by_module == {
        ("inner.0", "all_gather"): 1,
        ("inner.1", "reduce_scatter"): 1,
        ("inner.1", "all_gather"): 1,
        ("inner.0", "reduce_scatter"): 1,
    }
    assert comm.records[Communication("all_gather", "tp", "inner.1", backward=True)] == 1
    assert comm.total == 4
    assert repr(comm) == "CommDebugMode(all_gather: 2, reduce_scatter: 2)"


@on_ranks(2)
def test_bytes_are_those_of_the_local_input() -> None:
    x = make(values(4, 8), line(), [S0])
    with CommDebugMode() as comm:
        x.redistribute([R])
    assert comm.total_bytes == 2 * 8 * 8
    with CommDebugMode() as comm:
        make(values(4, 8), line(), [P]).redistribute([S1])
    assert dict(comm.bytes) == {Communication("reduce_scatter", "tp", "", backward=False): 4 * 8 * 8}


@on_ranks(4)
def test_by_axis() -> None:
    x = make(values(4, 8), square(), [S0, P])
    with CommDebugMode() as comm:
        x.redistribute([S0, R])
        x.redistribute([R, P])
        distribute_tensor(sim.tensor(values(4)), square(), [S0, R])
    assert comm.by_axis == {
        ("tp", "all_reduce"): 1,
        ("dp", "all_gather"): 1,
        ("dp", "scatter"): 1,
        ("tp", "broadcast"): 1,
    }


@on_ranks(2)
def test_only_what_happens_inside_is_counted() -> None:
    x = make(values(4, 8), line(), [R])
    weight = sim.tensor(values(4, 8))
    with CommDebugMode() as forward:
        assert forward.is_open
        y = x.redistribute([S0])
    assert (forward.total, repr(forward)) == (0, "CommDebugMode(nothing)")
    with CommDebugMode() as backward:
        y.backward(weight, retain_graph=True)
    assert backward.backward_counts == {"all_gather": 1}
    assert forward.total == 0
    y.backward(weight)
    assert backward.total == 1


@on_ranks(2)
def test_modes_nest() -> None:
    x = make(values(4, 8), line(), [S0])
    with CommDebugMode() as outer:
        x.redistribute([R])
        with CommDebugMode() as inner:
            x.redistribute([R])
    assert (outer.total, inner.total) == (2, 1)


@on_ranks(2)
def test_a_module_that_raises_leaves_the_names_right() -> None:
    class Fails(sim.SimModule):
        def forward(self, x: Any) -> Any:
            raise ValueError("inside")

    model = sim.SimSequential(Fails(), Gather())
    x = make(values(4, 8), line(), [S0])
    with CommDebugMode(model) as comm:
        try:
            model(x)
        except ValueError:
            pass
        x.redistribute([R])
        model.get_submodule("1")(x)
    assert comm.by_module == {("", "all_gather"): 1, ("1", "all_gather"): 1}
