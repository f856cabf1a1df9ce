"""The view rule against plain slicing: pure, no process, no framework."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hyper_layout import DeviceMesh, Layout, LayoutError
from hyper_ops.view import groups, regrouped

MESHES = [
    DeviceMesh("cpu", (2,), ("tp",)),
    DeviceMesh("cpu", (2, 2), ("dp", "tp")),
    DeviceMesh("cpu", (2, 3, 2)),
]


def every_dim_axes(mesh, ndim):
    """Every way to hand the axes of a mesh to dims, every order of axes on one dim included."""
    if ndim == 0:
        yield ()
        return
    for dims in product(range(-1, ndim), repeat=mesh.ndim):
        chosen = [[axis for axis, dim in enumerate(dims) if dim == d] for d in range(ndim)]
        yield from product(*[orders(axes) for axes in chosen])


def orders(axes):
    from itertools import permutations

    return list(permutations(axes))


def is_exact(source, shape, output, target):
    """Whether each rank's block, read under the local shape of the output, is its block of the output."""
    whole = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    viewed = whole.reshape(target)
    for rank in source.mesh.rank_list:
        local = whole[source.local_slice(shape, rank)].reshape(output.local_shape(target))
        if not np.array_equal(local, viewed[output.local_slice(target, rank)]):
            return False
    return True


def fits(layout, shape):
    return all(size % count == 0 for size, count in zip(shape, layout.shard_counts, strict=True))


@st.composite
def shapes_and_layout(draw):
    """A shape, another of as many elements, and a layout that cuts the first evenly."""
    atoms = draw(st.lists(st.sampled_from([1, 2, 2, 3, 4, 6]), min_size=0, max_size=5))
    assume(np.prod(atoms, dtype=int) <= 300)

    def regroup():
        cuts = draw(st.lists(st.booleans(), min_size=len(atoms), max_size=len(atoms)))
        sizes = []
        for atom, cut in zip(atoms, cuts, strict=True):
            if cut or not sizes:
                sizes.append(atom)
            else:
                sizes[-1] *= atom
        return tuple(sizes)

    shape, target = regroup(), regroup()
    mesh = draw(st.sampled_from(MESHES))
    choices = [
        layout
        for dim_axes in every_dim_axes(mesh, len(shape))
        if fits(layout := Layout.from_dim_axes(mesh, dim_axes), shape)
    ]
    return shape, target, draw(st.sampled_from(choices))


@given(shapes_and_layout())
@settings(max_examples=200, deadline=None)
def test_what_is_accepted_is_exact(case):
    shape, target, layout = case
    try:
        dim_axes = regrouped("view", layout, shape, target)
    except LayoutError:
        return
    output = Layout.from_dim_axes(layout.mesh, dim_axes)
    assert is_exact(layout, shape, output, target)


@given(shapes_and_layout())
@settings(max_examples=80, deadline=None)
def test_what_is_refused_has_no_exact_layout(case):
    shape, target, layout = case
    assume(layout.mesh.ndim <= 2)
    try:
        regrouped("view", layout, shape, target)
    except LayoutError:
        for dim_axes in every_dim_axes(layout.mesh, len(target)):
            output = Layout.from_dim_axes(layout.mesh, dim_axes)
            if fits(output, target) and output.shard_axes == layout.shard_axes:
                assert not is_exact(layout, shape, output, target)


@given(shapes_and_layout())
@settings(max_examples=60, deadline=None)
def test_groups_have_equal_products_and_cover_both_shapes(case):
    shape, target, _ = case
    found = list(groups(shape, target))
    assert [dim for dims, _ in found for dim in dims] == list(range(len(shape)))
    assert [dim for _, dims in found for dim in dims] == list(range(len(target)))
    for dims, outs in found:
        assert np.prod([shape[d] for d in dims], dtype=int) == np.prod([target[d] for d in outs], dtype=int)


MESH = DeviceMesh("cpu", (2, 2), ("dp", "tp"))
ACCEPTED = [
    # shape, its axes, target, axes of the result
    ((4, 6, 8), ("dp", "None", "tp"), (4, 6, 4, 2), ("dp", "None", "tp", "None")),
    ((4, 6, 4, 2), ("dp", "None", "tp", "None"), (4, 6, 8), ("dp", "None", "tp")),
    ((4, 6, 8), ("dp", "None", "tp"), (24, 8), ("dp", "tp")),
    ((24, 8), ("dp", "tp"), (4, 6, 8), ("dp", "None", "tp")),
    ((4, 6), (("dp", "tp"), "None"), (24,), (("dp", "tp"),)),
    ((4, 6), (("tp", "dp"), "None"), (24,), (("tp", "dp"),)),
    ((24,), (("tp", "dp"),), (2, 12), ("tp", "dp")),
    ((2, 12), ("tp", "dp"), (24,), (("tp", "dp"),)),
    ((2, 2, 6), ("dp", "tp", "None"), (4, 6), (("dp", "tp"), "None")),
    ((8,), ("dp",), (1, 8, 1), ("None", "dp", "None")),
    ((4, 6), ("None", "tp"), (4, 3, 2), None),  # 3 heads over 2 ranks
    ((4, 6), ("None", "tp"), (24,), None),
    ((24,), (("dp", "tp"),), (6, 4), None),
    ((4, 6), ("None", "tp"), (6, 4), None),
    ((0, 8), ("dp", "tp"), (0, 4, 2), ("dp", "tp", "None")),
    ((), (), (1, 1), ("None", "None")),
]


@pytest.mark.parametrize(("shape", "axes", "target", "expected"), ACCEPTED)
def test_table(shape, axes, target, expected):
    layout = Layout.from_device_mesh(MESH)(*axes)
    if expected is None:
        with pytest.raises(LayoutError, match=r"dims? .* of operand 0 .* become"):
            regrouped("view", layout, shape, target)
    else:
        output = Layout.from_dim_axes(MESH, regrouped("view", layout, shape, target))
        assert output is Layout.from_device_mesh(MESH)(*expected)


def test_axes_of_size_one_go_with_their_dim_or_vanish_with_it():
    mesh = DeviceMesh("cpu", (1, 2), ("one", "tp"))
    layout = Layout.from_dim_axes(mesh, [(0,), (1,)])
    assert regrouped("view", layout, (1, 8), (8,)) == [(0, 1)]
    assert regrouped("view", Layout.from_dim_axes(mesh, [(1,), (0,)]), (8, 1), (8,)) == [(1,)]


def test_the_refusal_names_dims_sizes_and_axes():
    layout = Layout.from_device_mesh(MESH)("None", "tp")
    with pytest.raises(LayoutError) as refused:
        regrouped("view", layout, (4, 6), (24,))
    message = str(refused.value)
    for part in ("'tp'", "4 x 6", "dim 0 before dim 1 is not cut to size 1", "become dims 0 (24)"):
        assert part in message
