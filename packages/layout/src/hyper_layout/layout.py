"""Layout: how a tensor of a given rank lies on a mesh. An immutable, interned value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from operator import index
from typing import Any, TypeAlias, cast, overload

from hyper_layout.errors import LayoutError
from hyper_layout.mesh import Axis, DeviceMesh, describe_ranks
from hyper_layout.order import DimAxes, dim_axes_of, placements_of
from hyper_layout.placement import Placement, Replicate, Shard, StridedShard, commute, parse_placement

AxisNames: TypeAlias = str | tuple[str, ...]
"""What splits one tensor dim, by name: ``"None"``, an axis, or axes with the major one first."""

# Every way of writing a layout that was seen (dims negative or not ...) leads to the one object.
_INTERNED: dict[tuple[DeviceMesh, tuple[Placement, ...], int], Layout] = {}
_BY_AXES: dict[tuple[Any, ...], Layout] = {}
_TEMPLATES: dict[DeviceMesh, LayoutTemplate] = {}


class Layout:
    """A mesh, one placement per mesh axis, and the rank of the tensor.

    Interned: equal content is the same object, also after pickling and copying, so equality is identity and
    hashing is free. Several mesh axes may split one dim; ``hyper_layout.order`` says how placements tell
    their order.

    ``Layout(mesh, placements, tensor_ndim)`` makes one from placements. With ``mesh_shape=`` and
    ``alias_name=`` instead, it makes a template, which is called with the axes of each dim:
    ``Layout(mesh_shape=(2, 2), alias_name=("dp", "tp"))("dp", "None")``.

    Args:
        mesh: The mesh.
        placements: One placement per mesh axis. Negative dims count from the end.
        tensor_ndim: The rank of the tensor.
        mesh_shape: For a template: the size of each mesh axis.
        alias_name: For a template: the name of each mesh axis.
        rank_list: For a template: the ranks of the mesh.
        device_type: For a template: the kind of device.

    Attributes:
        mesh: The mesh.
        mesh_shape: The size of each mesh axis.
        placements: One per mesh axis, dims from 0, ``StridedShard`` exactly where the order needs it.
        ndim: The rank of the tensor.
        dim_axes: Per tensor dim the positions of the mesh axes that split it, major first.
        shard_counts: Per tensor dim the number of blocks, the product of the sizes of its axes.
        partial: Per mesh axis the reduce op that its ranks wait for, or None.
        tensor_map: Per tensor dim what splits it in MindSpore's numbering: mesh axes counted from the right,
            -1 for not split, a tuple (major first) where several axes split one dim.
        alias_tensor_map: The same by name: ``"None"``, a name or a tuple of names.
        repeat_num: The number of ranks that hold one block: the product of the sizes of the axes that
            split no dim.
        is_replicated: Whether every axis is Replicate.
        shard_axes: Bit mask of the mesh axes that split a dim; bit a is axis a.
        partial_axes: Bit mask of the Partial axes.
        replicate_axes: Bit mask of the Replicate axes.
        notation: The placements as text: ``dp:S(0) tp:P(sum)``.
        compact_str: The whole content as text, the mesh included; equal exactly for equal layouts.

    Raises:
        LayoutError: If there is not one placement per mesh axis, a dim is out of range, a ``split_factor``
            fits no order, or Partials that do not commute (sum with max) meet, whose value would
            depend on which axis is reduced first.
        TypeError: If ``placements`` holds something else than placements.
    """

    __slots__ = (
        "__weakref__",
        "alias_tensor_map",
        "compact_str",
        "dim_axes",
        "is_replicated",
        "mesh",
        "mesh_shape",
        "ndim",
        "notation",
        "partial",
        "partial_axes",
        "placements",
        "repeat_num",
        "replicate_axes",
        "shard_axes",
        "shard_counts",
        "tensor_map",
    )
    mesh: DeviceMesh
    mesh_shape: tuple[int, ...]
    placements: tuple[Placement, ...]
    ndim: int
    dim_axes: DimAxes
    shard_counts: tuple[int, ...]
    partial: tuple[str | None, ...]
    tensor_map: tuple[int | tuple[int, ...], ...]
    alias_tensor_map: tuple[AxisNames, ...]
    repeat_num: int
    is_replicated: bool
    shard_axes: int
    partial_axes: int
    replicate_axes: int
    notation: str
    compact_str: str

    @overload
    def __new__(cls, mesh: DeviceMesh, placements: Iterable[Placement], tensor_ndim: int) -> Layout: ...
    @overload
    def __new__(  # type: ignore[misc]  # a template is not a layout yet, but is made by the same name
        cls,
        *,
        mesh_shape: Iterable[int],
        alias_name: Iterable[str] | None = None,
        rank_list: Iterable[int] | None = None,
        device_type: str = "cpu",
    ) -> LayoutTemplate: ...
    def __new__(
        cls,
        mesh: DeviceMesh | None = None,
        placements: Iterable[Placement] | None = None,
        tensor_ndim: int | None = None,
        *,
        mesh_shape: Iterable[int] | None = None,
        alias_name: Iterable[str] | None = None,
        rank_list: Iterable[int] | None = None,
        device_type: str = "cpu",
    ) -> Any:
        """Returns the one layout, or template, of this content."""
        if mesh is not None and placements is not None and tensor_ndim is not None:
            return Layout.from_placements(mesh, placements, tensor_ndim)
        if mesh is None and placements is None and tensor_ndim is None and mesh_shape is not None:
            return LayoutTemplate(DeviceMesh(device_type, mesh_shape, alias_name, rank_list))
        raise TypeError("Layout takes mesh, placements and tensor_ndim, or mesh_shape and alias_name")

    # -- making one ------------------------------------------------------------------------------------

    @staticmethod
    def from_placements(mesh: DeviceMesh, placements: Iterable[Placement], ndim: int) -> Layout:
        """The layout of these placements; one dictionary step for a tuple seen before."""
        if placements.__class__ is not tuple:
            placements = tuple(placements)
        known = _INTERNED.get((mesh, placements, ndim))
        return known if known is not None else _intern(mesh, placements, index(ndim))

    @staticmethod
    def from_device_mesh(mesh: DeviceMesh) -> LayoutTemplate:
        """A template on ``mesh``: call it with the axes of each tensor dim."""
        return LayoutTemplate(mesh)

    @staticmethod
    def from_dim_axes(
        mesh: DeviceMesh, dim_axes: Iterable[Iterable[int]], partial: Iterable[str | None] | None = None
    ) -> Layout:
        """The layout in which these axes split each dim; the inverse of ``dim_axes`` and ``partial``.

        Args:
            mesh: The mesh.
            dim_axes: Per tensor dim the positions of the mesh axes that split it, major first.
            partial: Per mesh axis the reduce op it waits for, or None. No axis is Partial if not given.

        Raises:
            LayoutError: If an axis is unknown, is named twice, or both splits a dim and is Partial.
        """
        if type(dim_axes) is tuple and type(partial) is tuple:
            try:
                return _BY_AXES[mesh, dim_axes, partial]
            except (KeyError, TypeError):
                pass  # not seen before, or lists among the dims
        axes = tuple(tuple(mesh.axis_index(axis) for axis in of_dim) for of_dim in dim_axes)
        waiting = (None,) * mesh.ndim if partial is None else tuple(partial)
        if len(waiting) != mesh.ndim:
            raise LayoutError(f"partial needs one entry per mesh axis ({mesh.ndim}), but got {waiting}")
        used = [axis for of_dim in axes for axis in of_dim]
        used += [axis for axis, reduce_op in enumerate(waiting) if reduce_op is not None]
        twice = sorted({axis for axis in used if used.count(axis) > 1})
        if twice:
            raise LayoutError(
                f"mesh axis {mesh.mesh_dim_names[twice[0]]!r} is used more than once: "
                "it can split one dim, once, or be Partial"
            )
        made = Layout.from_placements(mesh, placements_of(axes, waiting, mesh), len(axes))
        _BY_AXES[mesh, axes, waiting] = made
        return made

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> Layout:
        """The layout that ``to_dict`` wrote."""
        mesh = DeviceMesh(
            content["device_type"], content["mesh_shape"], content["mesh_dim_names"], content["rank_list"]
        )
        return Layout.from_placements(mesh, map(parse_placement, content["placements"]), content["ndim"])

    def to_dict(self) -> dict[str, Any]:
        """The whole content as plain strings, numbers and lists, fit for JSON."""
        return {
            "device_type": self.mesh.device_type,
            "mesh_shape": list(self.mesh_shape),
            "mesh_dim_names": list(self.mesh.mesh_dim_names),
            "rank_list": list(self.mesh.rank_list),
            "placements": [placement.notation for placement in self.placements],
            "ndim": self.ndim,
        }

    def with_placements(self, placements: Iterable[Placement], ndim: int | None = None) -> Layout:
        """The layout of other placements on the same mesh, for tensors of this rank or of rank ``ndim``."""
        return Layout.from_placements(self.mesh, placements, self.ndim if ndim is None else ndim)

    def replace(self, axis: Axis, placement: Placement) -> Layout:
        """The layout in which one mesh axis has another placement.

        The other axes keep their order, whatever ``StridedShard`` that takes. The axis enters the dim it now
        splits as ``hyper_layout.order`` says of the axes right of it.

        Args:
            axis: The mesh axis.
            placement: Its new placement.

        Raises:
            LayoutError: If the axis is unknown, or the placement not possible there.
        """
        position = self.mesh.axis_index(axis)
        partial = tuple(None if a == position else op for a, op in enumerate(self.partial))
        others = [[a for a in axes if a != position] for axes in self.dim_axes]
        rest = Layout.from_dim_axes(self.mesh, others, partial)
        # Read among the axes right of it alone, the new placement tells the place of its axis.
        right = rest.placements[position + 1 :]
        left: tuple[Placement, ...] = (Replicate(),) * position
        alone = Layout.from_placements(self.mesh, (*left, placement, *right), self.ndim)
        for dim, axes in enumerate(alone.dim_axes):
            if position in axes:
                before = axes[: axes.index(position)]
                behind = axes[len(before) + 1 :]
                if before:
                    place = others[dim].index(before[-1]) + 1
                else:
                    place = others[dim].index(behind[0]) if behind else len(others[dim])
                others[dim].insert(place, position)
        partial = (*partial[:position], alone.partial[position], *partial[position + 1 :])
        return Layout.from_dim_axes(self.mesh, others, partial)

    # -- shapes ----------------------------------------------------------------------------------------

    def check_even(self, global_shape: Sequence[int]) -> None:
        """Refuses a shape that this layout does not cut into equal blocks.

        Raises:
            LayoutError: If the shape has another rank, or a dim does not divide; the message names the dim,
                its size, the axes and the two nearest sizes that would do.
        """
        if len(global_shape) != self.ndim:
            raise LayoutError(
                f"{self.notation!r} is a layout of tensors of rank {self.ndim}, but got {tuple(global_shape)}"
            )
        for dim, (size, count) in enumerate(zip(global_shape, self.shard_counts, strict=True)):
            if size % count:
                names, sizes = self.mesh.mesh_dim_names, self.mesh_shape
                axes = " x ".join(f"{names[axis]!r} (size {sizes[axis]})" for axis in self.dim_axes[dim])
                below = max(size - size % count, count)
                above = size - size % count + count if size > count else 2 * count
                raise LayoutError(
                    f"dim {dim} of size {size} cannot be split into {count} equal blocks over mesh axis "
                    f"{axes}: the nearest sizes that can are {below} and {above}"
                )

    def local_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the block of each rank.

        Args:
            global_shape: The shape of the whole tensor, of rank ``ndim``.

        Raises:
            LayoutError: If a dim does not divide (see ``check_even``).
        """
        self.check_even(global_shape)
        return tuple(size // count for size, count in zip(global_shape, self.shard_counts, strict=True))

    def global_shape(self, local_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the whole tensor.

        Args:
            local_shape: The shape of the block of each rank, of rank ``ndim``.

        Raises:
            LayoutError: If the shape has another rank.
        """
        if len(local_shape) != self.ndim:
            raise LayoutError(
                f"{self.notation!r} is a layout of tensors of rank {self.ndim}, but got {tuple(local_shape)}"
            )
        return tuple(size * count for size, count in zip(local_shape, self.shard_counts, strict=True))

    def local_slice(self, global_shape: Sequence[int], rank: int | None = None) -> tuple[slice, ...]:
        """Where the block of a rank lies in the whole tensor.

        Args:
            global_shape: The shape of the whole tensor, of rank ``ndim``.
            rank: A global rank; the current one if not given.

        Raises:
            LayoutError: If a dim does not divide, or the mesh does not hold the rank.
        """
        blocks = self.local_shape(global_shape)
        slices = []
        for axes, block in zip(self.dim_axes, blocks, strict=True):
            place = 0
            for axis in axes:
                place = place * self.mesh_shape[axis] + self.mesh.get_local_rank(axis, rank)
            slices.append(slice(place * block, (place + 1) * block))
        return tuple(slices)

    # -- a value ---------------------------------------------------------------------------------------

    @property
    def alias_placements(self) -> tuple[Placement, ...]:
        """The placements as ``DTensor.from_local`` takes them; the same as ``placements``."""
        return self.placements

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Layout is immutable: make a new one instead of setting {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Layout is immutable: {name!r} cannot be deleted")

    def __copy__(self) -> Layout:
        return self

    def __deepcopy__(self, memo: object) -> Layout:
        return self

    def __reduce__(self) -> tuple[type[Layout], tuple[DeviceMesh, tuple[Placement, ...], int]]:
        return Layout, (self.mesh, self.placements, self.ndim)

    def __repr__(self) -> str:
        return f"Layout({self.compact_str})"


class LayoutTemplate:
    """A mesh that waits for the axes of each tensor dim; an interned value like the layouts it makes.

    Args:
        mesh: The mesh.
    """

    __slots__ = ("__weakref__", "mesh")
    mesh: DeviceMesh

    def __new__(cls, mesh: DeviceMesh) -> LayoutTemplate:
        """Returns the one template of the mesh."""
        fresh = object.__new__(cls)
        object.__setattr__(fresh, "mesh", mesh)
        return _TEMPLATES.setdefault(mesh, fresh)

    def __call__(self, *dims: AxisNames) -> Layout:
        """The layout in which the named axes split the dims, Replicate on all other axes.

        Args:
            *dims: Per tensor dim ``"None"``, an axis name, or a tuple of names with the major one first.

        Raises:
            LayoutError: If an axis is unknown or named twice.
        """
        named = [(of_dim,) if isinstance(of_dim, str) else of_dim for of_dim in dims]
        axes = [() if names == ("None",) else tuple(map(self.mesh.axis_index, names)) for names in named]
        return Layout.from_dim_axes(self.mesh, axes)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a LayoutTemplate is immutable: make a new one instead of setting {name!r}")

    def __copy__(self) -> LayoutTemplate:
        return self

    def __deepcopy__(self, memo: object) -> LayoutTemplate:
        return self

    def __reduce__(self) -> tuple[type[LayoutTemplate], tuple[DeviceMesh]]:
        return LayoutTemplate, (self.mesh,)

    def __repr__(self) -> str:
        return f"LayoutTemplate({self.mesh!r})"


def _intern(mesh: DeviceMesh, placements: tuple[Placement, ...], ndim: int) -> Layout:
    if ndim < 0:
        raise LayoutError(f"the rank of a tensor is not negative, but got {ndim}")
    normal = _normalised(mesh, placements, ndim)
    dim_axes = dim_axes_of(normal, mesh, ndim)
    partial = tuple(cast(str | None, getattr(placement, "reduce_op", None)) for placement in normal)
    _check_partial(mesh, partial)
    canonical = placements_of(dim_axes, partial, mesh)
    known = _INTERNED.get((mesh, canonical, ndim))
    if known is None:
        # setdefault is atomic, so that threads which race for one content all get the same object.
        known = _INTERNED.setdefault((mesh, canonical, ndim), _fresh(mesh, canonical, dim_axes, partial))
    _INTERNED[mesh, placements, ndim] = known
    return known


def _normalised(mesh: DeviceMesh, placements: tuple[Placement, ...], ndim: int) -> tuple[Placement, ...]:
    if len(placements) != mesh.ndim:
        raise LayoutError(
            f"a layout needs one placement per mesh axis ({', '.join(map(repr, mesh.mesh_dim_names))}), "
            f"but got {len(placements)}: {placements}"
        )
    normal: list[Placement] = []
    for name, placement in zip(mesh.mesh_dim_names, placements, strict=True):
        if not isinstance(placement, Placement):
            raise TypeError(
                f"the placement on mesh axis {name!r} must be a Placement, but got {placement!r}: write "
                "Replicate(), Shard(dim) or Partial()"
            )
        if isinstance(placement, Shard):
            if not -ndim <= placement.dim < ndim:
                raise LayoutError(
                    f"{placement!r} on mesh axis {name!r} is out of range for a tensor of rank {ndim}"
                )
            dim = placement.dim % ndim
            if isinstance(placement, StridedShard):
                placement = StridedShard(dim, placement.split_factor)
            else:
                placement = Shard(dim)
        normal.append(placement)
    return tuple(normal)


def _check_partial(mesh: DeviceMesh, partial: tuple[str | None, ...]) -> None:
    waiting = [(name, op) for name, op in zip(mesh.mesh_dim_names, partial, strict=True) if op is not None]
    for name, op in waiting[1:]:
        first_name, first = waiting[0]
        if not commute(op, first):
            raise LayoutError(
                f"Partial({first}) on mesh axis {first_name!r} and Partial({op}) on mesh axis {name!r} do "
                "not commute: the value would depend on which is reduced first. Reduce one of them before"
            )


def _fresh(
    mesh: DeviceMesh, placements: tuple[Placement, ...], dim_axes: DimAxes, partial: tuple[str | None, ...]
) -> Layout:
    sizes, names = mesh.mesh_shape, mesh.mesh_dim_names
    shard_axes = sum(1 << axis for axes in dim_axes for axis in axes)
    partial_axes = sum(1 << axis for axis, op in enumerate(partial) if op is not None)
    notation = " ".join(f"{n}:{p.notation}" for n, p in zip(names, placements, strict=True))
    axes_text = ",".join(f"{n}={s}" for n, s in zip(names, sizes, strict=True))
    ranks = describe_ranks(mesh.rank_list)
    layout = object.__new__(Layout)
    for attribute, value in (
        ("mesh", mesh),
        ("mesh_shape", sizes),
        ("placements", placements),
        ("ndim", len(dim_axes)),
        ("dim_axes", dim_axes),
        ("shard_counts", tuple(prod(sizes[axis] for axis in axes) for axes in dim_axes)),
        ("partial", partial),
        ("tensor_map", tuple(_entry([mesh.ndim - 1 - axis for axis in axes], -1) for axes in dim_axes)),
        ("alias_tensor_map", tuple(_entry([names[axis] for axis in axes], "None") for axes in dim_axes)),
        ("repeat_num", prod(size for axis, size in enumerate(sizes) if not shard_axes >> axis & 1)),
        ("is_replicated", not shard_axes and not partial_axes),
        ("shard_axes", shard_axes),
        ("partial_axes", partial_axes),
        ("replicate_axes", (1 << mesh.ndim) - 1 & ~shard_axes & ~partial_axes),
        ("notation", notation),
        ("compact_str", f"{mesh.device_type}({axes_text})@{ranks} rank {len(dim_axes)} {notation}"),
    ):
        object.__setattr__(layout, attribute, value)
    return layout


def _entry(axes: list[Any], not_split: Any) -> Any:
    """One entry of a tensor map: nothing, the one axis, or the tuple of several."""
    if not axes:
        return not_split
    return axes[0] if len(axes) == 1 else tuple(axes)
