"""What a distributed tensor says of itself, and when it gives its values away."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hyper_dtensor import CommDebugMode, DTensor, Spec, implicit_replication, is_dtensor, is_implicit, wrap
from hyper_dtensor.dtensor import dispatching
from hyper_layout import Layout
from tests.dtensor.helpers import AVG, S0, S1, P, R, equal, line, make, on_ranks, square, values
from tests.support import simulated as sim


@on_ranks(4)
def test_everything_is_global() -> None:
    t = make(values(4, 8), square(), [S0, S1])
    assert isinstance(t, DTensor)
    assert is_dtensor(t)
    assert not is_dtensor(t.to_local())
    assert (t.shape, t.size(), t.size(0), t.size(-1), t.numel(), t.ndim, t.dim(), len(t)) == (
        (4, 8),
        (4, 8),
        4,
        8,
        32,
        2,
        2,
        4,
    )
    assert t.placements == t.layout.placements == (S0, S1)
    assert t._layout is t.layout
    assert t.device_mesh is square()
    assert t.requires_grad
    t.requires_grad = False
    assert not t._local.requires_grad
    with pytest.raises(TypeError, match="0-d"):
        len(make(1.0, square(), [R, R]))


@on_ranks(2)
def test_repr_shows_the_notation_and_never_a_shard() -> None:
    mesh = line()
    for placement, text in ((S0, "S(0)"), (R, "R"), (P, "P(sum)"), (AVG, "P(avg)")):
        t = make(values(4, 8), mesh, [placement])
        assert repr(t) == str(t) == f"{t}" == f"{t:>3}" == f"DTensor(f64[4,8] tp:{text})"
    assert f"{make(2.0, mesh, [R]):.3f}" == "2.000"
    with pytest.raises(RuntimeError, match="full_tensor"):
        f"{make(2.0, mesh, [P]):.3f}"
    assert f"{make(2.0, mesh, [P])}" == "DTensor(f64[] tp:P(sum))"


READERS: list[tuple[str, Callable[[DTensor], Any]]] = [
    ("item()", lambda t: t.item()),
    ("item()", float),
    ("item()", int),
    ("item()", bool),
    ("tolist()", lambda t: t.tolist()),
    ("numpy()", lambda t: t.numpy()),
]


@pytest.mark.parametrize(("what", "read"), READERS)
@on_ranks(2)
def test_parts_are_never_given_for_the_whole(what: str, read: Callable[[DTensor], Any]) -> None:
    mesh = line()
    with CommDebugMode() as comm:
        equal(np.asarray(read(make([1.0], mesh, [R]))).reshape(-1)[0], 1.0)
        for placement in (P, AVG):
            with pytest.raises(RuntimeError) as caught:
                read(make([2.0], mesh, [placement]))
            text = str(caught.value)
            assert text.startswith(f"{what} needs the whole tensor, and this rank holds a part of it (tp:P(")
            assert text.endswith(
                f"call full_tensor() on every rank first, for example x.full_tensor().{what}"
            )
        with pytest.raises(RuntimeError, match="full_tensor"):
            read(make(values(2), mesh, [S0]))
    assert comm.total == 0


@on_ranks(2)
def test_a_replicate_index() -> None:
    mesh = line()
    everywhere = Spec.of(Layout(mesh, (R,), 0))
    assert operator.index(wrap(sim.tensor(3), everywhere)) == 3
    assert [10, 20, 30, 40][wrap(sim.tensor(3), everywhere)] == 40


# -- specs --------------------------------------------------------------------------------------------------
@on_ranks(4)
def test_specs_are_interned_values() -> None:
    import copy
    import pickle

    layout = Layout(square(), (R, S0), 2)
    spec = Spec.of(layout, 1)
    assert Spec.of(layout, 1) is spec
    assert Spec.of(layout) is not spec
    assert pickle.loads(pickle.dumps(spec)) is spec
    assert copy.deepcopy(spec) is spec
    assert (spec.varying, spec.invariant, Spec.of(layout).invariant) == (1, 0, 1)
    assert (spec.shard_counts, Spec.of(Layout(square(), (R, P), 1)).shard_counts) == ((2, 1), None)
    with pytest.raises(AttributeError, match="Spec is immutable, cannot set 'varying'"):
        spec.varying = 0
    with pytest.raises(ValueError, match="only Replicate axes can be varying, got mask 0b10"):
        Spec.of(layout, 2)
    assert repr(spec) == "Spec(dp:R tp:S(0), varying on dp)"


# -- strategies and threads ---------------------------------------------------------------------------------
@on_ranks(2)
def test_inside_of_dispatch_to_local_is_the_bare_local() -> None:
    t = make(values(4), line(), [R], varying=1)
    assert t.to_local() is not t._local
    dispatching.depth += 1
    dispatching.depth += 1
    dispatching.depth -= 1
    assert t.to_local() is t._local
    dispatching.depth -= 1
    assert t.to_local() is not t._local


def test_a_strategy_of_one_thread_does_not_change_another() -> None:
    """Ranks may be threads, and a framework may run its backward on a thread of its own."""
    entered, done = threading.Event(), threading.Event()

    def other() -> None:
        dispatching.depth += 1
        entered.set()
        done.wait(10)
        dispatching.depth -= 1

    thread = threading.Thread(target=other)
    thread.start()
    assert entered.wait(10)
    try:

        def body() -> None:
            t = make(values(4), line(), [R], varying=1)
            assert t.to_local() is not t._local

        sim.run_ranks(2, body)
    finally:
        done.set()
        thread.join()


def test_implicit_replication_nests_and_is_per_thread() -> None:
    assert not is_implicit()
    with implicit_replication():
        with implicit_replication():
            assert is_implicit()
        assert is_implicit()
        seen: list[bool] = []
        thread = threading.Thread(target=lambda: seen.append(is_implicit()))
        thread.start()
        thread.join()
        assert seen == [False]
    with pytest.raises(ValueError, match="inside"), implicit_replication():
        raise ValueError("inside")
    assert not is_implicit()
