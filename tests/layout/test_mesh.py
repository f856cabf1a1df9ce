import copy
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from hyper_layout import (
    DeviceMesh,
    LayoutError,
    current_mesh,
    current_rank,
    mesh_for_rank,
    set_group_source,
    set_rank_source,
)
from hyper_layout import mesh as mesh_module


@pytest.fixture
def be_rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Makes this thread a given rank until the test ends."""
    monkeypatch.setattr(mesh_module, "_rank_source", mesh_module._rank_source)
    yield lambda rank: set_rank_source(lambda: rank)


def cube(rank_list=None) -> DeviceMesh:
    return DeviceMesh("cpu", (2, 2, 3), ("pp", "dp", "tp"), rank_list)


# -- content -------------------------------------------------------------------------------------------------


def test_attributes():
    mesh = cube()
    assert (mesh.device_type, mesh.mesh_shape, mesh.mesh_dim_names) == ("cpu", (2, 2, 3), ("pp", "dp", "tp"))
    assert mesh.rank_list == tuple(range(12))
    assert mesh.ndim == 3
    assert mesh.shape == (2, 2, 3)
    assert [mesh.size(), mesh.size("pp"), mesh.size(-1)] == [12, 2, 3]
    assert mesh.get_device_num_along_axis("tp") == 3
    assert repr(mesh) == "DeviceMesh(cpu: pp=2, dp=2, tp=3; ranks 0..11)"


def test_default_names():
    assert DeviceMesh("cpu", (2, 2)).mesh_dim_names == ("dim_0", "dim_1")


def test_axis_index():
    mesh = cube()
    assert [mesh.axis_index(axis) for axis in ("pp", "tp", 1, -1, -3)] == [0, 2, 1, 2, 0]
    for unknown in ("cp", 3, -4):
        with pytest.raises(LayoutError, match=f"{unknown!r} is not known: this mesh has 'pp', 'dp', 'tp'"):
            mesh.axis_index(unknown)


@pytest.mark.parametrize("mesh", [cube(), cube([5, 3, 1, 0, 2, 4, 11, 9, 7, 6, 8, 10])], ids=["row", "mixed"])
def test_equal_content_is_the_same_object(mesh: DeviceMesh):
    again = DeviceMesh(
        mesh.device_type, list(mesh.mesh_shape), list(mesh.mesh_dim_names), list(mesh.rank_list)
    )
    assert again is mesh
    assert pickle.loads(pickle.dumps(mesh)) is mesh
    assert copy.copy(mesh) is mesh
    assert copy.deepcopy([mesh])[0] is mesh
    assert again.to_hash() == mesh.to_hash()


def test_each_part_of_the_content_counts():
    ranks = list(range(1000))
    # Two ranks deep inside differ: neither the ends nor a printed summary would show it.
    swapped = [*ranks[:500], 501, 500, *ranks[502:]]
    meshes = [
        DeviceMesh("cpu", (1000,), ("x",), ranks),
        DeviceMesh("cpu", (1000,), ("x",), swapped),
        DeviceMesh("npu", (1000,), ("x",), ranks),
        DeviceMesh("cpu", (10, 100), ("x", "y"), ranks),
        DeviceMesh("cpu", (100, 10), ("x", "y"), ranks),
        DeviceMesh("cpu", (1000,), ("y",), ranks),
    ]
    assert len(set(meshes)) == len(meshes)
    assert all(a != b for a in meshes for b in meshes if a is not b)
    assert len({mesh.to_hash() for mesh in meshes}) == len(meshes)


def test_to_hash_is_the_same_in_another_process():
    code = "from hyper_layout import DeviceMesh; print(DeviceMesh('cpu', (2, 2), ('a', 'b')).to_hash())"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == DeviceMesh("cpu", (2, 2), ("a", "b")).to_hash()


def test_immutable():
    with pytest.raises(AttributeError, match="immutable"):
        cube().rank_list = (0,)
    with pytest.raises(AttributeError, match="immutable"):
        del cube().ndim


def test_threads_get_the_same_object():
    with ThreadPoolExecutor(8) as threads:
        for size in range(50, 90):
            made = threads.map(lambda _: DeviceMesh("cpu", (size,), ("race",)), range(8))  # noqa: B023
            assert len(set(map(id, made))) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (((),), "at least one axis"),
        (((2, 0),), "sizes of at least 1"),
        (((2, 2), ("dp",)), "needs 2 axis names"),
        (((2, 2), ("dp", "dp")), "different names"),
        (((2,), ("None",)), "other than 'None'"),
        (((2,), ("d p",)), "identifier"),
        (((2, 2), None, [0, 1, 2]), "has 4 ranks, but rank_list has 3"),
        (((2,), None, [1, 1]), "different ranks"),
        (((2,), None, [0, -1]), "not negative"),
    ],
)
def test_bad_content(content, message: str):
    with pytest.raises(LayoutError, match=message):
        DeviceMesh("cpu", *content)


# -- ranks ---------------------------------------------------------------------------------------------------


def test_coordinates():
    mesh = cube()
    assert [mesh.get_coordinate(rank) for rank in (0, 5, 11)] == [(0, 0, 0), (0, 1, 2), (1, 1, 2)]
    assert mesh.get_coordinate(12) is None
    assert [mesh.get_local_rank(axis, 10) for axis in ("pp", 1, "tp")] == [1, 1, 1]


def test_coordinates_follow_the_rank_list():
    mesh = DeviceMesh("cpu", (2, 2), ("dp", "tp"), [7, 3, 5, 1])
    assert {rank: mesh.get_coordinate(rank) for rank in (1, 3, 5, 7)} == {
        7: (0, 0),
        3: (0, 1),
        5: (1, 0),
        1: (1, 1),
    }
    assert mesh.get_coordinate(0) is None
    assert mesh.ranks_along("dp", 3) == (3, 1)
    assert mesh.ranks_along("tp", 1) == (5, 1)
    assert mesh.groups_along("dp") == ((7, 5), (3, 1))


def test_the_current_rank_is_the_default(be_rank):
    mesh = cube()
    assert current_rank() == 0
    be_rank(10)
    assert current_rank() == 10
    assert mesh.get_rank() == 10
    assert mesh.get_coordinate() == (1, 1, 1)
    assert mesh.get_local_rank("dp") == 1
    assert mesh.ranks_along("tp") == (9, 10, 11)


def test_groups_along():
    mesh = cube()
    assert mesh.groups_along("tp") == ((0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11))
    assert mesh.groups_along("pp") == tuple((rank, rank + 6) for rank in range(6))
    for axis in mesh.mesh_dim_names:
        groups = mesh.groups_along(axis)
        assert sorted(rank for group in groups for rank in group) == list(range(12))
        assert all(mesh.ranks_along(axis, rank) == group for group in groups for rank in group)


def test_a_rank_outside_of_the_mesh(be_rank):
    be_rank(12)
    mesh = cube()
    assert mesh.get_coordinate() is None
    for ask in (
        lambda: mesh.get_local_rank("tp"),
        lambda: mesh.ranks_along("tp"),
        lambda: mesh["tp"],
    ):
        with pytest.raises(LayoutError, match="rank 12 is not in DeviceMesh"):
            ask()


def test_an_axis_may_be_left_out_only_where_there_is_one():
    assert DeviceMesh("cpu", (3,), None, [4, 2, 0]).get_local_rank(rank=2) == 1
    with pytest.raises(LayoutError, match="'pp', 'dp', 'tp': say which"):
        cube().get_local_rank(rank=2)


@pytest.fixture
def no_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever other tests chose, until the test ends."""
    monkeypatch.setattr(mesh_module, "_group_source", mesh_module._no_groups)
    monkeypatch.setattr(mesh_module, "_group_ranks", mesh_module._no_ranks)


def test_get_group_asks_the_platform(no_platform: None):
    with pytest.raises(RuntimeError, match="set_platform"):
        cube().get_group("tp")
    set_group_source(lambda mesh, axis: (mesh, axis))
    assert cube().get_group("tp") == (cube(), 2)
    assert cube().flatten().get_group() == (cube().flatten(), 0)


def test_from_group_asks_the_platform_for_the_ranks(no_platform: None):
    with pytest.raises(RuntimeError, match="set_platform"):
        DeviceMesh.from_group("a group", "cpu")
    set_group_source(lambda mesh, axis: None, lambda group: (5, 3))
    assert DeviceMesh.from_group("a group", "cpu", ("tp",)) is DeviceMesh("cpu", (2,), ("tp",), [5, 3])


# -- parts ---------------------------------------------------------------------------------------------------


def test_slice_by_one_name(be_rank):
    mesh = cube()
    be_rank(10)
    assert mesh["tp"] is DeviceMesh("cpu", (3,), ("tp",), [9, 10, 11])
    assert mesh["dp"] is DeviceMesh("cpu", (2,), ("dp",), [7, 10])
    assert mesh["pp"] is DeviceMesh("cpu", (2,), ("pp",), [4, 10])
    be_rank(0)
    assert mesh["tp"] is DeviceMesh("cpu", (3,), ("tp",), [0, 1, 2])


def test_slice_by_several_names(be_rank):
    mesh = cube()
    be_rank(10)
    assert mesh["dp", "tp"] is DeviceMesh("cpu", (2, 3), ("dp", "tp"), range(6, 12))
    assert mesh["pp", "tp"] is DeviceMesh("cpu", (2, 3), ("pp", "tp"), [3, 4, 5, 9, 10, 11])
    assert mesh["pp", "dp", "tp"] is mesh
    assert mesh["dp", "tp"]["tp"] is mesh["tp"]


def test_every_rank_of_a_slice_gets_the_same_slice(be_rank):
    mesh = cube([3, 1, 4, 10, 5, 9, 2, 6, 8, 7, 11, 0])
    for names in ("tp", ("pp", "tp"), ("pp", "dp")):
        for rank in mesh.rank_list:
            be_rank(rank)
            part = mesh[names]
            assert rank in part.rank_list
            for other in part.rank_list:
                be_rank(other)
                assert mesh[names] is part


@pytest.mark.parametrize("names", [("tp", "dp"), ("tp", "tp"), ()])
def test_slice_needs_the_order_of_the_mesh(names):
    with pytest.raises(LayoutError, match=r"in the order of the mesh \('pp', 'dp', 'tp'\)"):
        cube()[names]


def test_slice_by_an_unknown_name():
    with pytest.raises(LayoutError, match="'cp' is not known"):
        cube()["cp"]


def test_flatten(be_rank):
    mesh = cube()
    assert mesh.flatten() is DeviceMesh("cpu", (12,), ("pp_dp_tp",))
    be_rank(4)
    assert mesh["pp", "tp"].flatten("model") is DeviceMesh("cpu", (6,), ("model",), [3, 4, 5, 9, 10, 11])


def test_entered_meshes_nest():
    assert current_mesh() is None
    with cube() as outer:
        assert current_mesh() is outer is cube()
        with outer["tp"] as inner:
            assert current_mesh() is inner
            with outer:
                assert current_mesh() is outer
            assert current_mesh() is inner
        assert current_mesh() is outer
        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(current_mesh).result() is None
    assert current_mesh() is None
    with pytest.raises(KeyError), cube():
        raise KeyError
    assert current_mesh() is None


# -- a mesh for each rank of a world -------------------------------------------------------------------------


def test_a_mesh_of_the_whole_world():
    assert mesh_for_rank("cpu", (2, 2), ("dp", "tp"), None, 4, 3) is DeviceMesh("cpu", (2, 2), ("dp", "tp"))


def test_a_mesh_smaller_than_the_world_is_the_block_of_the_rank():
    for rank in range(8):
        start = rank - rank % 2
        expected = DeviceMesh("cpu", (2,), ("tp",), [start, start + 1])
        assert mesh_for_rank("cpu", (2,), ("tp",), None, 8, rank) is expected


def test_listed_ranks_are_taken_as_they_are():
    assert mesh_for_rank("cpu", (2,), ("tp",), [5, 1], 8, 3) is DeviceMesh("cpu", (2,), ("tp",), [5, 1])


def test_a_mesh_larger_than_the_world():
    with pytest.raises(
        ValueError,
        match=r"needs 8 ranks, but the world has 4: start 8 processes \(with torchrun or msrun\) or use",
    ):
        mesh_for_rank("cpu", (2, 4), None, None, 4, 0)


def test_a_world_that_is_no_multiple_of_the_mesh():
    with pytest.raises(ValueError, match="start 4 or 8 processes"):
        mesh_for_rank("cpu", (4,), None, None, 6, 0)


def test_listed_ranks_outside_of_the_world():
    with pytest.raises(
        ValueError, match=r"names the ranks \[5\], but the world has the ranks 0 to 3: start 6"
    ):
        mesh_for_rank("cpu", (2,), None, [0, 5], 4, 0)


def test_a_shape_that_is_no_shape():
    with pytest.raises(ValueError, match="at least one axis"):
        mesh_for_rank("cpu", (0,), None, None, 4, 0)
