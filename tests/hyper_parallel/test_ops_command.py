"""``hyper-parallel ops``: the table of operators, the rule of one, and the page of the documentation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hyper_dispatch import RegistryError, op_names
from hyper_ops.catalogue import read_facts
from hyper_parallel.commands import ops
from tests.hyper_parallel.command_line import run

REPOSITORY = Path(__file__).parents[2]
ADAPTERS = {
    "mindspore": REPOSITORY / "packages" / "platform_ms" / "src" / "hyper_platform_ms",
    "torch": REPOSITORY / "packages" / "platform_torch" / "src" / "hyper_platform_torch",
}


@pytest.fixture(autouse=True)
def both_adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    """What both adapters say, also where none is installed."""
    facts = {name: read_facts(folder) for name, folder in ADAPTERS.items()}
    monkeypatch.setattr(ops, "installed_facts", lambda: facts)


def test_all_operators() -> None:
    output = run("ops")
    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert lines[0] == "operator family strategy compared on mindspore compared on torch"
    assert {line.partition(" ")[0] for line in lines[1:-1]} == set(op_names())
    assert "softmax softmax Softmax gradient gradient" in lines
    assert output.endswith(f"{len(op_names())} operators; hyper-parallel ops NAME shows one of them\n")


def test_one_operator() -> None:
    output = run("ops", "sort")
    assert output.startswith("sort: family sort, strategy AlongDim\n")
    for part in (
        "  on torch: torch.sort, Tensor.sort\n    compared with one device: value and gradient\n",
        "  on mindspore: SortExt\n",
        "Rule on one mesh axis: the dim must not be split",
        "called with (x[4,6], dim=1), beside Replicate operands:\n\n    S(0) -> S(0) S(0)\n",
    ):
        assert part in output


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("torch.mm", ["mm"]),
        ("F.gelu", ["gelu"]),
        ("Tensor.__add__", ["add"]),
        ("SortExt", ["sort"]),
        ("torch.nn.functional.gelu", ["gelu"]),
    ],
)
def test_by_the_name_of_a_platform(name: str, found: list[str]) -> None:
    assert [line.partition(":")[0] for line in run("ops", name).splitlines() if ": family" in line] == found


def test_an_operator_that_is_always_refused() -> None:
    assert "    nothing else\n" in run("ops", "transpose_")


def test_an_operator_that_an_adapter_does_not_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "installed_facts", lambda: {"torch": {}})
    assert "  on torch: not in the adapter's table (operators.yaml)\n\nThe rule" in run("ops", "sort")


def test_an_operator_without_an_example() -> None:
    output = run("ops", "_foreach_abs")
    assert "The rule of its family" in output and "Accepted" not in output


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("sotfmax", "; near to it: softmax\n"),
        ("Linaer", "; near to it: linear"),
        ("LAYER_NORM", "; near to it: layer_norm"),
        ("zzzzzz", "; hyper-parallel ops lists them"),
        ("conv2d", "; hyper-parallel ops lists them"),
        ("foo", "; hyper-parallel ops lists them"),
        ("", "; hyper-parallel ops lists them"),
    ],
)
def test_an_unknown_name(name: str, near: str) -> None:
    output = run("ops", name, code=1)
    assert output.startswith(f"error: there is no operator {name!r}{near}")


@pytest.mark.parametrize("text", ["add: [", "- add", "add: 1", "add: {names: 1}"])
def test_what_an_adapter_says_must_be_readable(text: str, tmp_path: Path) -> None:
    (tmp_path / "operators.yaml").write_text(text)
    with pytest.raises(RegistryError, match=r"operators.yaml: each line must be 'operator: .names: "):
        read_facts(tmp_path)
    assert read_facts(tmp_path / "none") == {}


def test_the_page_is_of_all_operators() -> None:
    assert "give a NAME or --markdown, not both" in run("ops", "add", "--markdown", code=2)


def test_the_documented_support_table_is_the_generated_one() -> None:
    documented = (REPOSITORY / "docs" / "operators.md").read_text()
    generated = run("ops", "--markdown")
    assert documented == generated, "run: uv run hyper-parallel ops --markdown > docs/operators.md"


def test_ops_shows_the_users_own_operators_and_names_what_is_wrong_in_them(tmp_path: Path) -> None:
    environment = os.environ | {"HYPER_PARALLEL_OPS_YAML_DIR": str(tmp_path)}

    def program(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "hyper_parallel", "ops", *arguments]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=60
        )

    (tmp_path / "own.yaml").write_text(
        "ops:\n  my_shape_of: {local: true}\n  my_abs: {strategy: elementwise, signature: input}\n"
        "  my_sign: {strategy: elementwise, signature: input, example: 'x[4,3]'}\n"
    )
    good = program()
    assert "my_shape_of" in good.stdout and "runs on locals" in good.stdout
    assert "It runs on the local tensors" in program("my_shape_of").stdout
    mine = program("my_abs").stdout
    assert (
        mine.startswith("my_abs: family others, strategy Elementwise") and "One value of the result" in mine
    )
    assert "Accepted" not in mine
    assert (
        "called with (x[4,3]), beside Replicate operands:\n\n    S(0) -> S(0)\n" in program("my_sign").stdout
    )

    for example in ("x[4,", "x[4], nothing=1", "x['a']", "1"):
        (tmp_path / "own.yaml").write_text(
            f'ops:\n  mine: {{strategy: elementwise, signature: input, example: "{example}"}}\n'
        )
        bad = program("mine")
        assert (bad.returncode, bad.stdout) == (1, "")
        assert bad.stderr.startswith(f"error: operation 'mine': key 'example' is {example!r}, ")

    (tmp_path / "own.yaml").write_text("ops:\n  my_shape_of: {lokal: true}\n")
    bad = program()
    assert bad.returncode == 1
    assert bad.stderr.startswith("error: ") and "own.yaml" in bad.stderr and "lokal" in bad.stderr
    assert "Traceback" not in bad.stderr
