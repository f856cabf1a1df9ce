"""The interned pair of a layout and the gradient state of its Replicate axes (design section 3)."""

from __future__ import annotations

import threading
from typing import Any, ClassVar, final

from hyper_layout import Layout

__all__ = ["Spec"]


@final
class Spec:
    """A layout with the mesh axes on which the tensor is Replicate-*varying*.

    Specs are interned: equal content is the same object, so they are compared and hashed by identity
    and cost nothing as a cache key.

    Attributes:
        layout: The layout of the tensor.
        varying: Bit mask over mesh axes; bit ``a`` is set where the tensor is Replicate on axis ``a``
            and its local gradient is a summand (design section 3, table of gradient states).
        invariant: Bit mask of the axes on which the tensor is Replicate and not varying.
        is_plain: Whether it is Shard or invariant on every axis: then its local tensor is used as it is
            outside of ops (``to_local``).
        shard_counts: Per tensor dim the number of pieces it is cut into; ``None`` if nothing is cut.
        copied: Whether the tensor is a copy where a single device has a view (``x[i]`` of a split dim):
            it is not written in place, because the write would not reach ``x``.
    """

    __slots__ = ("__weakref__", "copied", "invariant", "is_plain", "layout", "shard_counts", "varying")

    layout: Layout
    varying: int
    invariant: int
    is_plain: bool
    shard_counts: tuple[int, ...] | None
    copied: bool

    _interned: ClassVar[dict[tuple[Layout, int, bool], Spec]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def of(cls, layout: Layout, varying: int = 0, copied: bool = False) -> Spec:
        """Return the one Spec of this content.

        Args:
            layout: Layout of the tensor.
            varying: Bit mask of the axes on which it is Replicate-varying.
            copied: Whether it is a copy where a single device has a view.

        Raises:
            ValueError: If a varying axis is not Replicate in ``layout``.
        """
        found = cls._interned.get((layout, varying, copied))
        if found is not None:
            return found
        if varying & ~layout.replicate_axes:
            raise ValueError(f"only Replicate axes can be varying, got mask {varying:#b} for {layout!r}")
        self = object.__new__(cls)
        set_ = object.__setattr__
        set_(self, "layout", layout)
        set_(self, "varying", varying)
        set_(self, "invariant", layout.replicate_axes & ~varying)
        set_(self, "is_plain", not varying and not layout.partial_axes)
        set_(self, "shard_counts", layout.shard_counts if any(n > 1 for n in layout.shard_counts) else None)
        set_(self, "copied", copied)
        with cls._lock:
            return cls._interned.setdefault((layout, varying, copied), self)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"Spec is immutable, cannot set {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (Spec.of, (self.layout, self.varying, self.copied))

    def __repr__(self) -> str:
        axes = [name for a, name in enumerate(self.layout.mesh.mesh_dim_names) if self.varying >> a & 1]
        state = f", varying on {', '.join(axes)}" if axes else ""
        return f"Spec({self.layout.notation}{state}{', copied' if self.copied else ''})"
