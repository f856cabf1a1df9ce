"""CONTRIBUTING.md's way to a new operator, followed to the letter on a copy of the operators' package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import ROOT, blocks

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
SECTION = TEXT.partition("## Add an operator in ten minutes\n")[2].partition("\n## ")[0]
LINE, SAMPLE = (
    next("\n".join(block) for _, language, block in blocks(SECTION.splitlines()) if language == wanted)
    for wanted in ("yaml", "python")
)
SOURCES = ROOT / "packages/ops/src/hyper_ops"
YAML = "packages/ops/src/hyper_ops/yaml/elementwise.yaml"
TEST = "tests/platform_torch/ops/test_elementwise.py"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package of the operators, found before the installed one."""
    return Path(
        shutil.copytree(SOURCES, tmp_path / "hyper_ops", ignore=shutil.ignore_patterns("__pycache__"))
    )


def python(copy: Path, *arguments: str) -> str:
    """What a Python that finds the copy prints."""
    finished = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(copy.parent), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.mark.ranks
def test_an_operator_of_a_known_family_is_one_line(copy: Path, tmp_path: Path) -> None:
    assert YAML in SECTION and TEST in SECTION
    (name,) = re.findall(r"(\w+): \{signature", LINE)
    with (copy / "yaml" / Path(YAML).name).open("a") as registrations:
        registrations.write(f"  {LINE.strip()}\n")
    test = (ROOT / TEST).read_text()
    assert test.count("\nUNARY = [") == 1
    (tmp_path / "test_copy.py").write_text(test.replace("\nUNARY = [", f"\nUNARY = [\n    {SAMPLE},\n    "))
    command = re.findall(r"`uv run pytest -n 0 (\S+) (-k \w+)`", SECTION)
    assert command == [(TEST, f"-k {name}")]
    printed = python(
        copy, "-m", "pytest", "-n0", str(tmp_path / "test_copy.py"), "-p", "tests.conftest", "-k", name
    )
    assert "1 passed" in printed
    assert f"`{name}`" in python(copy, "-m", "hyper_parallel", "ops", "--markdown")


def test_a_new_family_is_two_files(copy: Path) -> None:
    sample = ROOT / "tests/samples/hyper_ops_sample/src/hyper_ops_sample"
    shutil.copy(sample / "distance.py", copy)
    shutil.copy(sample / "yaml" / "distance.yaml", copy / "yaml")
    code = "import hyper_ops, hyper_dispatch; hyper_ops.load_ops(); print(hyper_dispatch.find_op('cdist'))"
    assert "hyper_ops.distance.Distance" in python(copy, "-c", code)


def test_an_operator_touches_at_most_two_files_and_never_the_dispatcher() -> None:
    known, new, _ = re.split(r"\n\*\*", SECTION.partition("**")[2])
    for recipe in (known, new):
        files = set(re.findall(r"packages/[\w/]+\.\w+", recipe))
        assert 0 < len(files) <= 2, files
        assert not any("dispatch" in file for file in files)
    assert "one line" in known and all(
        file.endswith(".yaml") for file in re.findall(r"packages/[\w/]+\.\w+", known)
    )
