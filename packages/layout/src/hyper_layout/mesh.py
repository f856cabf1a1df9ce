"""DeviceMesh: the ranks of a job arranged in named axes. Arithmetic only: no framework, no process group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from hashlib import sha256
from itertools import pairwise
from math import prod
from operator import index
from types import TracebackType
from typing import Any, TypeAlias

from hyper_layout.errors import LayoutError

Axis: TypeAlias = str | int
"""A mesh axis by name, or by position (negative positions count from the end)."""

_Content: TypeAlias = tuple[str, tuple[int, ...], tuple[str, ...], tuple[int, ...]]


def _rank_zero() -> int:
    return 0


_NO_PLATFORM = "no platform is chosen: install an adapter or call hyper_dtensor.set_platform()"


def _no_groups(mesh: DeviceMesh, axis: int) -> Any:
    raise RuntimeError(f"{mesh!r} has no process groups, because {_NO_PLATFORM}")


def _no_ranks(group: Any) -> tuple[int, ...]:
    raise RuntimeError(f"the ranks of {group!r} are not known, because {_NO_PLATFORM}")


_rank_source: Callable[[], int] = _rank_zero
_group_source: Callable[[DeviceMesh, int], Any] = _no_groups
_group_ranks: Callable[[Any], tuple[int, ...]] = _no_ranks
_entered: ContextVar[tuple[DeviceMesh, ...]] = ContextVar("hyper_layout_entered_meshes", default=())
_INTERNED: dict[_Content, DeviceMesh] = {}


def set_rank_source(source: Callable[[], int]) -> None:
    """Sets where ``rank=None`` comes from. The chosen platform calls this.

    Args:
        source: Returns the global rank of the caller: of this process, or of this thread where ranks are
            threads.
    """
    global _rank_source
    _rank_source = source


def current_rank() -> int:
    """The global rank of the caller; 0 as long as no platform has said otherwise."""
    return _rank_source()


def set_group_source(
    source: Callable[[DeviceMesh, int], Any], ranks: Callable[[Any], tuple[int, ...]] = _no_ranks
) -> None:
    """Sets what ``DeviceMesh.get_group`` and ``DeviceMesh.from_group`` use. The chosen platform calls this.

    Args:
        source: Gets a mesh and an axis position and returns the framework's group of the current rank.
        ranks: Gets the framework's group and returns its global ranks in order.
    """
    global _group_source, _group_ranks
    _group_source, _group_ranks = source, ranks


def current_mesh() -> DeviceMesh | None:
    """The mesh of the innermost ``with mesh:`` block around the caller, or None outside of any."""
    entered = _entered.get()
    return entered[-1] if entered else None


class DeviceMesh:
    """Ranks arranged as an n-dimensional array with named axes.

    Interned by content: the same device type, shape, names and ranks give the same object, also after
    pickling and copying, so equality is identity and every rank counts in it.

    Args:
        device_type: The kind of device, such as ``"cpu"``, ``"cuda"`` or ``"npu"``.
        mesh_shape: The size of each axis, at least one axis.
        mesh_dim_names: The name of each axis; ``dim_0``, ``dim_1``, ... if not given.
        rank_list: The global ranks in row-major order; ``0 .. size - 1`` if not given.

    Raises:
        LayoutError: If the shape is empty or not positive, if the names are not one plain and different word
            per axis, or if the ranks are not as many different non-negative numbers as the mesh has places.
    """

    __slots__ = (
        "__weakref__",
        "_coordinates",
        "_lines",
        "_positions",
        "_slices",
        "_strides",
        "device_type",
        "mesh_dim_names",
        "mesh_shape",
        "ndim",
        "rank_list",
    )
    device_type: str
    mesh_shape: tuple[int, ...]
    mesh_dim_names: tuple[str, ...]
    rank_list: tuple[int, ...]
    ndim: int
    _positions: dict[str, int]
    _lines: dict[tuple[Axis, int], tuple[int, ...]]
    """Results of `ranks_along`, by axis as it was written and rank."""
    _strides: tuple[int, ...]
    _coordinates: dict[int, tuple[int, ...]]
    _slices: dict[tuple[tuple[str, ...], int], DeviceMesh]

    def __new__(
        cls,
        device_type: str,
        mesh_shape: Iterable[int],
        mesh_dim_names: Iterable[str] | None = None,
        rank_list: Iterable[int] | None = None,
    ) -> DeviceMesh:
        """Returns the one mesh of this content."""
        shape = tuple(index(size) for size in mesh_shape)
        _check_shape(shape)
        names = _default_names(len(shape)) if mesh_dim_names is None else tuple(mesh_dim_names)
        _check_names(names, shape)
        size = prod(shape)
        ranks = tuple(range(size)) if rank_list is None else tuple(index(rank) for rank in rank_list)
        content = (device_type, shape, names, ranks)
        known = _INTERNED.get(content)
        if known is None:
            _check_ranks(ranks, shape)
            # setdefault is atomic, so that threads which race for one content all get the same object.
            known = _INTERNED.setdefault(content, _fresh(content))
        return known

    # -- axes ------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis; the same as ``mesh_shape``."""
        return self.mesh_shape

    def axis_index(self, axis: Axis) -> int:
        """The position of an axis.

        Args:
            axis: A name or a position; a negative position counts from the end.

        Raises:
            LayoutError: If the mesh has no such axis; the message names those it has.
        """
        if isinstance(axis, str):
            position = self._positions.get(axis)
            if position is not None:
                return position
        else:
            position = index(axis)
            if -self.ndim <= position < self.ndim:
                return position % self.ndim
        raise LayoutError(
            f"mesh axis {axis!r} is not known: this mesh has {', '.join(map(repr, self.mesh_dim_names))}"
        )

    def size(self, axis: Axis | None = None) -> int:
        """The number of ranks along ``axis``, or of the whole mesh."""
        return len(self.rank_list) if axis is None else self.mesh_shape[self.axis_index(axis)]

    def get_device_num_along_axis(self, axis: Axis) -> int:
        """The number of ranks along ``axis``."""
        return self.mesh_shape[self.axis_index(axis)]

    # -- ranks -----------------------------------------------------------------------------------------

    def get_rank(self) -> int:
        """The global rank of the caller, as ``current_rank()``; the mesh may not hold it."""
        return current_rank()

    def get_coordinate(self, rank: int | None = None) -> tuple[int, ...] | None:
        """The coordinate of a rank on every axis, or None if the mesh does not hold it.

        Args:
            rank: A global rank; the current one if not given.
        """
        return self._coordinates.get(current_rank() if rank is None else rank)

    def get_local_rank(self, axis: Axis | None = None, rank: int | None = None) -> int:
        """The coordinate of a rank on one axis.

        Args:
            axis: The axis; may be left out on a mesh of one axis.
            rank: A global rank; the current one if not given.

        Raises:
            LayoutError: If the mesh does not hold the rank, or has several axes and none was given.
        """
        coordinate = self._coordinates.get(_rank_source() if rank is None else rank)
        if coordinate is None:
            coordinate = self._coordinate_of(rank)  # which refuses it
        if axis.__class__ is int and 0 <= axis < len(coordinate):
            return coordinate[axis]
        return coordinate[self._only_axis() if axis is None else self.axis_index(axis)]

    def ranks_along(self, axis: Axis, rank: int | None = None) -> tuple[int, ...]:
        """The ranks of the line through ``rank`` along ``axis``, in the order of their coordinates.

        Raises:
            LayoutError: If the mesh does not hold the rank.
        """
        rank = _rank_source() if rank is None else rank
        line = self._lines.get((axis, rank))
        if line is None:
            position = self.axis_index(axis)
            coordinate = self._coordinate_of(rank)
            stride = self._strides[position]
            place = sum(c * s for c, s in zip(coordinate, self._strides, strict=True))
            start = place - coordinate[position] * stride
            line = tuple(self.rank_list[start + i * stride] for i in range(self.mesh_shape[position]))
            self._lines[axis, rank] = line
        return line

    def groups_along(self, axis: Axis) -> tuple[tuple[int, ...], ...]:
        """All lines of ranks along ``axis``; each rank of the mesh is in exactly one."""
        position = self.axis_index(axis)
        firsts = (rank for rank, coordinate in self._coordinates.items() if coordinate[position] == 0)
        return tuple(self.ranks_along(position, rank) for rank in firsts)

    def get_group(self, axis: Axis | None = None) -> Any:
        """The framework's process group of the current rank along ``axis``.

        Args:
            axis: The axis; may be left out on a mesh of one axis.

        Raises:
            RuntimeError: If no platform is chosen.
        """
        return _group_source(self, self._only_axis() if axis is None else self.axis_index(axis))

    @classmethod
    def from_group(
        cls, group: Any, device_type: str, mesh_dim_names: Sequence[str] | None = None
    ) -> DeviceMesh:
        """The mesh of one axis over the ranks of the framework's process group.

        Args:
            group: The group; the current rank is one of it.
            device_type: The kind of device.
            mesh_dim_names: The name of the axis, in a sequence of one.

        Raises:
            RuntimeError: If no platform is chosen.
        """
        ranks = _group_ranks(group)
        return cls(device_type, (len(ranks),), mesh_dim_names, ranks)

    # -- other meshes ----------------------------------------------------------------------------------

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """The part of this mesh that spans the named axes and holds the current rank.

        Args:
            names: One axis name or several, in the order of this mesh.

        Raises:
            LayoutError: If an axis is unknown or named twice, if the order is not that of the mesh, or if the
                mesh does not hold the current rank.
        """
        wanted = (names,) if isinstance(names, str) else tuple(names)
        rank = current_rank()
        known = self._slices.get((wanted, rank))
        if known is None:
            known = self._slices.setdefault((wanted, rank), self._slice(wanted, rank))
        return known

    def flatten(self, name: str | None = None) -> DeviceMesh:
        """The same ranks along one axis, in row-major order.

        Args:
            name: The name of the axis; the names of this mesh joined by ``_`` if not given.
        """
        return DeviceMesh(
            self.device_type, (self.size(),), (name or "_".join(self.mesh_dim_names),), self.rank_list
        )

    def _slice(self, wanted: tuple[str, ...], rank: int) -> DeviceMesh:
        positions = tuple(self.axis_index(name) for name in wanted)
        if not positions or any(a >= b for a, b in pairwise(positions)):
            raise LayoutError(
                f"mesh[{', '.join(map(repr, wanted))}]: name each axis once, in the order of the mesh "
                f"({', '.join(map(repr, self.mesh_dim_names))})"
            )
        here = self._coordinate_of(rank)
        fixed = [axis for axis in range(self.ndim) if axis not in positions]
        ranks = (
            other
            for other, there in self._coordinates.items()
            if all(there[axis] == here[axis] for axis in fixed)
        )
        return DeviceMesh(self.device_type, (self.mesh_shape[axis] for axis in positions), wanted, ranks)

    # -- the current mesh ------------------------------------------------------------------------------

    def __enter__(self) -> DeviceMesh:
        # A mesh is shared by all who made it, so what to go back to is kept in the context, not on it.
        _entered.set((*_entered.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _entered.set(_entered.get()[:-1])

    # -- a value ---------------------------------------------------------------------------------------

    def to_hash(self) -> str:
        """A digest of the whole content, equal in every process and Python version."""
        content = (self.device_type, self.mesh_shape, self.mesh_dim_names, self.rank_list)
        return sha256(repr(content).encode()).hexdigest()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a DeviceMesh is immutable: make a new one instead of setting {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a DeviceMesh is immutable: {name!r} cannot be deleted")

    def __copy__(self) -> DeviceMesh:
        return self

    def __deepcopy__(self, memo: object) -> DeviceMesh:
        return self

    def __reduce__(self) -> tuple[type[DeviceMesh], _Content]:
        return DeviceMesh, (self.device_type, self.mesh_shape, self.mesh_dim_names, self.rank_list)

    def __repr__(self) -> str:
        axes = ", ".join(f"{n}={s}" for n, s in zip(self.mesh_dim_names, self.mesh_shape, strict=True))
        return f"DeviceMesh({self.device_type}: {axes}; ranks {describe_ranks(self.rank_list)})"

    # -- helpers ---------------------------------------------------------------------------------------

    def _coordinate_of(self, rank: int | None) -> tuple[int, ...]:
        rank = current_rank() if rank is None else rank
        coordinate = self._coordinates.get(rank)
        if coordinate is None:
            raise LayoutError(f"rank {rank} is not in {self!r}")
        return coordinate

    def _only_axis(self) -> int:
        if self.ndim > 1:
            raise LayoutError(
                f"this mesh has the axes {', '.join(map(repr, self.mesh_dim_names))}: say which one is meant"
            )
        return 0


def mesh_for_rank(
    device_type: str,
    mesh_shape: Iterable[int],
    mesh_dim_names: Iterable[str] | None,
    rank_list: Iterable[int] | None,
    world_size: int,
    rank: int,
) -> DeviceMesh:
    """The mesh that ``rank`` gets when every rank of a world asks for a mesh of the same shape.

    A mesh smaller than the world puts rank r into the block that starts at ``r - r % size``. A given
    ``rank_list`` is taken as it is.

    Args:
        device_type: The kind of device.
        mesh_shape: The size of each axis.
        mesh_dim_names: The name of each axis, or None.
        rank_list: The global ranks in row-major order, or None for the block of ``rank``.
        world_size: The number of ranks of the job.
        rank: The rank that asks.

    Raises:
        LayoutError: If the mesh is larger than the world, the world not a multiple of the mesh, or a listed
            rank not in the world.
    """
    shape = tuple(index(size) for size in mesh_shape)
    _check_shape(shape)
    if rank_list is not None:
        ranks = tuple(rank_list)
        outside = [r for r in ranks if not 0 <= r < world_size]
        if outside:
            raise LayoutError(
                f"rank_list names the ranks {outside}, but the world has the ranks 0 to {world_size - 1}: "
                f"start {max(outside) + 1} processes or list other ranks"
            )
        return DeviceMesh(device_type, shape, mesh_dim_names, ranks)
    size = prod(shape)
    if size > world_size:
        raise LayoutError(
            f"a mesh of shape {shape} needs {size} ranks, but the world has {world_size}: "
            f"start {size} processes (with torchrun or msrun) or use a smaller mesh"
        )
    if world_size % size:
        below = world_size - world_size % size
        raise LayoutError(
            f"a mesh of shape {shape} has {size} ranks, and the {world_size} ranks of the world do not "
            f"divide into such blocks: start {below} or {below + size} processes, or say with rank_list "
            "which ranks form the mesh"
        )
    start = rank - rank % size
    return DeviceMesh(device_type, shape, mesh_dim_names, range(start, start + size))


def describe_ranks(ranks: tuple[int, ...]) -> str:
    """The ranks as exact, short text: ``0..7``, ``1..7:2`` (every second one) or ``0,3,5``."""
    step = ranks[1] - ranks[0] if len(ranks) > 2 else 0
    if step > 0 and ranks == tuple(range(ranks[0], ranks[-1] + 1, step)):
        return f"{ranks[0]}..{ranks[-1]}" + (f":{step}" if step > 1 else "")
    return ",".join(map(str, ranks))


def _fresh(content: _Content) -> DeviceMesh:
    device_type, shape, names, ranks = content
    strides = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
    coordinates = {
        rank: tuple(place // stride % size for stride, size in zip(strides, shape, strict=True))
        for place, rank in enumerate(ranks)
    }
    mesh = object.__new__(DeviceMesh)
    for name, value in (
        ("device_type", device_type),
        ("mesh_shape", shape),
        ("mesh_dim_names", names),
        ("rank_list", ranks),
        ("ndim", len(shape)),
        ("_positions", {name: position for position, name in enumerate(names)}),
        ("_lines", {}),
        ("_strides", strides),
        ("_coordinates", coordinates),
        ("_slices", {}),
    ):
        object.__setattr__(mesh, name, value)
    return mesh


def _default_names(ndim: int) -> tuple[str, ...]:
    return tuple(f"dim_{axis}" for axis in range(ndim))


def _check_shape(shape: tuple[int, ...]) -> None:
    if not shape or min(shape) < 1:
        raise LayoutError(f"a mesh needs at least one axis and sizes of at least 1, but got shape {shape}")


def _check_names(names: tuple[str, ...], shape: tuple[int, ...]) -> None:
    if len(names) != len(shape):
        raise LayoutError(f"a mesh of shape {shape} needs {len(shape)} axis names, but got {names}")
    if len(set(names)) != len(names):
        raise LayoutError(f"the axes of a mesh need different names, but got {names}")
    for name in names:
        # Names stand in the notation ("dp:S(0)") and are keywords of redistribute(tp=...). "None" is what
        # stands for "not split" where axes are named per tensor dim.
        if not name.isidentifier() or name == "None":
            raise LayoutError(f"a mesh axis is named by an identifier other than 'None', but got {name!r}")


def _check_ranks(ranks: tuple[int, ...], shape: tuple[int, ...]) -> None:
    if len(ranks) != prod(shape):
        raise LayoutError(f"a mesh of shape {shape} has {prod(shape)} ranks, but rank_list has {len(ranks)}")
    if len(set(ranks)) != len(ranks) or min(ranks) < 0:
        raise LayoutError(f"rank_list needs different ranks that are not negative, but got {ranks}")
