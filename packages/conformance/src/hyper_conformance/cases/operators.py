"""Operators on distributed tensors: right, or refused by every rank; never a part passed off as the whole."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hyper_conformance.case import case
from hyper_conformance.here import Here
from hyper_dtensor import DTensor, Spec, implicit_replication, wrap
from hyper_layout import Layout, LayoutError, Partial, Placement, Replicate, Shard

Function: TypeAlias = Callable[..., Any]
Array: TypeAlias = NDArray[Any]

R, S0, S1, P, AVG = Replicate(), Shard(0), Shard(1), Partial(), Partial("avg")
# Placement and whether it varies.
STATES: list[tuple[Placement, int]] = [(R, 0), (R, 1), (S0, 0), (S1, 0), (P, 0), (AVG, 0)]

# The operation, and the shapes of its operands.
OPERATIONS: dict[str, tuple[Function, tuple[tuple[int, ...], ...]]] = {
    "add": (lambda a, b: a + b, ((4, 8), (4, 8))),
    "sub": (lambda a, b: a - b, ((4, 8), (4, 8))),
    "mul": (lambda a, b: a * b, ((4, 8), (4, 8))),
    "div": (lambda a, b: a / (b * b + 1.0), ((4, 8), (4, 8))),
    "matmul": (lambda a, b: a @ b, ((4, 8), (8, 4))),
    "neg": (lambda a: -a, ((4, 8),)),
    "times_number": (lambda a: 2.0 * a * 3.0, ((4, 8),)),
    "plus_number": (lambda a: 1.5 + a, ((4, 8),)),
    "over_number": (lambda a: a / 4.0, ((4, 8),)),
    "squared": (lambda a: a * a, ((4, 8),)),
}


def _check(
    here: Here, function: Function, arrays: list[Array], states: tuple[tuple[Placement, int], ...]
) -> bool:
    """Run on DTensors in these states: the value and the gradients are the single-device ones.

    Returns:
        Whether it was accepted; a refusal is the same on every rank.
    """
    mesh, f = here.line(), here.platform.ops
    specs = [
        Spec.of(Layout(mesh, (placement,), array.ndim), varying)
        for array, (placement, varying) in zip(arrays, states, strict=True)
    ]
    expected = function(*arrays)
    weight = here.values(*expected.shape, seed=9)
    w = here.tensor(weight)
    what = " ".join(f"{p.notation}{'v' * v}" for p, v in states)
    refusals: list[str] = []

    def loss(*locals_: Any) -> Any:
        operands = [wrap(x, spec, a.shape) for x, spec, a in zip(locals_, specs, arrays, strict=True)]
        try:
            y = function(*operands)
        except (LayoutError, NotImplementedError) as error:
            refusals.append(str(error))
            return f.sum(locals_[0])
        assert isinstance(y, DTensor), f"{what}: returned {type(y).__name__}, a part passed off as the whole"
        here.equal(tuple(y.shape), expected.shape, what)
        here.close(y, expected, what)
        if any(op in ("max", "min", "prod") for op in y.layout.partial):
            return f.sum(locals_[0])
        return f.sum(y.full_tensor() * w)

    tensors = [here.tensor(here.part(a, spec.layout)) for a, spec in zip(arrays, specs, strict=True)]
    _, gradients = here.harness.gradients(loss, *tensors)
    answers = here.platform.all_gather_object(refusals, here.everyone())
    assert all(answer == refusals for answer in answers), f"{what}: refused differently: {answers}"
    if refusals:
        return False
    for which, (gradient, spec, array) in enumerate(zip(gradients, specs, arrays, strict=True)):
        here.close(
            here.whole_gradient(spec, array.shape, gradient),
            _numeric(function, arrays, which, weight),
            f"{what}: gradient of operand {which}",
        )
    return True


def _numeric(function: Function, arrays: list[Array], which: int, weight: Array) -> Array:
    """The gradient of ``sum(function(*arrays) * weight)`` by the complex step: exact to the last digits.

    Squire and Trapp, "Using complex variables to estimate derivatives of real functions", 1998.
    """
    gradient = np.zeros_like(arrays[which])
    for place in np.ndindex(gradient.shape):
        moved = [array.astype(complex) for array in arrays]
        moved[which][place] += 1e-30j
        gradient[place] = (function(*moved) * weight).sum().imag / 1e-30
    return gradient


@case(2, ranks=(2,), over={name: (name,) for name in OPERATIONS})
def in_every_layout(here: Here, name: str) -> None:
    """Every placement and gradient state of the operands: right, gradients included, or refused by all."""
    function, shapes = OPERATIONS[name]
    arrays = [here.values(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    accepted = [
        states for states in product(STATES, repeat=len(shapes)) if _check(here, function, arrays, states)
    ]
    assert any(placement.is_shard() for states in accepted for placement, _ in states), (
        "no split operand at all"
    )


@case(2)
def a_row_parallel_product(here: Here) -> None:
    """[x0] [x1] @ [w0] [w1] -> [x0 w0] [x1 w1], a Partial sum; a bias enters it once."""
    mesh, x, w, b = here.line(), here.values(3, 8), here.values(8, 4, seed=1), here.values(4, seed=2)
    y: Any = here.distributed(x, mesh, [S1]) @ here.distributed(w, mesh, [S0])  # type: ignore[operator]
    here.equal(y.placements, (P,))
    y = y + here.distributed(b, mesh, [R])
    here.equal(y.placements, (P,))
    here.close(y, x @ w + b)


@case(2)
def with_numbers_and_plain_scalars(here: Here) -> None:
    """Numbers and 0-d plain tensors mix with DTensors, on either side."""
    mesh, x = here.line(), here.values(4, 8)
    for placement in (S0, S1, R):
        t: Any = here.distributed(x, mesh, [placement])
        scalar = here.tensor(np.asarray(2.0))
        for y in (t * scalar, scalar * t, t * 2.0, 2.0 * t, t + t, scalar / 1.0 * t):
            assert isinstance(y, DTensor)
            here.close(y, 2 * x)
        here.close(1.0 - t, 1.0 - x)
        here.close(scalar - t, 2.0 - x)
        here.close(t - scalar, x - 2.0)


@case(2)
def a_plain_tensor_is_refused(here: Here) -> None:
    """A plain tensor with dims is refused beside a DTensor, on either side, with how to wrap it."""
    mesh, x = here.line(), here.values(4, 8)
    t: Any = here.distributed(x, mesh, [S0])
    plain = here.tensor(x)
    for call in (
        lambda: t + plain,
        lambda: plain + t,
        lambda: t * plain,
        lambda: plain * t,
        lambda: plain - t,
    ):
        here.refused(call, TypeError, ValueError, says="implicit_replication")


@case(2)
def a_plain_tensor_counts_as_replicate_where_it_is_said(here: Here) -> None:
    """Inside ``implicit_replication()`` plain tensors meet DTensors, on either side."""
    mesh, x, y = here.line(), here.values(4, 8), here.values(4, 8, seed=1)
    t: Any = here.distributed(x, mesh, [R])
    plain = here.tensor(y)
    with implicit_replication():
        here.close(t + plain, x + y)
        here.close(plain + t, x + y)
        here.close(plain * t, x * y)
        here.close(plain - t, y - x)


INDICES: dict[str, tuple[Any, ...]] = {
    "row": (1,),
    "last_row": (-1,),
    "slice": (slice(1, 3),),
    "columns": ((slice(None), slice(2, 6)),),
    "column": ((slice(None), 3),),
    "element": ((1, 2),),
    "new_dim": ((slice(None), None),),
    "ellipsis": ((..., 0),),
    "all": (...,),
}


@case(2, over=INDICES)
def indexing(here: Here, index: Any) -> None:
    """``x[index]`` is a DTensor of the single-device values, or refused by every rank."""
    mesh, x = here.line(), here.values(4, 8)
    for placement in (R, S0, S1):
        t: Any = here.distributed(x, mesh, [placement])
        refusals = []
        try:
            y = t[index]
        except (LayoutError, NotImplementedError) as error:
            refusals.append(str(error))
        else:
            assert isinstance(y, DTensor), f"{placement}: a part passed off as the whole"
            here.close(y, x[index], f"{placement}")
        answers = here.platform.all_gather_object(refusals, here.everyone())
        assert all(answer == refusals for answer in answers), f"{placement}: {answers}"
        assert not refusals or placement is not R, f"refused where every rank has it all: {refusals}"


@case(2)
def iteration(here: Here) -> None:
    """``for row in x`` gives the rows of the whole, or is refused by every rank."""
    mesh, x = here.line(), here.values(4, 8)
    for placement in (R, S0, S1):
        t: Any = here.distributed(x, mesh, [placement])
        here.equal(len(t), 4)
        refusals, rows = [], []
        try:
            rows = list(t)
        except (LayoutError, NotImplementedError) as error:
            refusals.append(str(error))
        answers = here.platform.all_gather_object(refusals, here.everyone())
        assert all(answer == refusals for answer in answers), f"{placement}: {answers}"
        if not refusals:
            here.equal(len(rows), 4)
            for row, expected in zip(rows, x, strict=True):
                assert isinstance(row, DTensor)
                here.close(row, expected, f"{placement}")


@case(2)
def comparisons(here: Here) -> None:
    """``<`` and ``>=`` with a number: a DTensor of bool in the same layout."""
    mesh, x = here.line(), here.values(4, 8)
    for placement in (R, S0, S1):
        t: Any = here.distributed(x, mesh, [placement])
        assert isinstance(t < 0.5, DTensor)
        here.identical(t < 0.5, x < 0.5)
        here.identical(t >= 0.5, x >= 0.5)
    partial: Any = here.distributed(x, mesh, [P])
    here.refused(lambda: partial < 0.5, LayoutError)


@case(2)
def a_refusal_says_what_would_do(here: Here) -> None:
    """The refusal of a layout names axis, operands and redistributions; every rank raises the same."""
    mesh = here.line()
    x: Any = here.distributed(here.values(4, 8), mesh, [S1])
    w: Any = here.distributed(here.values(8, 4), mesh, [S1])
    message = here.refused(lambda: x @ w, LayoutError, says="'tp'")
    assert "redistribute(tp=" in message


@case(2)
def a_failure_leaves_the_dispatcher_usable(here: Here) -> None:
    """After a refusal the next operation is as right as before."""
    mesh, x = here.line(), here.values(4, 8)
    t: Any = here.distributed(x, mesh, [S1])
    w: Any = here.distributed(here.values(8, 4), mesh, [S1])
    here.refused(lambda: t @ w, LayoutError)
    here.close(t + t, 2 * x)
    here.close(t.to_local(), x[t.layout.local_slice(x.shape)])
