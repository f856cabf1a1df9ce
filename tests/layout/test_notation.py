import pytest

from hyper_layout import (
    DeviceMesh,
    Layout,
    LayoutError,
    Partial,
    Replicate,
    Shard,
    StridedShard,
    format_layout,
    parse_layout,
    parse_placement,
    parse_placements,
)
from tests.layout.every_layout import every_layout

MESH = DeviceMesh("cpu", (2, 4), ("dp", "tp"))


def test_format():
    assert (
        format_layout("f32", (8, 16), Layout(MESH, (Shard(0), Partial()), 2)) == "f32[8,16] dp:S(0) tp:P(sum)"
    )
    assert format_layout("i64", (), Layout(MESH, (Replicate(), Replicate()), 0)) == "i64[] dp:R tp:R"


def test_every_layout_is_read_back():
    for shape in ((), (8,), (8, 16), (8, 16, 8)):
        for layout in every_layout(MESH, len(shape)):
            assert parse_layout(format_layout("bf16", shape, layout), MESH) == ("bf16", shape, layout)


def test_the_reader_is_generous():
    expected = ("f32", (8, 16), Layout(MESH, (Shard(0), Partial()), 2))
    assert parse_layout("  f32[8, 16]   tp:P(sum)  dp:S(-2) ", MESH) == expected
    strided = Layout.from_dim_axes(MESH, [(1, 0)])
    assert strided.notation == "dp:SS(0, 4) tp:S(0)"
    assert parse_layout("f32[8] dp:SS(0,4) tp:S(0)", MESH)[2] is strided


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dp:S(0) tp:R", "does not begin with a dtype and a shape"),
        ("f32[8,] dp:S(0) tp:R", "does not begin with a dtype and a shape"),
        ("f32[8]dp:S(0) tp:R", "does not begin with a dtype and a shape"),
        ("f32[8] dp:S(0)", "says nothing of mesh axis 'tp'"),
        ("f32[8] dp:S(0) dp:R tp:R", "names mesh axis 'dp' twice"),
        ("f32[8] dp:S(0) cp:R", "'cp' is not known: this mesh has 'dp', 'tp'"),
        ("f32[8] dp:S(0) tp", "'tp' does not begin with an axis"),
        ("f32[8] dp:S(0) tp:Q", "'Q' is no placement"),
        ("f32[8] dp:S(0)tp:R", "does not begin with an axis"),
        ("f32[8] dp:S(1) tp:R", "out of range"),
    ],
)
def test_bad_text(text: str, message: str):
    with pytest.raises(LayoutError, match=message):
        parse_layout(text, MESH)


def test_placements_alone():
    for layout in every_layout(MESH, 2):
        listed = ",".join(placement.notation for placement in layout.placements)
        assert parse_placements(layout.notation, MESH) == layout.placements
        assert parse_placements(listed, MESH) == layout.placements
    assert parse_placements(" SS(0,4) , S(-1) ", MESH) == (StridedShard(0, 4), Shard(-1))
    assert parse_placements("P,P(avg)", MESH) == (Partial(), Partial("avg"))
    assert parse_placement("P") is Partial()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("S(0),", "'' is no placement: write R, S"),
        ("", "'' is no placement"),
        ("S(0) R", r"'S\(0\) R' is no placement"),
        ("dp:S(0)", "says nothing of mesh axis 'tp'"),
        ("dp:S(0),tp:R", "does not begin with an axis"),
        ("P(mean),R", "Partial knows the reduce_op sum, avg, max, min, prod, but got 'mean'"),
    ],
)
def test_bad_placements(text: str, message: str):
    with pytest.raises(LayoutError, match=message):
        parse_placements(text, MESH)
