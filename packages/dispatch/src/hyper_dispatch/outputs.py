"""Local results become distributed tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hyper_dtensor import DTensor, Spec, get_platform
from hyper_dtensor.meta import global_shape


def wrap_outputs(output: Any, specs: Sequence[Spec | None], shapes: Sequence[tuple[int, ...] | None]) -> Any:
    """Wrap the local result of an operation.

    Args:
        output: A local tensor, or a list or tuple of results (a named tuple stays one).
        specs: One per result; None passes a result through.
        shapes: Global shape of each result, None where it follows from the local shape.

    Raises:
        ValueError: If the operation returned another number of results than its rule has.
    """
    make = get_platform().wrap
    if not isinstance(output, (list, tuple)):
        spec, shape = specs[0], shapes[0]
        if spec is None:
            return output
        return make(output, spec, global_shape(output.shape, spec) if shape is None else shape)
    if len(output) != len(specs):
        raise ValueError(
            f"the operation returned {len(output)} results, but its rule has {len(specs)} layouts"
        )
    items = [
        item
        if spec is None or item is None
        else make(item, spec, global_shape(item.shape, spec) if shape is None else shape)
        for item, spec, shape in zip(output, specs, shapes, strict=True)
    ]
    return rebuilt(output, items)


def rebuilt(like: Any, items: list[Any]) -> Any:
    """A list or tuple of the same type with other items."""
    kind = type(like)
    if kind is list:
        return items
    if kind is tuple:
        return tuple(items)
    make = getattr(kind, "_make", kind)
    return make(items)


def set_specs(result: Any, specs: Sequence[Spec | None]) -> None:
    """Give results that a strategy wrapped itself the gradient state that the dispatcher derived."""
    items = result if isinstance(result, (list, tuple)) else (result,)
    for item, spec in zip(items, specs, strict=False):
        if isinstance(item, DTensor) and spec is not None and item._spec.layout is spec.layout:
            item._spec, item._meta = spec, None
