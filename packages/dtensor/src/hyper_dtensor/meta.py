"""What a call depends on of an operand: one object per content, compared by identity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from hyper_dtensor.dtensor import DTensor
    from hyper_dtensor.spec import Spec

__all__ = ["TensorMeta", "global_shape", "meta_of"]

_LIMIT: Final = 8192
"""Bound of the tables of this module. They are emptied beyond it: the same content is then made anew, and
what was kept under the old objects is not found again."""


@final
class TensorMeta:
    """Spec, global shape and dtype of a DTensor, and whether it is untracked.

    Two of the same content are nearly always the same object, so that they are compared and hashed by
    identity and cost nothing as a part of a key.
    """

    __slots__ = ("dtype", "shape", "spec", "untracked")

    def __init__(self, spec: Spec, shape: Any, dtype: Any, untracked: bool) -> None:
        self.spec = spec
        self.shape = shape
        self.dtype = dtype
        self.untracked = untracked


_metas: dict[tuple[Any, ...], TensorMeta] = {}
_global_shapes: dict[tuple[Any, ...], tuple[int, ...]] = {}


def meta_of(t: DTensor) -> TensorMeta:
    """The meta of a tensor, kept on it. Whoever changes one of the four sets ``t._meta`` to None."""
    meta = t._meta
    if meta is None:
        content = (t._spec, t._shape, t._local.dtype, t._untracked)
        meta = _metas.get(content)
        if meta is None:
            if len(_metas) >= _LIMIT:
                _metas.clear()
            meta = _metas.setdefault(content, TensorMeta(*content))
        t._meta = meta
    return meta


def global_shape(local_shape: Any, spec: Spec) -> Any:
    """The global shape of a tensor whose parts have ``local_shape``, of the type of ``local_shape``."""
    counts = spec.shard_counts
    if counts is None:
        return local_shape
    known = _global_shapes.get((spec, local_shape))
    if known is None:
        if len(_global_shapes) >= _LIMIT:
            _global_shapes.clear()
        lengths = [length * count for length, count in zip(local_shape, counts, strict=True)]
        known = _global_shapes[spec, local_shape] = type(local_shape)(lengths)
    return known
