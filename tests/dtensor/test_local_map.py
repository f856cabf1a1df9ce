"""``local_map``: a function of local tensors on distributed ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hyper_dtensor import CommDebugMode, DTensor, local_map
from hyper_layout import Placement
from tests.dtensor.helpers import S0, S1, P, R, equal, line, make, on_ranks, square, values, weight_of_rank
from tests.support import simulated as sim
from tests.support.simulated import ops


@on_ranks(2, 4)
def test_arguments_and_outputs() -> None:
    mesh = line()
    x, y = make(values(4, 8), mesh, [S0]), make(values(4, 8, seed=1), mesh, [S0])
    seen: list[Any] = []

    def both(a: Any, factor: float, *, b: Any, name: str) -> tuple[Any, Any, int]:
        seen.extend((a, factor, b, name))
        return a + b, (a * b).sum() * factor, 7

    total, scalar, number = local_map(both, ([S0], [P], None))(x, 2.0, b=y, name="n")
    assert isinstance(seen[0], sim.SimTensor)
    assert (seen[1], seen[3], number) == (2.0, "n", 7)
    equal(total, values(4, 8) + values(4, 8, seed=1))
    equal(scalar, 2 * (values(4, 8) * values(4, 8, seed=1)).sum())
    pieces = local_map(lambda a: ops.split(a, 4, 1), [S0])(x)  # one layout serves all outputs
    assert isinstance(pieces, tuple)
    for piece, expected in zip(pieces, np.split(values(4, 8), 2, axis=1), strict=True):
        equal(piece, expected)
    assert isinstance(local_map(lambda a: [a, a], [S0])(x), list)
    assert local_map(lambda a: a, None)(x) is x._local


@pytest.mark.parametrize(
    ("a", "b", "out"),
    [(S0, S0, S0), (S0, R, S0), (R, S0, S0), (R, R, R), (R, S1, S1), (P, P, P)],
    ids=str,
)
@on_ranks(2, 4)
def test_default_gradients(a: Placement, b: Placement, out: Placement) -> None:
    """On an axis where any operand or output is split, the gradient of a Replicate operand is a summand."""
    mesh, weight = line(), values(4, 8, seed=2)
    x, y = make(values(4, 8), mesh, [a]), make(values(4, 8, seed=1), mesh, [b])

    def local(p: Any, q: Any) -> Any:
        if a is R and b is not R:
            p = cut(p, mesh.get_local_rank(), mesh.size(), b)
        if b is R and a is not R:
            q = cut(q, mesh.get_local_rank(), mesh.size(), a)
        return p + q * 2.0

    result = local_map(local, [out])(x, y)
    equal(result, values(4, 8) + 2 * values(4, 8, seed=1))
    result.backward(sim.tensor(weight))
    assert x.grad is not None
    assert y.grad is not None
    equal(x.grad, weight)
    equal(y.grad, 2 * weight)


def cut(local: Any, place: int, size: int, placement: Any) -> Any:
    """This rank's part of a tensor that is used by hand: the very use whose gradient is a summand."""
    length = local.shape[placement.dim] // size
    return ops.narrow(local, placement.dim, place * length, length)


@on_ranks(4)
def test_states_of_outputs_on_two_axes() -> None:
    mesh = square()
    x, y = make(values(4, 8), mesh, [S0, R]), make(values(4, 8), mesh, [R, R], varying=2)
    assert local_map(lambda a: a, [S0, R])(x)._spec.varying == 0
    assert local_map(lambda a: a, [R, R])(x)._spec.varying == 1
    assert local_map(lambda a: a, [R, R])(y)._spec.varying == 2
    assert local_map(lambda a: a, [R, P])(make(values(4), mesh, [R, R]))._spec.varying == 0
    outputs = local_map(lambda a: (a, a), ([R, R], [R, P]))(make(values(4), mesh, [R, R]))
    assert [t._spec.varying for t in outputs] == [2, 0]


@pytest.mark.parametrize("grads", [[R], [P]])
@on_ranks(2, 4)
def test_in_grad_placements(grads: Sequence[Placement]) -> None:
    mesh, weight = line(), values(4, 8, seed=2)
    x = make(values(4, 8), mesh, [R])
    share = weight_of_rank(mesh) if grads == [P] else 1.0
    scaled = local_map(lambda a: a * share, [R], in_grad_placements=[grads])
    with CommDebugMode() as comm:
        scaled(x).backward(sim.tensor(weight))
    assert comm.counts == ({"all_reduce": 1} if grads == [P] else {})
    assert x.grad is not None
    equal(x.grad, weight)


@on_ranks(2)
def test_in_placements() -> None:
    mesh = line()
    x, y = make(values(4, 8), mesh, [R]), make(values(4, 8), mesh, [S1])
    wants = local_map(lambda a, b: b, [S1], in_placements=([S0], None))
    with pytest.raises(
        ValueError,
        match=r"argument 0 is DTensor\(f64\[4,8\] tp:R\) but in_placements asks for tp:S\(0\); redistribute",
    ):
        wants(x, y)
    wants(x.redistribute([S0]), y)
    shapes: list[Any] = []
    moved = local_map(
        lambda a: shapes.append(a.shape) or a, [S0], in_placements=([S0],), redistribute_inputs=True
    )
    moved(x).backward(sim.tensor(values(4, 8, seed=1)))
    assert shapes == [(2, 8)]
    assert x.grad is not None
    equal(x.grad, values(4, 8, seed=1))


@on_ranks(4)
def test_bad_input() -> None:
    mesh = line()
    x = make(values(4, 8), mesh, [R])
    with pytest.raises(ValueError, match="no argument is a DTensor, so it needs device_mesh="):
        local_map(lambda a: a, [R])(sim.tensor(1.0))
    assert local_map(lambda a: a, [R], device_mesh=mesh)(sim.tensor(1.0)).device_mesh is mesh
    with pytest.raises(ValueError, match="the arguments are on different meshes"):
        local_map(lambda a, b: a, [R])(x, make(values(4, 8), line("other"), [R]))
    with pytest.raises(ValueError, match="the function returned 3 outputs, out_placements has 2"):
        local_map(lambda a: (a, a, a), ([R], [R]))(x)
    with pytest.raises(ValueError, match="one placement per mesh axis"):
        local_map(lambda a: a, [R, R])(x)


@on_ranks(2)
def test_it_keeps_the_name_of_the_function() -> None:
    def attention(q: Any) -> Any:
        """Doc."""
        return q

    wrapped = local_map(attention, [R])
    assert (wrapped.__name__, wrapped.__doc__) == ("attention", "Doc.")
    assert isinstance(wrapped(make(values(4), line(), [R])), DTensor)
