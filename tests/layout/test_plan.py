"""The planner against an oracle that applies its steps to the arrays of all ranks by plain slicing."""

from collections.abc import Iterable
from functools import reduce
from math import prod

import numpy as np
import pytest

from hyper_layout import LOCAL_KINDS, DeviceMesh, Layout, LayoutError, Partial, Replicate, Shard, Step, plan
from tests.layout.every_layout import every_layout

NAMES = ("dp", "cp", "tp")
Locals = dict[int, np.ndarray]
"""The local array of each rank."""


def make_mesh(*shape: int) -> DeviceMesh:
    return DeviceMesh("cpu", shape, NAMES[: len(shape)])


def layout(mesh: DeviceMesh, *placements, ndim: int = 2) -> Layout:
    return Layout(mesh, placements, ndim)


# -- the oracle ----------------------------------------------------------------------------------------------


def combine(reduce_op: str, addends: Iterable[np.ndarray]) -> np.ndarray:
    parts = list(addends)
    if reduce_op == "avg":
        return sum(parts) / len(parts)
    return reduce(
        {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[reduce_op], parts
    )


def addends_of(
    value: np.ndarray, reduce_op: str, count: int, random: np.random.Generator
) -> list[np.ndarray]:
    """Uneven arrays of mixed signs that combine to ``value``."""
    parts = [random.integers(-50, 50, value.shape).astype(value.dtype) for _ in range(count)]
    last = int(random.integers(count))
    others = [part for place, part in enumerate(parts) if place != last]
    if reduce_op in ("max", "min"):
        limit = np.minimum if reduce_op == "max" else np.maximum
        parts = [limit(part, value) for part in parts]
        parts[last] = value
    elif reduce_op == "prod":
        parts = [np.where(part < 0, -1, 1).astype(value.dtype) for part in parts]
        others = [part for place, part in enumerate(parts) if place != last]
        parts[last] = value * prod(others)
    else:
        parts[last] = value * (count if reduce_op == "avg" else 1) - sum(others)
    return parts


def piece(array: np.ndarray, dim: int, count: int, place: int) -> np.ndarray:
    """One of ``count`` equal pieces along ``dim``."""
    size, rest = divmod(array.shape[dim], count)
    assert rest == 0
    return array[(slice(None),) * dim + (slice(place * size, (place + 1) * size),)]


def cut(array: np.ndarray, layout: Layout, rank: int) -> np.ndarray:
    """The block of a rank: along each dim its piece of what the axis before has left, major axis first."""
    coordinate = layout.mesh.get_coordinate(rank)
    for dim, axes in enumerate(layout.dim_axes):
        for axis in axes:
            array = piece(array, dim, layout.mesh_shape[axis], coordinate[axis])
    return array


def scatter(value: np.ndarray, layout: Layout, random: np.random.Generator) -> Locals:
    """Local arrays that hold ``value`` in this layout."""
    wholes = {(): value}
    for size, reduce_op in zip(layout.mesh_shape, layout.partial, strict=True):
        parts = {}
        for before, whole in wholes.items():
            made = [whole] * size if reduce_op is None else addends_of(whole, reduce_op, size, random)
            parts.update({(*before, coordinate): part for coordinate, part in enumerate(made)})
        wholes = parts
    ranks = layout.mesh.rank_list
    return {rank: cut(wholes[layout.mesh.get_coordinate(rank)], layout, rank) for rank in ranks}


def apply(step: Step, mesh: DeviceMesh, before: Locals) -> Locals:
    after = {}
    for group in mesh.groups_along(step.axis):
        arrays = [before[rank] for rank in group]
        for place, rank in enumerate(group):
            match step.kind:
                case "all_gather":
                    result = np.concatenate(arrays, step.dim)
                case "all_reduce":
                    result = combine(step.reduce_op, arrays)
                case "reduce_scatter":
                    result = piece(combine(step.reduce_op, arrays), step.dim, len(group), place)
                case "all_to_all":
                    pieces = [piece(array, step.to_dim, len(group), place) for array in arrays]
                    result = np.concatenate(pieces, step.dim)
                case "slice":
                    result = piece(before[rank], step.dim, len(group), place)
                case "to_partial":
                    neutral = {"sum": 0, "prod": 1}.get(step.reduce_op)
                    result = before[rank]
                    if neutral is not None and place > 0:
                        result = np.full_like(result, neutral)
            after[rank] = result
    return after


def holds(layout: Layout, local: Locals, value: np.ndarray) -> bool:
    """Whether these arrays hold ``value`` in this layout, on every rank."""
    for axis, reduce_op in enumerate(layout.partial):
        if reduce_op is not None:
            groups = layout.mesh.groups_along(axis)
            reduced = {group: combine(reduce_op, [local[rank] for rank in group]) for group in groups}
            local = {rank: reduced[group] for group in groups for rank in group}
    return all(np.array_equal(local[rank], cut(value, layout, rank)) for rank in layout.mesh.rank_list)


def check_all_pairs(
    layouts: list[Layout], shape: tuple[int, ...], cheapest: np.ndarray | None = None
) -> None:
    """Every layout is reached from every layout, with its values on every rank (and at the lowest cost)."""
    random = np.random.default_rng(0)
    value = random.integers(-50, 50, shape).astype(float)
    itemsize = 4
    for row, src in enumerate(layouts):
        # Plans from one source share their beginnings: each is applied once.
        reached: dict[tuple[tuple, ...], Locals] = {(): scatter(value, src, random)}
        correct: dict[tuple[tuple, ...], bool] = {}
        assert holds(src, reached[()], value)
        for column, dst in enumerate(layouts):
            steps = plan(src, dst, shape, itemsize)
            path: tuple[tuple, ...] = ()
            for step in steps:
                before = path
                path = (*path, (step.kind, step.axis, step.dim, step.to_dim, step.reduce_op))
                if path not in reached:
                    reached[path] = apply(step, src.mesh, reached[before])
                    # What each step says of itself, the layout after it and the bytes, is checked too.
                    correct[path] = holds(step.layout, reached[path], value)
                assert correct[path], (src, dst, step)
            assert (steps[-1].layout if steps else src) is dst
            assert (steps == ()) == (src is dst)
            if cheapest is not None:
                assert sum(step.bytes for step in steps) == cheapest[row, column] * itemsize, (
                    src,
                    dst,
                    steps,
                )


# -- all pairs, and the best order ---------------------------------------------------------------------------


def cheapest_by_exhaustive_search(layouts: list[Layout], shape: tuple[int, ...]) -> np.ndarray:
    """Elements received per rank on the best path of one-axis steps between all pairs of layouts.

    A one-axis step joins two layouts that differ in what one axis does while all others stay as they are, and
    stay in their order. Data of several axes on one dim lie nested, so the axis must be the innermost one
    wherever it splits a dim. All paths of such steps are compared (the algorithm of Floyd and Warshall).
    """
    direct = np.full((len(layouts), len(layouts)), np.inf)
    for row, src in enumerate(layouts):
        for column, dst in enumerate(layouts):
            for axis, size in enumerate(src.mesh_shape):
                if all(
                    one_axis(src, axis)[0] == one_axis(dst, axis)[0] and one_axis(x, axis)[1]
                    for x in (src, dst)
                ):
                    held = prod(src.local_shape(shape))
                    direct[row, column] = min(direct[row, column], received(src, dst, axis, held, size))
    np.fill_diagonal(direct, 0)
    # Axes that are Replicate at both ends stay so: one search for every set of them.
    replicate = np.array([one.replicate_axes for one in layouts])
    idle = replicate[:, None] & replicate[None, :]
    best = np.full_like(direct, np.inf)
    for mask in range(1 << layouts[0].mesh.ndim):
        (inside,) = np.nonzero((replicate & mask) == mask)
        paths = direct[np.ix_(inside, inside)]
        for middle in range(len(inside)):
            paths = np.minimum(paths, paths[:, middle, None] + paths[None, middle, :])
        ends = np.ix_(inside, inside)
        best[ends] = np.where(idle[ends] == mask, paths, best[ends])
    return best


def one_axis(layout: Layout, axis: int) -> tuple[tuple, bool]:
    """What all other axes do, and whether this one is innermost where it splits a dim."""
    others = tuple(tuple(a for a in axes if a != axis) for axes in layout.dim_axes)
    partial = tuple(op for a, op in enumerate(layout.partial) if a != axis)
    return (others, partial), all(axes[-1] == axis for axes in layout.dim_axes if axis in axes)


def received(src: Layout, dst: Layout, axis: int, held: int, size: int) -> float:
    """The elements that each rank receives when ``axis`` alone changes; ``held`` is what it holds before."""
    before, after = src.placements[axis], dst.placements[axis]
    if before.is_shard() and after.is_shard():
        return held * (size - 1) / size  # keeps its own piece
    if before.is_shard() and after.is_replicate():
        return held * (size - 1)  # the blocks of all others
    if before.is_partial() and after.is_shard():
        return held * (size - 1) / size  # the same piece of all others, reduced on the way
    if before.is_partial() and after.is_replicate():
        return 2 * held * (size - 1) / size  # the reduced piece, then the pieces of all others
    if before.is_replicate():
        return 0  # has all it needs
    return np.inf  # Shard to Partial is two steps


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("mesh_shape", [(2,), (3,), (2, 2), (3, 2)], ids=str)
def test_all_pairs_on_one_and_two_axes(mesh_shape: tuple[int, ...], ndim: int):
    layouts = every_layout(make_mesh(*mesh_shape), ndim)
    check_all_pairs(layouts, (prod(mesh_shape),) * ndim)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_all_pairs_on_three_axes_never_above_the_best_order(ndim: int):
    layouts = every_layout(make_mesh(2, 2, 2), ndim)
    shape = (8,) * ndim
    check_all_pairs(layouts, shape, cheapest_by_exhaustive_search(layouts, shape))


@pytest.mark.parametrize("mesh_shape", [(1, 2), (1, 2, 1)], ids=str)
def test_all_pairs_with_axes_of_size_one(mesh_shape: tuple[int, ...]):
    check_all_pairs(list(dict.fromkeys(every_layout(make_mesh(*mesh_shape), 2))), (4, 2))


@pytest.mark.parametrize("shape", [(2, 4), (4, 1), (8, 2), (0, 4)], ids=str)
def test_all_pairs_of_a_tensor_whose_dims_do_not_take_every_axis(shape: tuple[int, ...]):
    layouts = []
    for one in every_layout(make_mesh(2, 2, 2), 2):
        if all(size % count == 0 for size, count in zip(shape, one.shard_counts, strict=True)):
            layouts.append(one)
    check_all_pairs(layouts, shape)


@pytest.mark.parametrize("reduce_op", ["avg", "max", "min", "prod"])
def test_all_pairs_with_every_reduction(reduce_op: str):
    mesh = make_mesh(2, 2)
    layouts = every_layout(mesh, 1, (reduce_op,))
    # Those that wait for something else, of which no layout in between may hold both.
    layouts += [one for one in every_layout(mesh, 1) if one.partial_axes]
    check_all_pairs(layouts, (4,))


def test_sum_and_avg_together():
    mesh = make_mesh(2, 2)
    both = [
        layout(mesh, *pair, ndim=1) for pair in ((Partial("avg"), Partial()), (Partial(), Partial("avg")))
    ]
    check_all_pairs([*both, *every_layout(mesh, 1)], (4,))


def test_ranks_in_any_order():
    mesh = DeviceMesh("cpu", (2, 2), NAMES[:2], [7, 2, 0, 5])
    check_all_pairs(every_layout(mesh, 2), (4, 4))


# -- the steps -----------------------------------------------------------------------------------------------

ONE = make_mesh(4)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        # An [8, 16] tensor of 4 bytes: 512 bytes, 128 in a shard.
        (Shard(0), Replicate(), ("all_gather", 0, None, None, 384)),
        (Partial(), Replicate(), ("all_reduce", None, None, "sum", 768)),
        (Partial("max"), Shard(1), ("reduce_scatter", 1, None, "max", 384)),
        (Shard(0), Shard(1), ("all_to_all", 0, 1, None, 96)),
        (Replicate(), Shard(1), ("slice", 1, None, None, 0)),
        (Replicate(), Partial("avg"), ("to_partial", None, None, "avg", 0)),
    ],
    ids=["all_gather", "all_reduce", "reduce_scatter", "all_to_all", "slice", "to_partial"],
)
def test_a_step_of_each_kind(before, after, expected):
    dst = layout(ONE, after)
    kind, dim, to_dim, reduce_op, received_bytes = expected
    (step,) = plan(layout(ONE, before), dst, (8, 16), 4)
    assert step == Step(kind, 0, dim, to_dim, reduce_op, received_bytes, dst)
    assert step.is_local == (kind in LOCAL_KINDS) == (received_bytes == 0)


def test_nothing_to_do():
    one = layout(ONE, Shard(0))
    assert plan(one, one, (8, 16), 4) == ()


def test_a_partial_shrinks_before_the_rest_is_reduced():
    mesh = make_mesh(2, 2)
    src, dst = layout(mesh, Partial(), Partial()), layout(mesh, Shard(0), Replicate())
    assert [(step.kind, step.axis) for step in plan(src, dst, (4, 4), 4)] == [
        ("reduce_scatter", 0),
        ("all_reduce", 1),
    ]


def test_an_axis_that_is_replicate_at_both_ends_takes_no_part():
    # Slice, all_reduce, all_gather would receive fewer bytes, on links that the layouts do not name.
    mesh = make_mesh(2, 4)
    (step,) = plan(layout(mesh, Replicate(), Partial()), layout(mesh, Replicate(), Replicate()), (4, 4), 4)
    assert (step.kind, step.axis) == ("all_reduce", 1)


def test_of_equal_bytes_fewer_collectives():
    # reduce_scatter and all_gather together receive as much as one all_reduce.
    (step,) = plan(layout(ONE, Partial()), layout(ONE, Replicate()), (8, 16), 4)
    assert step.kind == "all_reduce"


def test_of_equal_bytes_and_steps_fewer_collectives():
    # All-to-all, slice, all-to-all, reduce-scatter would receive as much in as many steps.
    mesh = make_mesh(2, 2, 2)
    src, dst = layout(mesh, Replicate(), Partial(), Shard(1)), layout(mesh, Shard(1), Shard(0), Shard(1))
    assert [step.kind for step in plan(src, dst, (2, 4), 4)] == [
        "reduce_scatter",
        "all_gather",
        "slice",
        "slice",
    ]


def test_an_axis_of_size_one_costs_nothing():
    mesh = make_mesh(1, 2)
    for before, after in [(Replicate(), Shard(0)), (Shard(0), Replicate()), (Partial(), Shard(0))]:
        (step,) = plan(layout(mesh, before, Shard(0)), layout(mesh, after, Shard(0)), (4, 2), 4)
        assert (step.axis, step.bytes) == (0, 0)


def test_equal_questions_share_one_answer():
    src, dst = layout(ONE, Shard(0)), layout(ONE, Shard(1))
    assert plan(src, dst, (8, 16), 4) is plan(src, dst, (8, 16), 4)
    assert plan.cache_info().maxsize is not None


def test_plans_do_not_depend_on_the_rank_or_the_hash_seed():
    import subprocess
    import sys

    code = (
        "from hyper_layout import *\n"
        "mesh = DeviceMesh('cpu', (2, 2, 2), ('dp', 'cp', 'tp'))\n"
        "src = Layout.from_dim_axes(mesh, [(0, 1, 2), ()])\n"
        "dst = Layout.from_dim_axes(mesh, [(2, 1), (0,)])\n"
        "print(plan(src, dst, (8, 8), 4))"
    )
    outputs = set()
    for seed in ("1", "2"):
        run = [sys.executable, "-c", code]
        outputs.add(subprocess.run(run, env={"PYTHONHASHSEED": seed}, capture_output=True, check=True).stdout)
    assert len(outputs) == 1


def test_bad_questions():
    one = layout(ONE, Shard(0))
    other = layout(DeviceMesh("cpu", (4,), NAMES[:1], [4, 5, 6, 7]), Shard(0))
    with pytest.raises(
        LayoutError, match=r"between the meshes .* ranks 0..3\) and .* ranks 4..7\): .*\.transfers\(\) says"
    ):
        plan(one, other, (8, 16), 4)
    with pytest.raises(LayoutError, match="dim 0 of size 6"):
        plan(one, layout(ONE, Shard(1)), (6, 16), 4)
    with pytest.raises(LayoutError, match="dim 1 of size 6"):
        plan(one, layout(ONE, Shard(1)), (8, 6), 4)
    with pytest.raises(LayoutError, match="rank 2"):
        plan(one, layout(ONE, Shard(1)), (8,), 4)
    with pytest.raises(LayoutError, match="rank 3"):
        plan(one, layout(ONE, Shard(0), ndim=3), (8, 8), 4)
