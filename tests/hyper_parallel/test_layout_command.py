"""``hyper-parallel layout``: who holds what, as text and as a picture."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hyper_layout import DeviceMesh, Layout, parse_placements
from hyper_parallel.commands import picture
from tests.hyper_parallel.command_line import run

MESH = ("--mesh", "dp=2,tp=4", "--shape", "8,16", "--placements")
ERROR = "Error: Invalid value for '--"


def rows(output: str) -> list[list[str]]:
    """The cells of a table, by columns of at least three blanks."""
    return [[cell.strip() for cell in line.split("   ") if cell.strip()] for line in output.splitlines()[1:]]


def test_who_holds_what() -> None:
    output = run("layout", *MESH, "S(0),S(1)", "--dtype", "bf16")
    assert output.splitlines()[0] == "bf16[8,16] dp:S(0) tp:S(1) on dp=2,tp=4"
    table = rows(output)
    assert table[0] == ["rank", "coordinates", "slice", "local shape", "bytes"]
    assert table[6] == ["5", "dp=1 tp=1", "[4:8, 4:8]", "[4,4]", "32"]
    assert len(table) == 9


@pytest.mark.parametrize(
    ("placements", "notation"),
    [
        ("R,S(-1)", "dp:R tp:S(1)"),
        ("dp:R tp:S(-1)", "dp:R tp:S(1)"),
        ("P,P(avg)", "dp:P(sum) tp:P(avg)"),
        ("SS(0,4),S(0)", "dp:SS(0, 4) tp:S(0)"),
        (" S(0) , S(0) ", "dp:S(0) tp:S(0)"),
    ],
)
def test_every_rank_has_the_slice_of_the_layout(placements: str, notation: str) -> None:
    mesh = DeviceMesh("cpu", (2, 4), ("dp", "tp"))
    layout = Layout(mesh, parse_placements(placements, mesh), 2)
    output = run("layout", *MESH, placements)
    assert output.startswith(f"[8,16] {notation} on dp=2,tp=4")
    for rank, cells in enumerate(rows(output)[1:]):
        slices = ", ".join(f"{s.start}:{s.stop}" for s in layout.local_slice((8, 16), rank))
        assert cells[2] == f"[{slices}]"


@pytest.mark.parametrize(
    ("written", "short"),
    [
        ("Shard(0),Replicate()", "S(0),R"),
        ("Replicate, Shard(dim=-1)", "R,S(-1)"),
        ("dp:Replicate() tp:Partial()", "dp:R tp:P"),
        ("Partial(sum),Partial('avg')", "P,P(avg)"),
        ("StridedShard(0, 4),Shard(0)", "SS(0,4),S(0)"),
        ("StridedShard(dim=0, split_factor=4),Shard(0)", "SS(0,4),S(0)"),
    ],
)
def test_placements_as_python_writes_them(written: str, short: str) -> None:
    assert run("layout", *MESH, written) == run("layout", *MESH, short)


def test_copies_and_addends_are_named() -> None:
    output = run("layout", *MESH, "R,P(max)")
    assert output.splitlines()[0].endswith("; 8 ranks hold each block")
    assert rows(output)[0][-1] == "addend of" and rows(output)[1][-1] == "max over tp"


@pytest.mark.parametrize("shape", ["(8, 16)", "[8,16]", " 8,16, "])
def test_a_shape_as_it_is_printed(shape: str) -> None:
    assert run("layout", *MESH, "R,R", "--shape", shape).startswith("[8,16] dp:R tp:R")


def test_a_scalar() -> None:
    assert rows(run("layout", "--mesh", "tp=2", "--shape", "()", "--placements", "R", "--dtype", "float64"))[
        1
    ] == [
        "0",
        "tp=0",
        "[]",
        "[]",
        "8",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--mesh", "dp2,tp=4"),
            "mesh': 'dp2,tp=4' is no mesh: write each axis with its size, such as dp=2,tp=4",
        ),
        (("--mesh", ""), "mesh': '' is no mesh"),
        (
            ("--mesh", "tp=0"),
            "mesh': a mesh needs at least one axis and sizes of at least 1, but got shape (0,)",
        ),
        (("--mesh", "tp=2,tp=2"), "mesh': the axes of a mesh need different names, but got ('tp', 'tp')"),
        (("--mesh", "2d=2"), "mesh': a mesh axis is named by an identifier other than 'None', but got '2d'"),
        (("--mesh", "tp=100000"), "mesh': 'tp=100000' has 100000 ranks; at most 4096 are shown"),
        (("--shape", "8x16"), "shape': '8x16' is no shape: write the sizes of all dims, such as 8,16"),
        (("--shape", "8,,16"), "shape': '8,,16' is no shape"),
        (
            ("--shape", ""),
            "shape': '' is no shape: write the sizes of all dims, such as 8,16; that of a scalar is ()",
        ),
        (("--shape", "8,-1"), "shape': '8,-1' is no shape"),
        (
            ("--placements", "S(0),Q"),
            "placements': 'Q' is no placement: write R, S(0), SS(0, 2), P or P(sum)",
        ),
        (("--placements", "Shard(),R"), "placements': 'S' is no placement"),
        (("--placements", "dp:R"), "placements': 'dp:R' says nothing of mesh axis 'tp'"),
        (("--placements", "dp:R cp:R"), "placements': mesh axis 'cp' is not known: this mesh has 'dp', 'tp'"),
        (("--placements", "P(mean),R"), "placements': Partial knows the reduce_op sum, avg, max, min, prod"),
        (("--dtype", "f33"), "dtype': 'f33' is no dtype: write one of f64, f32, f16, bf16,"),
        (("--picture", "who.jpg"), "picture': 'who.jpg': a picture's name ends in .png or .svg"),
        (("--picture", ""), "picture': '': a picture's name ends in .png or .svg"),
        (("--picture", "none/who.png"), "picture': 'none/who.png': there is no folder 'none'"),
    ],
)
def test_what_cannot_be_read(arguments: tuple[str, str], message: str) -> None:
    output = run("layout", *MESH, "S(0),S(1)", *arguments, code=2)
    assert output.startswith("Usage: hyper-parallel layout [OPTIONS]")
    assert ERROR + message in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--placements", "S(0)"),
            "error: a layout needs one placement per mesh axis ('dp', 'tp'), but got 1",
        ),
        (
            ("--placements", "S(0),S(2)"),
            "error: Shard(dim=2) on mesh axis 'tp' is out of range for a tensor of rank 2",
        ),
        (
            ("--shape", "8,18"),
            "error: dim 1 of size 18 cannot be split into 4 equal blocks over mesh axis 'tp' (size 4)",
        ),
        (("--placements", "P,P(max)"), "error: "),
        (("--placements", "SS(0,3),S(0)"), "error: StridedShard(dim=0, split_factor=3) on mesh axis 'dp'"),
    ],
)
def test_what_is_refused(arguments: tuple[str, str], message: str) -> None:
    output = run("layout", *MESH, "S(0),S(1)", *arguments, code=1)
    assert output.startswith(message), output
    assert output.count("\n") == 1, "one line"


def test_what_is_missing() -> None:
    assert "Missing option '--mesh'" in run("layout", "--shape", "8", "--placements", "R", code=2)


# -- pictures -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("suffix", "mesh", "shape", "placements"),
    [
        (".svg", "dp=2,tp=2", "8,16", "S(0),S(1)"),
        (".PNG", "tp=2", "()", "P"),
        (".png", "tp=3", "6", "S(0)"),
        (".svg", "a=1,b=2,c=2", "2,2,2,4", "S(0),P,S(3)"),
        (".png", "tp=10", "0,10", "S(1)"),
    ],
)
def test_a_picture(tmp_path: Path, suffix: str, mesh: str, shape: str, placements: str) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is in the extra hyper-parallel[picture]")
    path = tmp_path / f"who{suffix}"
    arguments = (
        "layout",
        "--mesh",
        mesh,
        "--shape",
        shape,
        "--placements",
        placements,
        "--picture",
        str(path),
    )
    assert run(*arguments).endswith(f"drawn in {path}\n")
    content = path.read_bytes()
    assert content.startswith(b"<?xml" if suffix == ".svg" else b"\x89PNG")
    run(*arguments)
    assert path.read_bytes() == content, "the same layout gives the same file"


def test_every_block_is_drawn_where_it_lies(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is in the extra hyper-parallel[picture]")
    from matplotlib.colors import to_hex
    from matplotlib.figure import Figure

    mesh = DeviceMesh("cpu", (2, 4), ("dp", "tp"))
    layout = Layout(mesh, parse_placements("S(0),S(1)", mesh), 2)
    for rank in mesh.rank_list:
        panel = Figure().subplots()
        picture._draw_rank(panel, layout, (8, 16), rank)
        (mine,) = [patch for patch in panel.patches if to_hex(patch.get_facecolor()) == picture.FILLED]
        down, across = layout.local_slice((8, 16), rank)
        assert (mine.get_x() * 16, (1 - mine.get_y()) * 8) == (across.start, down.stop)
        assert panel.get_title().startswith(f"rank {rank}: dp={rank // 4} tp={rank % 4}\n[")


def test_too_many_ranks_for_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is in the extra hyper-parallel[picture]")
    arguments = (
        "--mesh",
        "tp=65",
        "--shape",
        "65",
        "--placements",
        "R",
        "--picture",
        str(tmp_path / "a.png"),
    )
    message = "error: a picture has a panel per rank, at most 64; the mesh has 65 ranks"
    assert message in run("layout", *arguments, code=1)


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is in the extra hyper-parallel[picture]")
    (tmp_path / "who.png").mkdir()
    output = run("layout", *MESH, "R,R", "--picture", str(tmp_path / "who.png"), code=1)
    assert f"error: cannot write '{tmp_path / 'who.png'}': Is a directory" in output


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    output = run("layout", *MESH, "R,R", "--picture", str(tmp_path / "who.png"), code=1)
    assert "error: a picture needs matplotlib: pip install matplotlib" in output
