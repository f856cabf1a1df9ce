"""The layout cache: one bounded table of finished inferences per operation.

An entry is found by an immutable value of the operands' specs (layout and gradient state, interned) and of
the static values **with their types**: `1`, `True`, `1.0` and `"1"` lead to four entries.
"""

from __future__ import annotations

import numbers
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from hyper_dispatch.distributed_op import DistributedOp
from hyper_dispatch.record import Record

if TYPE_CHECKING:
    from hyper_dispatch.call_plan import CallPlan
from hyper_dtensor import DTensor, Spec, get_platform
from hyper_layout import Layout

ENTRIES_PER_OP: Final = 1024
"""Bound of one operation's table; beyond it the oldest entry goes."""

ATOMS: Final[set[type]] = {int, bool, str, bytes, type(None), Layout}
"""Types whose values are equal exactly if they are the same value, so that they enter a key as they are."""


@final
class LayoutCacheKey:
    """Immutable key of an entry; its hash is computed once.

    It equals the plain tuple of its content, and hashes like it: a lookup passes that tuple, so that key
    objects are made once per entry and not once per call.
    """

    __slots__ = ("_content", "_hash")

    _content: tuple[Any, ...]
    _hash: int

    def __init__(self, content: tuple[Any, ...]) -> None:
        """Wrap a content made by `key_content`."""
        object.__setattr__(self, "_content", content)
        object.__setattr__(self, "_hash", hash(content))

    @classmethod
    def from_cache_values(cls, cache_values: Sequence[Any], op_name: str = "operation") -> LayoutCacheKey:
        """The key of cache values alone.

        Raises:
            ValueError: If a value cannot be hashed; names the operation and the value.
        """
        return cls(key_content(op_name, (), cache_values))

    @property
    def content(self) -> tuple[Any, ...]:
        """Specs, static values and the types of the static values."""
        return self._content

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self._content == (other._content if isinstance(other, LayoutCacheKey) else other)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"LayoutCacheKey is immutable, cannot set {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"LayoutCacheKey is immutable, cannot delete {name!r}")

    def __repr__(self) -> str:
        return f"LayoutCacheKey{self._content!r}"


def key_content(op_name: str, specs: tuple[Spec, ...], cache_values: Sequence[Any]) -> tuple[Any, ...]:
    """The content of a key: specs, values, and the types of the values.

    Raises:
        ValueError: If a value cannot be hashed; names the operation and the value.
    """
    types = tuple(map(type, cache_values))
    if not ATOMS.issuperset(types):
        cache_values = [freeze(op_name, value) for value in cache_values]
    return (*specs, *cache_values, *types)


def is_atom(value: Any) -> bool:
    """Whether a value that is no tensor enters a key as it is.

    Beside numbers and texts these are values whose equality is identity (a framework's dtypes); their type is
    remembered.
    """
    kind = type(value)
    if kind not in ATOMS:
        hasher: Any = kind.__hash__
        if hasher is not object.__hash__:
            return False
        ATOMS.add(kind)
    return True


def freeze(op_name: str, value: Any) -> Any:
    """A hashable stand-in for a static value that is equal only for the same value of the same type.

    Raises:
        ValueError: If the value cannot be hashed; names the operation and the value.
    """
    kind = type(value)
    if kind in ATOMS:
        return value
    if isinstance(value, DTensor) or get_platform().is_tensor(value):
        raise ValueError(f"{op_name}: a tensor among cache_values; pass its layout, or a static value")
    if isinstance(value, tuple):
        return tuple([(type(item), freeze(op_name, item)) for item in value])
    if isinstance(value, slice):
        return freeze(op_name, (value.start, value.stop, value.step))
    if isinstance(value, numbers.Number) and not isinstance(value, int):
        # 0.0 equals -0.0 and no nan equals itself; their texts tell what is the same.
        return repr(value)
    if is_atom(value):
        return value
    try:
        hash(value)
    except TypeError:
        raise ValueError(
            f"{op_name}: the static value {value!r} of type {kind.__name__} cannot be part of a cache key; "
            "preprocess must pass a hashable value (a tuple for a list)"
        ) from None
    return value


class CacheInfo(NamedTuple):
    """Statistics of one operation's table."""

    hits: int
    misses: int
    entries: int
    limit: int


class OpTable:
    """One operation: its strategy and its finished inferences.

    Ranks may be threads: a lookup is one dictionary step, changes hold a lock. The hit counter is a
    statistic and takes none.

    Attributes:
        op: The strategy, or None for an operation without one.
        run: What runs an operation without a strategy.
        entries: Inference by `LayoutCacheKey`; oldest first.
        plans: Ready plans by the form of the call; each belongs to an inference.
        hits: Calls that found their entry.
        misses: Calls that did not.
    """

    __slots__ = ("_limit", "_lock", "entries", "hits", "misses", "op", "plans", "run")

    def __init__(
        self, op: DistributedOp | None, run: Callable[..., Any], limit: int = ENTRIES_PER_OP
    ) -> None:
        self.op = op
        self.run = run
        self.entries: dict[Any, Record] = {}
        self.plans: dict[tuple[Any, ...], CallPlan] = {}
        self.hits = 0
        self.misses = 0
        self._limit = limit
        self._lock = threading.Lock()

    def add(self, content: tuple[Any, ...], record: Record) -> None:
        """Keep an inference; the oldest one goes when the table is full."""
        with self._lock:
            self.misses += 1
            if len(self.entries) >= self._limit:
                _make_room(self.entries, self._limit)
            self.entries[LayoutCacheKey(content)] = record

    def keep(self, form: tuple[Any, ...], plan: CallPlan) -> None:
        """Keep the plan of a form of call; the oldest one goes when there are too many."""
        with self._lock:
            if len(self.plans) >= self._limit:
                _make_room(self.plans, self._limit)
            self.plans[form] = plan

    def clear(self) -> None:
        """Forget the entries and the statistics."""
        with self._lock:
            self.entries = {}
            self.plans = {}
            self.hits = self.misses = 0

    def info(self) -> CacheInfo:
        """Hits, misses and size."""
        return CacheInfo(self.hits, self.misses, len(self.entries), self._limit)


def _make_room(table: dict[Any, Any], limit: int) -> None:
    while len(table) >= limit:
        del table[next(iter(table))]
