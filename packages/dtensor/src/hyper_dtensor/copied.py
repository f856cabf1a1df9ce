"""Copies that stand where a single device has a view.

``x[i]`` of a split dim: its owner alone has the value, so that the result is a new tensor, Partial over the
axis. A view whose operand entered through its varying view (``x.view_as(y)`` of a Replicate ``x`` and a split
``y``): the values are shared, but not the gradients. On a single device what is written into the view would
reach ``x``, and what is written into ``x`` would show in it. Both would be lost here and are refused. A
*copied* tensor is marked in its spec, and passes the mark on to its views and redistributions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hyper_dtensor.platform import get_platform
from hyper_dtensor.spec import Spec
from hyper_layout import LayoutError

if TYPE_CHECKING:
    from hyper_dtensor.dtensor import DTensor

__all__ = ["check_current", "mark_copied", "refuse_write"]

_WHEN = "x[i] of a split dim is one, and a view that has another gradient state"


def mark_copied(t: DTensor, source: DTensor) -> DTensor:
    """``t`` as a copy of values of ``source``, or of what that itself is a copy of."""
    spec = t._spec
    t._spec, t._meta = Spec.of(spec.layout, spec.varying, True), None
    t._copy_of = source._copy_of or (source._local, get_platform().version(source._local))
    return t


def check_current(t: DTensor) -> None:
    """Refuse a copied tensor whose source was written since: a view would show it.

    Raises:
        LayoutError: Names the cures.
    """
    known = t._copy_of
    if known is not None and get_platform().version(known[0]) != known[1]:
        raise LayoutError(
            f"this tensor ({t._spec.layout.notation}) was taken from another as a copy ({_WHEN}), and "
            "that was written in place since: on a single device it would show the new values. Take it again "
            "after the write, or .clone() it before"
        )


def refuse_write(t: DTensor, op_name: str) -> None:
    """Refuse to write into a copied tensor.

    Raises:
        LayoutError: Always; names the cures.
    """
    raise LayoutError(
        f"{op_name} writes in place into a tensor ({t._spec.layout.notation}) that was taken from another, "
        f"but is a copy ({_WHEN}): the write would not reach that tensor as it does on a single device. "
        "Write through the index instead (x[i] = value), or .clone() it first if x is not meant"
    )
