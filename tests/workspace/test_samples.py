"""The sample packages of third parties: installed for real, and found by their entry points alone."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.documents import ROOT, blocks

SAMPLES = ROOT / "tests" / "samples"

pytestmark = [pytest.mark.ranks, pytest.mark.xdist_group("samples")]


@pytest.mark.parametrize(
    ("document", "sample"),
    [("CONTRIBUTING.md", "hyper_ops_sample"), ("docs/add-a-platform.md", "hyper_platform_sample")],
)
def test_the_document_names_the_entry_points_of_the_sample(document: str, sample: str) -> None:
    (shown,) = (
        "\n".join(b) for _, kind, b in blocks((ROOT / document).read_text().splitlines()) if kind == "toml"
    )
    groups = [tomllib.loads(text)["project"]["entry-points"].keys() for text in (shown, _settings(sample))]
    assert groups[0] == groups[1]


def _settings(sample: str) -> str:
    return (SAMPLES / sample / "pyproject.toml").read_text()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which both samples are installed, beside the environment of this run."""
    target = tmp_path_factory.mktemp("installed")
    packages = map(str, sorted(SAMPLES.glob("hyper_*")))
    command = [
        "uv",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--python",
        sys.executable,
        "--target",
        str(target),
    ]
    subprocess.run([*command, *packages], check=True, timeout=100)
    return target


def run(installed: Path, folder: Path, *arguments: str) -> str:
    """What a Python that finds the samples prints, in a folder."""
    finished = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=115,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def test_a_family_out_of_tree_has_the_gradients_of_one_device(installed: Path) -> None:
    passed = run(installed, SAMPLES / "hyper_ops_sample", "-m", "pytest", "-p", "no:cacheprovider")
    assert " passed" in passed and "skipped" not in passed


def test_an_adapter_out_of_tree_passes_the_first_milestone(installed: Path, tmp_path: Path) -> None:
    suite = ("-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "--pyargs", "hyper_conformance")
    passed = run(installed, tmp_path, *suite, "--platform", "sample", "--milestone", "1")
    assert "sample: milestone 1 (processes, tensors, collectives) passed:" in passed
    assert "skipped" not in passed


def test_the_command_line_finds_both(installed: Path, tmp_path: Path) -> None:
    environment = run(installed, tmp_path, "-m", "hyper_parallel", "info")
    assert "sample" in environment
    assert "cdist" in run(installed, tmp_path, "-m", "hyper_parallel", "ops")
