"""``hyper-parallel plan``: the steps, bytes and cost of a redistribution."""

from __future__ import annotations

import pytest

from hyper_layout import DeviceMesh, Layout, parse_placements, plan
from tests.hyper_parallel.command_line import run

WHERE = ("--mesh", "dp=2,tp=4", "--shape", "8,16")


def test_the_steps_and_their_cost() -> None:
    output = run("plan", "S(0),P", "S(0),S(1)", *WHERE).splitlines()
    assert output[0] == "f32[8,16] dp:S(0) tp:P(sum) -> dp:S(0) tp:S(1) on dp=2,tp=4"
    assert " ".join(output[1].split()) == "step kind mesh axis there bytes received layout after it"
    assert " ".join(output[2].split()) == "1 reduce_scatter tp (size 4) P(sum) -> S(1) 192 dp:S(0) tp:S(1)"
    assert output[3:] == ["total: each rank receives 192 bytes in 1 collective"]


@pytest.mark.parametrize("goal", ["R,R", "S(1),S(1)", "S(1),R", "P(avg),R", "R,S(0)"])
@pytest.mark.parametrize("source", ["S(0),S(1)", "P,P", "R,S(1)", "P(avg),S(0)"])
def test_it_is_the_plan_of_the_layout_package(source: str, goal: str) -> None:
    mesh = DeviceMesh("cpu", (2, 4), ("dp", "tp"))
    src, dst = (Layout(mesh, parse_placements(text, mesh), 2) for text in (source, goal))
    steps = plan(src, dst, (8, 16), 2)
    output = run("plan", source, goal, *WHERE, "--dtype", "bfloat16").splitlines()
    assert output[0] == f"bf16[8,16] {src.notation} -> {dst.notation} on dp=2,tp=4"
    for line, step in zip(output[2:-1], steps, strict=True):
        assert line.endswith(step.layout.notation)
        assert line.split()[1] == step.kind and f" {step.bytes} " in line
        # What becomes of the axis is also what the layouts before and after say.
        change = line.split(")", 1)[1].split(f" {step.bytes} ")[0].strip()
        assert change.endswith(step.layout.placements[step.axis].notation.replace("SS(0, 2)", "S(0)"))
    assert output[-1].startswith(f"total: each rank receives {sum(step.bytes for step in steps)} bytes in ")


def test_the_kinds_say_what_becomes_of_the_axis() -> None:
    shown = run(
        "plan", "P,R,S(0),R,S(1)", "R,P(max),R,S(0),S(2)", "--mesh", "a=2,b=2,c=2,d=2,e=2", "--shape", "8,8,8"
    )
    for change in ("S(0) -> R", "R -> P(max)", "-> S("):
        assert change in shown
    assert "P(sum) -> R" in run("plan", "P", "R", "--mesh", "tp=2", "--shape", "3")
    assert "S(0) -> S(1)" in run("plan", "S(0)", "S(1)", "--mesh", "tp=2", "--shape", "2,2")
    assert "R -> S(0)" in run("plan", "R", "S(0)", "--mesh", "tp=2", "--shape", "2")


def test_bytes_of_an_element() -> None:
    assert "Without either: f32." in " ".join(run("plan", "--help").split())
    assert "receives 48 bytes" in run(
        "plan", "S(0)", "R", "--mesh", "tp=2", "--shape", "32", "--itemsize", "3"
    )
    assert "[32] tp:S(0)" in run("plan", "S(0)", "R", "--mesh", "tp=2", "--shape", "32", "--itemsize", "3")
    message = "a dtype says the bytes of an element: give --dtype or --itemsize, not both"
    assert message in run(
        "plan", "R", "R", "--mesh", "tp=2", "--shape", "2", "--itemsize", "3", "--dtype", "f32", code=2
    )
    assert "Invalid value for '--itemsize'" in run("plan", "R", "R", *WHERE, "--itemsize", "0", code=2)


def test_nothing_to_do() -> None:
    assert run("plan", "S(0),R", "S(0),R", *WHERE).endswith("nothing to do: both are one layout\n")


def test_an_axis_of_size_one_sends_nothing() -> None:
    assert run("plan", "S(0)", "R", "--mesh", "tp=1", "--shape", "3").endswith("0 bytes in 0 collectives\n")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("Q,R", "R,R"), 2, "Error: Invalid value for 'SRC': 'Q' is no placement"),
        (("R,R", "dp:R"), 2, "Error: Invalid value for 'DST': 'dp:R' says nothing of mesh axis 'tp'"),
        (("R,R",), 2, "Error: Missing argument 'DST'"),
        (("R,R", "R"), 1, "error: a layout needs one placement per mesh axis ('dp', 'tp'), but got 1"),
        (("R,S(0)", "R,S(5)"), 1, "error: Shard(dim=5) on mesh axis 'tp' is out of range"),
        (
            ("R,S(0)", "S(0),S(0)"),
            1,
            "error: dim 0 of size 12 cannot be split into 8 equal blocks over mesh axis",
        ),
    ],
)
def test_a_users_mistake(arguments: tuple[str, ...], code: int, message: str) -> None:
    assert message in run("plan", *arguments, "--mesh", "dp=2,tp=4", "--shape", "12,16", code=code)


def test_more_axes_than_can_be_searched() -> None:
    mesh = ("--mesh", "a=2,b=2,c=2,d=2,e=2,f=2,g=2,h=2", "--shape", "128")
    message = "error: 7 mesh axes take part; the ways over more than 6 are too many to search"
    assert message in run("plan", "S(0),S(0),S(0),S(0),S(0),S(0),S(0),R", "R,R,R,R,R,R,R,R", *mesh, code=1)
    assert "nothing to do" in run("plan", "R,R,R,R,R,R,R,R", "R,R,R,R,R,R,R,R", *mesh)
