"""Reshards between meshes: every block of the new layout is put together from what the old one holds."""

from itertools import pairwise

import numpy as np
import pytest

from hyper_layout import DeviceMesh, Layout, LayoutError, Partial, Replicate, Shard, transfers
from tests.layout.every_layout import every_layout

SHAPE = (8, 16)
TWO = DeviceMesh("cpu", (2,), ("tp",))
FOUR = DeviceMesh("cpu", (4,), ("tp",))
SQUARE = DeviceMesh("cpu", (2, 2), ("dp", "tp"), (5, 4, 7, 6))
WHOLE = [layout for mesh in (TWO, FOUR, SQUARE) for layout in every_layout(mesh, 2, reduce_ops=())]


@pytest.mark.parametrize("src", WHOLE, ids=str)
@pytest.mark.parametrize("dst", WHOLE, ids=str)
def test_every_block_is_put_together_without_overlap(src: Layout, dst: Layout):
    value = np.arange(np.prod(SHAPE)).reshape(SHAPE)
    blocks = {rank: value[src.local_slice(SHAPE, rank)] for rank in src.mesh.rank_list}
    made = {rank: np.full(dst.local_shape(SHAPE), -1) for rank in dst.mesh.rank_list}
    for piece in transfers(src, dst, SHAPE, itemsize=4):
        part = blocks[piece.source][piece.source_region]
        np.testing.assert_array_equal(part, value[piece.region])
        assert piece.bytes == part.size * 4
        assert (made[piece.target][piece.target_region] == -1).all()
        made[piece.target][piece.target_region] = part
    for rank, block in made.items():
        np.testing.assert_array_equal(block, value[dst.local_slice(SHAPE, rank)])


def test_from_two_ranks_to_four_each_takes_half_a_block():
    found = transfers(Layout(TWO, (Shard(0),), 2), Layout(FOUR, (Shard(0),), 2), SHAPE, itemsize=2)
    assert [(piece.source, piece.target, piece.bytes) for piece in found] == [
        (0, 0, 64),
        (0, 1, 64),
        (1, 2, 64),
        (1, 3, 64),
    ]


def test_a_rank_that_holds_the_block_takes_its_own():
    src, dst = Layout(SQUARE, (Replicate(), Shard(0)), 2), Layout(SQUARE, (Replicate(), Shard(0)), 2)
    assert all(piece.source == piece.target for piece in transfers(src, dst, SHAPE, 4))


def test_holders_of_one_block_serve_the_others_in_turns():
    src = Layout(TWO, (Replicate(),), 2)
    dst = Layout(DeviceMesh("cpu", (4,), ("tp",), (4, 5, 6, 7)), (Shard(1),), 2)
    assert [piece.source for piece in transfers(src, dst, SHAPE, 4)] == [0, 1, 0, 1]


def test_transfers_are_ordered_by_target_and_place():
    found = transfers(Layout(FOUR, (Shard(1),), 2), Layout(TWO, (Shard(0),), 2), SHAPE, 4)
    assert [piece.target for piece in found] == [0] * 4 + [1] * 4
    assert all(a.region[1].stop == b.region[1].start for a, b in pairwise(found[:4]))


def test_a_number_and_an_empty_tensor():
    assert [
        t.bytes for t in transfers(Layout(TWO, (Replicate(),), 0), Layout(FOUR, (Replicate(),), 0), (), 8)
    ] == [8] * 4
    assert transfers(Layout(TWO, (Replicate(),), 1), Layout(FOUR, (Replicate(),), 1), (0,), 8) == ()


def test_a_partial_is_refused():
    whole, partial = Layout(FOUR, (Shard(0),), 2), Layout(TWO, (Partial(),), 2)
    for src, dst in ((partial, whole), (whole, partial)):
        with pytest.raises(LayoutError, match=r"'tp:P\(sum\)' is Partial: .* Reduce it first"):
            transfers(src, dst, SHAPE, 4)


def test_another_rank_and_uneven_blocks_are_refused():
    two, four = Layout(TWO, (Shard(0),), 2), Layout(FOUR, (Shard(0),), 3)
    with pytest.raises(LayoutError, match="tensors of rank 3"):
        transfers(two, four, SHAPE, 4)
    with pytest.raises(LayoutError, match="dim 0 of size 6"):
        transfers(two, Layout(FOUR, (Shard(0),), 2), (6, 16), 4)
