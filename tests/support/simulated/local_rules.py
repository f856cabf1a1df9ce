"""The few operations on distributed tensors that tests need where hyper_dispatch is not installed.

Linear, embedding and elementwise functions, enough for modules under tensor-parallel styles. Everything else
is tested where the dispatcher and its operators are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hyper_dtensor import DTensor, gradients, local_map, wrap
from hyper_layout import Partial, Placement, Replicate, Shard
from tests.support.simulated import ops

__all__ = ["run"]

ELEMENTWISE = frozenset({"add", "sub", "mul", "div", "neg", "exp", "tanh", "sigmoid", "silu", "relu", "pow"})


def run(name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> DTensor:
    """The operation, by its rule.

    Raises:
        NotImplementedError: If there is no rule for it, or none for these placements.
    """
    if name == "linear":
        return _linear(*args, **kwargs)
    if name == "embedding":
        return _embedding(*args, **kwargs)
    if name in ELEMENTWISE:
        return _elementwise(function, args, kwargs)
    raise NotImplementedError(f"{name}: no rule without hyper_dispatch")


def _linear(x: DTensor, weight: DTensor, bias: DTensor | None = None) -> DTensor:
    """``S(last) S(1) -> P``, ``R S(0) -> S(last)``, ``x R -> x``; the bias enters a Partial output once."""
    last = x.ndim - 1
    out: list[Placement] = []
    for left, right in zip(x.placements, weight.placements, strict=True):
        if left.is_shard(last) and right.is_shard(1):
            out.append(Partial())
        elif left.is_replicate() and right.is_shard(0):
            out.append(Shard(last))
        elif right.is_replicate() and not left.is_shard(last):
            out.append(left)
        else:
            raise NotImplementedError(f"linear of {x!r} and {weight!r}")
    product: DTensor = local_map(ops.linear, out)(x, weight)
    if bias is None:
        return product
    once = sum(1 << axis for axis, p in enumerate(out) if p.is_partial())
    varies = product.layout.shard_axes | product._spec.varying
    return wrap(
        product._local + gradients.enter(bias, varies & bias._spec.invariant & ~once, once),
        product._spec,
    )


def _embedding(ids: Any, weight: DTensor) -> DTensor:
    """``R S(1) -> S(last)``, ``ids R -> ids``, ``R S(0) -> P``: other ranks' rows count as zeros."""
    mesh = weight.device_mesh
    places = ids.placements if isinstance(ids, DTensor) else (Replicate(),) * mesh.ndim
    out: list[Placement] = []
    first = 0
    for axis, (left, right) in enumerate(zip(places, weight.placements, strict=True)):
        if right.is_replicate():
            out.append(left)
        elif left.is_replicate():
            out.append(Shard(len(ids.shape)) if right.is_shard(1) else Partial())
            if right.is_shard(0):
                first = first * mesh.size(axis) + mesh.get_local_rank(axis)
        else:
            raise NotImplementedError(f"embedding of {ids!r} in {weight!r}")

    def lookup(ids: Any, weight: Any) -> Any:
        own = ids - first * weight.shape[0]
        inside = (own >= 0) & (own < weight.shape[0])
        rows = ops.embedding(ops.where(inside, own, 0), weight)
        return ops.where(ops.unsqueeze(inside, -1), rows, 0.0)

    return local_map(lookup, out)(ids, weight)  # type: ignore[no-any-return]


def _elementwise(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> DTensor:
    """Operands that are split alike or Replicate; shapes align at their last dims."""
    operands = [arg for arg in args if isinstance(arg, DTensor)]
    rank = max(operand.ndim for operand in operands)
    out: list[Placement] = []
    for column in zip(*(operand.placements for operand in operands), strict=True):
        split = {
            Shard(placement.dim + rank - operand.ndim)
            for operand, placement in zip(operands, column, strict=True)
            if isinstance(placement, Shard)
        }
        if len(split) > 1 or any(placement.is_partial() for placement in column):
            raise NotImplementedError(f"elementwise function of {operands}")
        out.append(split.pop() if split else Replicate())
    return local_map(function, out)(*args, **kwargs)  # type: ignore[no-any-return]
