"""Every Python program in the documents runs, and prints what the document shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import ROOT, Program, check_output, documents, execute, programs

PROGRAMS = [program for document in documents() for program in programs(document)]


def run(program: Program, folder: Path) -> str:
    """As its command does, from a folder of its own; returns what it (of ranks: the first) printed."""
    launcher, *arguments = program.command.split()
    if launcher == "torchrun":
        from tests.support.ranks import run_once

        return str(run_once(program.ranks, execute, program.source, program.document, process_group=False)[0])
    if launcher == "msrun":
        from tests.support.ms_ranks import MindSporeRankPool

        with MindSporeRankPool(program.ranks, process_group=False) as pool:
            return str(pool.run(execute, program.source, program.document)[0])
    (folder / program.name).write_text(program.source)
    python = [sys.executable, "-W", "error"]
    if launcher == "pytest":
        settings = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder)]
        arguments = ["-m", "pytest", "-p", "tests.conftest", *settings, *arguments]
    elif launcher == "--isolated":  # an environment of its own, which uv makes
        python, arguments = ["uv", "run", launcher], [each.replace("./", f"{ROOT}/") for each in arguments]
    else:
        assert launcher == "python", f"{program}: {launcher} is not known here"
    finished = subprocess.run(
        [*python, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (folder, ROOT)))},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return "" if launcher == "pytest" else finished.stdout


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(program, id=str(program), marks=[pytest.mark.ranks] * program.starts_ranks)
        for program in PROGRAMS
    ],
)
def test_the_program_runs(program: Program, tmp_path: Path) -> None:
    check_output(program, run(program, tmp_path))


def test_the_documents_have_programs() -> None:
    assert {"README.md", "CONTRIBUTING.md", "docs/use-one-layer.md", "docs/gradients.md"} <= {
        program.document for program in PROGRAMS
    }


def test_both_frameworks_share_the_lines_that_distribute() -> None:
    torch, mindspore = (
        set(program.lines) for program in PROGRAMS if program.document == "README.md" and program.ranks > 1
    )
    assert 'mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))' in torch & mindspore
    assert any("parallelize_module(build(), mesh" in line for line in torch & mindspore)


def test_few_blocks_are_not_run() -> None:
    text = "".join(document.read_text() for document in documents())
    assert text.count("\n<!-- not run:") + text.count("\n   <!-- not run:") <= 2


def test_a_block_that_does_not_say_how_it_is_run_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# A page\n\n```python\nprint(1)\n```\n")
    with pytest.raises(ValueError, match=r"page.md:3: the first line of a block says how it is run"):
        programs(tmp_path / "page.md")


def test_output_that_the_document_does_not_show_is_an_error() -> None:
    program = Program("page.md", "a.py", "python a.py", ["print(1)"], expected=["1: one", "2"])
    check_output(program, "1\n2\n")
    for printed in ("1\n", "1\n3\n", "1: two\n2\n", "1\n2\n3\n"):
        with pytest.raises(AssertionError, match=r"page.md:a.py printed"):
            check_output(program, printed)
