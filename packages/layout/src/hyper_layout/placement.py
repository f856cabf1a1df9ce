"""What one mesh axis does to a tensor: the placements.

Placements are values: immutable, and interned, so that equal content is the same object. Equality is
identity and hashing is that of the address, which keeps every cache key built from placements cheap.
"""

from __future__ import annotations

import re
from operator import index
from typing import Final, NoReturn

from hyper_layout.errors import LayoutError

REDUCE_OPS: Final = ("sum", "avg", "max", "min", "prod")
"""The reductions a ``Partial`` can wait for."""


class Placement:
    """Base of ``Replicate``, ``Shard``, ``StridedShard`` and ``Partial``."""

    __slots__ = ()

    def is_replicate(self) -> bool:
        """Whether every rank of the axis holds the same values."""
        return False

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether the axis splits a tensor dim (the dim ``dim``, where one is given).

        True for ``StridedShard`` too: it splits the same dim, only in another order of the axes.
        """
        return False

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether the ranks of the axis hold addends of the value (for ``reduce_op``, where one is given)."""
        return False

    @property
    def notation(self) -> str:
        """The short form: ``R``, ``S(0)``, ``SS(0, 2)``, ``P(sum)``."""
        raise NotImplementedError

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{self!r} is immutable: make a new placement instead of setting {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{self!r} is immutable: {name!r} cannot be deleted")

    def __iter__(self) -> NoReturn:
        # One placement where a list is wanted: the error of `tuple(Shard(0))` would not say so.
        raise TypeError(f"placements are a list, one per mesh axis: write [{self!r}] instead of {self!r}")

    def __copy__(self) -> Placement:
        return self

    def __deepcopy__(self, memo: object) -> Placement:
        return self


class Replicate(Placement):
    """Every rank of the axis holds the same values."""

    __slots__ = ()
    _only: Replicate

    def __new__(cls) -> Replicate:
        """Returns the one Replicate."""
        return cls._only

    def is_replicate(self) -> bool:
        """True."""
        return True

    @property
    def notation(self) -> str:
        """The short form."""
        return "R"

    def __repr__(self) -> str:
        return "Replicate()"

    def __reduce__(self) -> tuple[type[Replicate], tuple[()]]:
        return Replicate, ()


Replicate._only = object.__new__(Replicate)


class Shard(Placement):
    """The axis splits tensor dim ``dim`` into equal blocks, one per rank in the order of the coordinates.

    Args:
        dim: The tensor dim. A negative one counts from the end; a layout normalises it.
    """

    __slots__ = ("dim",)
    dim: int

    def __new__(cls, dim: int) -> Shard:
        """Returns the one Shard of this dim."""
        dim = index(dim)
        known = _SHARDS.get(dim)
        if known is None:
            fresh = object.__new__(Shard)
            object.__setattr__(fresh, "dim", dim)
            # setdefault is atomic, so that threads which race for one dim all get the same object.
            known = _SHARDS.setdefault(dim, fresh)
        return known

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether the dim is ``dim``; True if none is given."""
        return dim is None or dim == self.dim

    @property
    def notation(self) -> str:
        """The short form."""
        return f"S({self.dim})"

    def __repr__(self) -> str:
        return f"Shard(dim={self.dim})"

    def __reduce__(self) -> tuple[type[Shard], tuple[int, ...]]:
        return Shard, (self.dim,)


class StridedShard(Shard):
    """The axis splits ``dim`` inside the blocks that axes right of it have cut.

    ``Shard`` on two axes cuts from left to right. ``StridedShard(dim, split_factor)`` says that axes to the
    right, whose sizes multiply to ``split_factor``, cut ``dim`` before this one does. It is a ``Shard``, as
    it splits the same dim; only the order of the axes differs.

    Args:
        dim: The tensor dim. A negative one counts from the end; a layout normalises it.
        split_factor: The number of blocks that the axes right of this one make first; at least 1.

    Raises:
        LayoutError: If ``split_factor`` is below 1.
    """

    __slots__ = ("split_factor",)
    split_factor: int

    def __new__(cls, dim: int, split_factor: int) -> StridedShard:
        """Returns the one StridedShard of this content."""
        dim, split_factor = index(dim), index(split_factor)
        if split_factor < 1:
            raise LayoutError(f"StridedShard needs a split_factor of at least 1, but got {split_factor}")
        known = _STRIDED_SHARDS.get((dim, split_factor))
        if known is None:
            fresh = object.__new__(StridedShard)
            object.__setattr__(fresh, "dim", dim)
            object.__setattr__(fresh, "split_factor", split_factor)
            known = _STRIDED_SHARDS.setdefault((dim, split_factor), fresh)
        return known

    @property
    def notation(self) -> str:
        """The short form."""
        return f"SS({self.dim}, {self.split_factor})"

    def __repr__(self) -> str:
        return f"StridedShard(dim={self.dim}, split_factor={self.split_factor})"

    def __reduce__(self) -> tuple[type[Shard], tuple[int, ...]]:
        return StridedShard, (self.dim, self.split_factor)


class Partial(Placement):
    """Each rank of the axis holds one addend; their reduction over the axis is the value.

    Args:
        reduce_op: How the addends combine: ``"sum"``, ``"avg"``, ``"max"``, ``"min"`` or ``"prod"``.

    Raises:
        LayoutError: If ``reduce_op`` is none of these.
    """

    __slots__ = ("reduce_op",)
    reduce_op: str

    def __new__(cls, reduce_op: str = "sum") -> Partial:
        """Returns the one Partial of this reduction."""
        known = _PARTIALS.get(reduce_op)
        if known is None:
            raise LayoutError(f"Partial knows the reduce_op {', '.join(REDUCE_OPS)}, but got {reduce_op!r}")
        return known

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether the reduction is ``reduce_op``; True if none is given."""
        return reduce_op is None or reduce_op == self.reduce_op

    @property
    def notation(self) -> str:
        """The short form."""
        return f"P({self.reduce_op})"

    def __repr__(self) -> str:
        return f"Partial(reduce_op={self.reduce_op!r})"

    def __reduce__(self) -> tuple[type[Partial], tuple[str]]:
        return Partial, (self.reduce_op,)


def parse_placement(text: str) -> Placement:
    """Reads the short form of one placement, the inverse of ``Placement.notation``.

    Args:
        text: ``R``, ``S(0)``, ``SS(0, 2)`` or ``P(sum)``, for which ``P`` is short.

    Raises:
        LayoutError: If the text is none of these.
    """
    found = _NOTATION.fullmatch(text)
    if found is None:
        raise LayoutError(f"{text!r} is no placement: write R, S(0), SS(0, 2), P or P(sum)")
    if found[1] is not None:
        return Shard(int(found[1]))
    if found[2] is not None:
        return StridedShard(int(found[2]), int(found[3]))
    if text == "P":
        return Partial()
    return Replicate() if found[4] is None else Partial(found[4])


def commute(reduce_op: str, other: str) -> bool:
    """Whether Partials of these two reductions, on two axes, give one value whichever is reduced first.

    Sum and avg do, being linear; otherwise only equal reductions do.
    """
    return reduce_op == other or {reduce_op, other} <= {"sum", "avg"}


def _all_partials() -> dict[str, Partial]:
    partials = {}
    for reduce_op in REDUCE_OPS:
        partials[reduce_op] = object.__new__(Partial)
        object.__setattr__(partials[reduce_op], "reduce_op", reduce_op)
    return partials


_NOTATION: Final = re.compile(r"R|S\((-?\d+)\)|SS\((-?\d+), ?(\d+)\)|P\((\w+)\)|P")
_SHARDS: dict[int, Shard] = {}
_STRIDED_SHARDS: dict[tuple[int, int], StridedShard] = {}
_PARTIALS: dict[str, Partial] = _all_partials()
