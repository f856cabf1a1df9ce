"""The differentiable collectives: forward picture, backward picture, and the derivative of the backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from hyper_conformance.case import case
from hyper_conformance.here import Here
from hyper_conformance.pictures import Picture
from hyper_dtensor import collectives as c
from hyper_layout import DeviceMesh

Pair: TypeAlias = Callable[[Any, DeviceMesh, int], Any]

# Each drawn for two ranks and for four.
IDENTITY = ("[a] [b] -> [a] [b]", "[a] [b] [c] [d] -> [a] [b] [c] [d]")
ALL_REDUCE = ("[a] [b] -> [a+b] [a+b]", "[a] [b] [c] [d] -> [a+b+c+d] [a+b+c+d] [a+b+c+d] [a+b+c+d]")
ALL_GATHER = ("[a] [b] -> [a b] [a b]", "[a] [b] [c] [d] -> [a b c d] [a b c d] [a b c d] [a b c d]")
FOUR = "[a0 a1 a2 a3] [b0 b1 b2 b3] [c0 c1 c2 c3] [d0 d1 d2 d3]"
REDUCE_SCATTER = (
    "[a0 a1] [b0 b1] -> [a0+b0] [a1+b1]",
    f"{FOUR} -> [a0+b0+c0+d0] [a1+b1+c1+d1] [a2+b2+c2+d2] [a3+b3+c3+d3]",
)
ALL_TO_ALL = (
    "[a0 a1] [b0 b1] -> [a0 b0] [a1 b1]",
    f"{FOUR} -> [a0 b0 c0 d0] [a1 b1 c1 d1] [a2 b2 c2 d2] [a3 b3 c3 d3]",
)
SLICE = ("[a0 a1] [b0 b1] -> [a0] [b1]", f"{FOUR} -> [a0] [b1] [c2] [d3]")
KEEP = ("[a] [b] -> [a] [0]", "[a] [b] [c] [d] -> [a] [0] [0] [0]")
SCALE = ("[a] [b] -> [a/2] [b/2]", "[a] [b] [c] [d] -> [a/4] [b/4] [c/4] [d/4]")

Drawn: TypeAlias = tuple[str, str]
PAIRS: dict[str, tuple[Pair, Drawn, Drawn]] = {
    "vary": (lambda x, mesh, dim: c.vary(x, mesh, 0), IDENTITY, ALL_REDUCE),
    "reduce_sum": (lambda x, mesh, dim: c.reduce_sum(x, mesh, 0), ALL_REDUCE, IDENTITY),
    "gather_invariant": (lambda x, mesh, dim: c.gather_invariant(x, mesh, 0, dim), ALL_GATHER, SLICE),
    "gather_varying": (lambda x, mesh, dim: c.gather_varying(x, mesh, 0, dim), ALL_GATHER, REDUCE_SCATTER),
    "scatter_sum": (lambda x, mesh, dim: c.scatter_sum(x, mesh, 0, dim), REDUCE_SCATTER, ALL_GATHER),
    "exchange": (lambda x, mesh, dim: c.exchange(x, mesh, 0, dim, 1 - dim), ALL_TO_ALL, ALL_TO_ALL),
    "cut": (lambda x, mesh, dim: c.cut(x, mesh, 0, dim), SLICE, ALL_GATHER),
    "enter_once": (lambda x, mesh, dim: c.enter_once(x, mesh, 0), KEEP, IDENTITY),
    "enter_once_varying": (lambda x, mesh, dim: c.enter_once(x, mesh, 0, varying=True), KEEP, KEEP),
    "share": (lambda x, mesh, dim: c.share(x, mesh, 0), IDENTITY, SCALE),
    "divide": (lambda x, mesh, dim: c.divide(x, mesh, 0), SCALE, IDENTITY),
}
EACH = {name: (name,) for name in PAIRS}
SHAPE = (4, 8)


def _maps(here: Here, name: str, dim: int) -> tuple[Pair, Picture, Picture]:
    pair, forward, backward = PAIRS[name]
    other = 1 - dim if name == "exchange" else dim
    drawn = here.size // 4
    return pair, Picture(forward[drawn], dim, other), Picture(backward[drawn], other, dim)


@case(2, over=EACH)
def forward_and_backward(here: Here, name: str) -> None:
    """The pictures of a pair: ``[a] [b] -> [a+b] [a+b]`` with ``[f] [g] -> [f] [g]`` back, and so on."""
    mesh, f = here.line(), here.platform.ops
    for dim in (0, 1):
        pair, forward, backward = _maps(here, name, dim)
        inputs = [here.values(*SHAPE, seed=rank) for rank in range(here.size)]
        outputs = forward.apply(inputs)
        incoming = [here.values(*outputs[0].shape, seed=50 + rank) for rank in range(here.size)]
        mine = here.tensor(incoming[here.rank])

        def loss(
            x: Any,
            pair: Pair = pair,
            expected: Any = outputs[here.rank],
            dim: int = dim,
            mine: Any = mine,
        ) -> Any:
            y = pair(x, mesh, dim)
            here.close(y, expected, f"forward of {name} along {dim}")
            return f.sum(y * mine)

        _, (gradient,) = here.harness.gradients(loss, here.tensor(inputs[here.rank]))
        here.close(
            gradient, backward.apply(incoming)[here.rank], f"backward of {name} along {dim}: {backward}"
        )
        here.close(mine, incoming[here.rank], "the incoming gradient was written")


@case(2, over=EACH)
def shared_gradients(here: Here, name: str) -> None:
    """The incoming gradient may be shared with another branch: a backward does not write into it."""
    mesh, f = here.line(), here.platform.ops
    pair, forward, backward = _maps(here, name, 0)
    inputs = [here.values(*SHAPE, seed=rank) for rank in range(here.size)]
    shape = forward.apply(inputs)[0].shape
    ones = [np.ones(shape) for _ in inputs]

    def loss(x: Any, beside: Any) -> Any:
        return f.sum(pair(x, mesh, 0) + beside)

    _, (gradient, other) = here.harness.gradients(
        loss, here.tensor(inputs[here.rank]), here.tensor(here.values(*shape, seed=9))
    )
    here.close(gradient, backward.apply(ones)[here.rank], name)
    here.close(other, np.ones(shape), f"{name}: the gradient of the other branch")


@case(2, over=EACH)
def second_derivatives(here: Here, name: str) -> None:
    """The backward of a pair is the pair with its maps swapped: the gradient has a right gradient."""
    mesh, f = here.line(), here.platform.ops
    pair, forward, backward = _maps(here, name, 0)
    n = here.size
    inputs = [here.values(*SHAPE, seed=rank) for rank in range(n)]
    weights = [here.values(*forward.apply(inputs)[0].shape, seed=50 + rank) for rank in range(n)]
    directions = [here.values(*SHAPE, seed=100 + rank) for rank in range(n)]
    weight, direction = here.tensor(weights[here.rank]), here.tensor(directions[here.rank])

    def gradient_along(x: Any) -> Any:
        def loss(x: Any) -> Any:
            y = pair(x, mesh, 0)
            return f.sum(y * y * weight)

        _, (gradient,) = here.harness.gradients(loss, x)
        return f.sum(gradient * direction)

    _, (second,) = here.harness.gradients(gradient_along, here.tensor(inputs[here.rank]))
    # gradient = B(2 w F(x)); its derivative along v goes back through B as F, and through F as B.
    inner = [2 * w * v for w, v in zip(weights, forward.apply(directions), strict=True)]
    here.close(second, backward.apply(inner)[here.rank], name)


@case(2, over={"invariant": (c.gather_invariant, SLICE), "varying": (c.gather_varying, REDUCE_SCATTER)})
def a_gather_whose_value_is_known(here: Here, pair: Any, drawn: Drawn) -> None:
    """``value=`` is returned as it is, without a collective; the gradient is that of the gather."""
    mesh, f = here.line(), here.platform.ops
    backward = Picture(drawn[here.size // 4])
    whole = here.values(4 * here.size, 3)
    incoming = [here.values(4 * here.size, 3, seed=50 + rank) for rank in range(here.size)]
    known, mine = here.tensor(whole), here.tensor(incoming[here.rank])

    def loss(x: Any) -> Any:
        y = pair(x, mesh, 0, 0, known)
        here.close(y, whole)
        return f.sum(y * mine)

    _, (gradient,) = here.harness.gradients(loss, here.tensor(np.split(whole, here.size)[here.rank]))
    here.close(gradient, backward.apply(incoming)[here.rank])
