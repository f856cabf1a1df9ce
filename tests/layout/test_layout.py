import copy
import json
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import pytest

from hyper_layout import (
    DeviceMesh,
    Layout,
    LayoutError,
    LayoutTemplate,
    Partial,
    Placement,
    Replicate,
    Shard,
    StridedShard,
    parse_layout,
    parse_placement,
)
from tests.layout.every_layout import every_layout

NAMES = ("dp", "cp", "tp")
MESH = DeviceMesh("cpu", (2, 4), ("dp", "tp"))
MESHES = [DeviceMesh("cpu", shape, NAMES[: len(shape)]) for shape in ((2,), (2, 3), (2, 2, 2), (2, 1, 3))]


def layout(*placements: Placement, ndim: int = 2) -> Layout:
    return Layout(MESH, placements, ndim)


# -- its views of itself -------------------------------------------------------------------------------------


def test_attributes():
    one = layout(Shard(-1), Partial("max"))
    assert one.mesh is MESH
    assert one.mesh_shape == (2, 4)
    assert one.placements == one.alias_placements == (Shard(1), Partial("max"))
    assert one.ndim == 2
    assert one.dim_axes == ((), (0,))
    assert one.shard_counts == (1, 2)
    assert one.tensor_map == (-1, 1)
    assert one.alias_tensor_map == ("None", "dp")
    assert one.partial == (None, "max")
    assert one.repeat_num == 4
    assert not one.is_replicated
    assert (one.shard_axes, one.partial_axes, one.replicate_axes) == (0b01, 0b10, 0)
    assert one.notation == "dp:S(1) tp:P(max)"
    assert one.compact_str == "cpu(dp=2,tp=4)@0..7 rank 2 dp:S(1) tp:P(max)"
    assert repr(one) == "Layout(cpu(dp=2,tp=4)@0..7 rank 2 dp:S(1) tp:P(max))"


def test_several_axes_on_one_dim():
    left_to_right = layout(Shard(0), Shard(0))
    assert left_to_right.dim_axes == ((0, 1), ())
    assert left_to_right.tensor_map == ((1, 0), -1)
    assert left_to_right.alias_tensor_map == (("dp", "tp"), "None")
    assert left_to_right.shard_counts == (8, 1)
    assert left_to_right.repeat_num == 1
    right_to_left = layout(StridedShard(0, 4), Shard(0))
    assert right_to_left.tensor_map == ((0, 1), -1)
    assert right_to_left.alias_tensor_map == (("tp", "dp"), "None")
    assert right_to_left is not left_to_right


def test_repeat_num_counts_the_ranks_with_one_block():
    assert layout(Replicate(), Replicate()).repeat_num == 8
    assert layout(Shard(0), Replicate()).repeat_num == 4
    assert layout(Partial(), Shard(0)).repeat_num == 2
    assert layout(Replicate(), Replicate()).is_replicated
    assert layout(Replicate(), Replicate()).replicate_axes == 0b11


def test_a_scalar():
    scalar = layout(Replicate(), Partial(), ndim=0)
    assert scalar.dim_axes == scalar.tensor_map == scalar.local_shape(()) == scalar.local_slice((), 3) == ()


# -- one object for one content ------------------------------------------------------------------------------


def test_every_way_of_writing_it_gives_the_same_object():
    expected = layout(Shard(1), StridedShard(0, 1))
    assert expected.placements == (Shard(1), Shard(0))
    for again in (
        layout(Shard(-1), Shard(-2)),
        Layout(MESH, [Shard(1), Shard(0)], 2),
        Layout.from_placements(MESH, iter((Shard(1), Shard(0))), 2),
        Layout.from_device_mesh(MESH)("tp", "dp"),
        Layout(mesh_shape=(2, 4), alias_name=("dp", "tp"))("tp", "dp"),
        Layout.from_dim_axes(MESH, [[1], [0]]),
        Layout.from_dim_axes(MESH, ([1], [0]), (None, None)),
        expected.replace("tp", Replicate()).replace("tp", Shard(0)),
        parse_layout(f"f32[8,8] {expected.notation}", MESH)[2],
    ):
        assert again is expected


@pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: str(mesh.mesh_shape))
@pytest.mark.parametrize("ndim", [0, 1, 2, 3])
def test_round_trips(mesh: DeviceMesh, ndim: int):
    for one in every_layout(mesh, ndim, ("sum", "max")[: 1 + (mesh.ndim == 1)]):
        assert Layout(mesh, one.placements, ndim) is one
        assert Layout.from_dim_axes(mesh, one.dim_axes, one.partial) is one
        axes = [entry if isinstance(entry, tuple) else (entry,) * (entry != -1) for entry in one.tensor_map]
        from_map = [[mesh.ndim - 1 - axis for axis in entry] for entry in axes]
        assert Layout.from_dim_axes(mesh, from_map, one.partial) is one
        by_name = Layout.from_device_mesh(mesh)(*one.alias_tensor_map)
        for axis, reduce_op in enumerate(one.partial):
            by_name = by_name if reduce_op is None else by_name.replace(axis, Partial(reduce_op))
        assert by_name is one
        assert Layout(mesh, map(parse_placement, [p.notation for p in one.placements]), ndim) is one
        shape = ",".join("8" * ndim)
        assert parse_layout(f"f32[{shape}] {one.notation}", mesh)[2] is one
        assert Layout.from_dict(json.loads(json.dumps(one.to_dict()))) is one
        assert pickle.loads(pickle.dumps(one)) is one
        assert copy.copy(one) is one
        assert copy.deepcopy({"x": one})["x"] is one


@pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: str(mesh.mesh_shape))
def test_layouts_and_texts_of_placements_correspond_one_to_one(mesh: DeviceMesh):
    layouts = set(every_layout(mesh, 2))
    every_placement = [Replicate(), Partial()]
    for dim in (0, 1):
        every_placement += [Shard(dim), *(StridedShard(dim, factor) for factor in range(2, 13))]
    accepted = set()
    for placements in product(every_placement, repeat=mesh.ndim):
        try:
            accepted.add(Layout(mesh, placements, 2))
        except LayoutError as error:
            assert "never multiply to" in str(error)
    assert accepted == layouts
    assert len({one.placements for one in layouts}) == len(layouts)
    if 1 not in mesh.mesh_shape:
        assert len({(one.dim_axes, one.partial) for one in layouts}) == len(layouts)


def test_an_axis_of_size_one_has_one_place():
    mesh = DeviceMesh("cpu", (2, 1, 2), NAMES)
    middle = Layout.from_dim_axes(mesh, [(0, 1, 2)])
    assert Layout.from_dim_axes(mesh, [(0, 2, 1)]) is middle
    assert Layout.from_dim_axes(mesh, [(1, 0, 2)]) is middle
    assert middle.placements == (Shard(0), Shard(0), Shard(0))
    assert Layout.from_dim_axes(mesh, [(2, 0, 1)]).placements == (StridedShard(0, 2), Shard(0), Shard(0))


def test_a_strided_shard_of_an_axis_of_size_one_is_a_shard():
    mesh = DeviceMesh("cpu", (1, 2), ("one", "tp"))
    written_strided = Layout(mesh, (StridedShard(0, 2), Shard(0)), 1)
    assert written_strided.placements == (Shard(0), Shard(0))
    assert written_strided.dim_axes == ((0, 1),)
    assert Layout(mesh, (Shard(0), Shard(0)), 1) is written_strided


def test_compact_str_is_unique_for_the_content():
    meshes = [
        MESH,
        DeviceMesh("npu", (2, 4), ("dp", "tp")),
        DeviceMesh("cpu", (4, 2), ("dp", "tp")),
        DeviceMesh("cpu", (2, 4), ("dp", "cp")),
        DeviceMesh("cpu", (2, 4), ("dp", "tp"), range(8, 16)),
        DeviceMesh("cpu", (2, 4), ("dp", "tp"), range(0, 16, 2)),
        DeviceMesh("cpu", (2, 4), ("dp", "tp"), [1, 0, 2, 3, 4, 5, 6, 7]),
    ]
    layouts = [one for mesh in meshes for ndim in range(3) for one in every_layout(mesh, ndim)]
    assert len({one.compact_str for one in layouts}) == len(set(layouts)) == len(layouts)


def test_compact_str_and_pickle_are_the_same_in_another_process():
    one = layout(StridedShard(0, 4), Shard(0))
    code = "import pickle, sys; one = pickle.load(sys.stdin.buffer); print(one.compact_str)"
    out = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(one), capture_output=True, check=True
    )
    assert out.stdout.decode().strip() == one.compact_str


def test_immutable():
    one = layout(Shard(0), Replicate())
    for attribute in ("placements", "partial", "anything"):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(one, attribute, ())
    with pytest.raises(AttributeError, match="immutable"):
        del one.mesh


def test_threads_get_the_same_object():
    with ThreadPoolExecutor(8) as threads:
        for ndim in range(100, 140):
            made = threads.map(lambda _: layout(Shard(7), Shard(7), ndim=ndim), range(8))  # noqa: B023
            assert len(set(map(id, made))) == 1


# -- naming the axes of each dim -----------------------------------------------------------------------------


def test_a_template_is_a_value():
    template = Layout.from_device_mesh(MESH)
    assert isinstance(template, LayoutTemplate)
    assert Layout(mesh_shape=(2, 4), alias_name=("dp", "tp"), rank_list=range(8)) is template
    assert pickle.loads(pickle.dumps(template)) is copy.deepcopy(template) is copy.copy(template) is template
    assert template.mesh is MESH
    with pytest.raises(AttributeError, match="immutable"):
        template.mesh = MESH
    # Making layouts leaves it as it was.
    assert template("dp", "None") is layout(Shard(0), Replicate())
    assert template("None", ("tp", "dp")) is layout(StridedShard(1, 4), Shard(1))
    assert template("dp", "None") is layout(Shard(0), Replicate())
    assert template(("dp",), ()) is layout(Shard(0), Replicate())
    assert template() is layout(Replicate(), Replicate(), ndim=0)


def test_a_template_takes_the_kind_of_device_and_the_ranks():
    template = Layout(mesh_shape=(2,), alias_name=("tp",), rank_list=[3, 1], device_type="npu")
    assert template.mesh is DeviceMesh("npu", (2,), ("tp",), [3, 1])


def test_bad_templates():
    with pytest.raises(LayoutError, match="'cp' is not known: this mesh has 'dp', 'tp'"):
        Layout.from_device_mesh(MESH)("cp")
    with pytest.raises(LayoutError, match="'dp' is used more than once"):
        Layout.from_device_mesh(MESH)("dp", "dp")
    with pytest.raises(TypeError, match="mesh, placements and tensor_ndim, or mesh_shape"):
        Layout(MESH)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="mesh, placements and tensor_ndim, or mesh_shape"):
        Layout(MESH, mesh_shape=(2,))  # type: ignore[call-overload]


# -- others from one -----------------------------------------------------------------------------------------


def test_with_placements():
    one = layout(Shard(0), Replicate())
    assert one.with_placements((Replicate(), Shard(-1))) is layout(Replicate(), Shard(1))
    assert one.with_placements((Replicate(), Shard(-1)), 3) is layout(Replicate(), Shard(2), ndim=3)


def test_replace():
    one = layout(Shard(0), Replicate())
    assert one.replace("tp", Shard(0)) is layout(Shard(0), Shard(0))
    assert one.replace(-1, Partial()) is layout(Shard(0), Partial())
    assert one.replace("dp", Shard(-1)) is layout(Shard(1), Replicate())
    assert one.replace("dp", Shard(0)) is one
    with pytest.raises(LayoutError, match="out of range"):
        one.replace("dp", Shard(2))
    with pytest.raises(LayoutError, match="never multiply to 4"):
        one.replace("dp", StridedShard(0, 4))


def test_replace_keeps_the_order_of_the_other_axes():
    """Whatever the other axes need to be written with."""
    tp_first = layout(StridedShard(0, 4), Shard(0))
    assert tp_first.replace("tp", Replicate()) is layout(Shard(0), Replicate())
    mesh = DeviceMesh("cpu", (2, 2, 2), NAMES)
    for one in every_layout(mesh, 2):
        for axis, placement in product(range(3), [Replicate(), Partial(), Shard(0), Shard(1)]):
            other = one.replace(axis, placement)
            if not placement.is_shard():
                assert other.placements[axis] is placement
            for before, after in zip(one.dim_axes, other.dim_axes, strict=True):
                assert [a for a in before if a != axis] == [a for a in after if a != axis]
            for dim, axes in enumerate(other.dim_axes):
                if axis in axes:
                    assert placement.is_shard(dim)
                    right = [a for a in axes if a >= axis]
                    assert right[0] == axis
            # Where no StridedShard is about, it is the exchange of one placement.
            if not any(isinstance(p, StridedShard) for p in one.placements):
                exchanged = (*one.placements[:axis], placement, *one.placements[axis + 1 :])
                assert other is Layout(mesh, exchanged, 2)


def test_replace_by_strided_shard():
    mesh = DeviceMesh("cpu", (2, 2, 2), NAMES)
    one = Layout.from_dim_axes(mesh, [(2, 0), ()])
    assert one.replace("cp", StridedShard(0, 2)).dim_axes == ((2, 1, 0), ())
    assert one.replace("cp", Shard(0)).dim_axes == ((1, 2, 0), ())
    assert one.replace("dp", StridedShard(0, 2)) is one


# -- shapes --------------------------------------------------------------------------------------------------


def test_local_and_global_shape():
    one = layout(Shard(1), Shard(1), ndim=3)
    assert one.local_shape((3, 16, 5)) == (3, 2, 5)
    assert one.global_shape((3, 2, 5)) == (3, 16, 5)
    assert layout(Shard(0), Replicate()).local_shape((0, 3)) == (0, 3)
    for call in (one.local_shape, one.global_shape, one.check_even):
        with pytest.raises(LayoutError, match=r"tensors of rank 3, but got \(8, 8\)"):
            call((8, 8))


@pytest.mark.parametrize(
    ("size", "below", "above"), [(9, 8, 12), (11, 8, 12), (3, 4, 8), (1, 4, 8), (5, 4, 8)]
)
def test_a_dim_that_does_not_divide(size: int, below: int, above: int):
    message = (
        f"dim 1 of size {size} cannot be split into 4 equal blocks over mesh axis 'tp' \\(size 4\\): "
        f"the nearest sizes that can are {below} and {above}$"
    )
    with pytest.raises(ValueError, match=message):
        layout(Replicate(), Shard(1)).local_shape((8, size))


def test_a_dim_that_does_not_divide_by_its_axes_together():
    message = (
        r"dim 0 of size 12 .* 8 equal blocks over mesh axis 'dp' \(size 2\) x 'tp' \(size 4\): .* 8 and 16"
    )
    with pytest.raises(LayoutError, match=message):
        layout(Shard(0), Shard(0)).check_even((12, 1))
    with pytest.raises(LayoutError, match=r"'tp' \(size 4\) x 'dp' \(size 2\)"):
        layout(StridedShard(0, 4), Shard(0)).check_even((12, 1))


@pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: str(mesh.mesh_shape))
def test_local_slice_cuts_as_the_placements_say_one_after_the_other(mesh: DeviceMesh):
    """The oracle applies the placements from left to right, each to what the one before has left.

    ``Shard`` takes a block. ``StridedShard(d, f)`` takes its block out of each of f pieces, so that the axes
    right of it, which cut the rest, find their pieces whole.
    """
    whole = np.arange(24 * 48).reshape(24, 48)
    for one in every_layout(mesh, 2):
        for rank in mesh.rank_list:
            left = whole
            for placement, coordinate, size in zip(
                one.placements, mesh.get_coordinate(rank), mesh.mesh_shape, strict=True
            ):
                if isinstance(placement, Shard):
                    pieces = getattr(placement, "split_factor", 1)
                    cut = np.moveaxis(left, placement.dim, 0)
                    cut = cut.reshape(pieces, size, -1, cut.shape[1])[:, coordinate].reshape(-1, cut.shape[1])
                    left = np.moveaxis(cut, 0, placement.dim)
            assert np.array_equal(whole[one.local_slice(whole.shape, rank)], left)
            assert left.shape == one.local_shape(whole.shape)


def test_local_slice_follows_the_rank_list():
    one = Layout(DeviceMesh("cpu", (2,), ("tp",), [5, 3]), (Shard(0),), 1)
    assert one.local_slice((8,), 5) == (slice(0, 4),)
    assert one.local_slice((8,), 3) == (slice(4, 8),)
    with pytest.raises(LayoutError, match="rank 0 is not in"):
        one.local_slice((8,))


# -- bad content ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("placements", "message"),
    [
        ((Shard(0),), r"one placement per mesh axis \('dp', 'tp'\), but got 1"),
        ((Shard(0), Shard(1), Replicate()), "but got 3"),
        ((Replicate(), Shard(2)), r"Shard\(dim=2\) on mesh axis 'tp' is out of range for a tensor of rank 2"),
        ((Shard(-3), Replicate()), r"Shard\(dim=-3\) on mesh axis 'dp' is out of range"),
        (
            (StridedShard(0, 2), Shard(0)),
            r"mesh axis 'dp': right of it 'tp' \(size 4\) splits dim 0, and .* never multiply to 2",
        ),
        ((StridedShard(0, 4), Shard(1)), "right of it no axis splits dim 0"),
        ((Shard(0), StridedShard(0, 2)), "mesh axis 'tp': right of it no axis"),
        (
            (Partial("max"), Partial("sum")),
            r"Partial\(max\) on mesh axis 'dp' and Partial\(sum\) on mesh axis 'tp' do not commute",
        ),
    ],
)
def test_bad_placements(placements: tuple[Placement, ...], message: str):
    with pytest.raises(LayoutError, match=message):
        layout(*placements)


def test_partials_that_commute_may_meet():
    assert layout(Partial("max"), Partial("max")).partial == ("max", "max")
    assert layout(Partial("avg"), Partial("sum")).partial == ("avg", "sum")


def test_other_bad_content():
    with pytest.raises(
        TypeError,
        match=r"on mesh axis 'tp' must be a Placement, but got 'S\(0\)': write Replicate\(\), Shard",
    ):
        layout(Shard(0), "S(0)")  # type: ignore[arg-type]
    with pytest.raises(LayoutError, match="not negative"):
        layout(Replicate(), Replicate(), ndim=-1)
    with pytest.raises(LayoutError, match="one entry per mesh axis"):
        Layout.from_dim_axes(MESH, [()], ["sum"])
    with pytest.raises(LayoutError, match="'tp' is used more than once"):
        Layout.from_dim_axes(MESH, [(1,)], [None, "sum"])
    with pytest.raises(LayoutError, match="7 is not known"):
        Layout.from_dim_axes(MESH, [(7,)])
