"""The command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hyper_dispatch import op_names
from hyper_parallel import cli


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


class Point:
    """An installed adapter, as far as its listing goes."""

    def __init__(self, name: str) -> None:
        self.name = name


def test_info_shows_versions_adapters_and_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "entry_points", lambda group: [Point("zeta"), Point("alpha")])
    monkeypatch.setattr(cli, "get_platform", lambda: Point("alpha"))
    output = invoke("info")
    assert "hyper-parallel" in output and "python" in output
    assert "alpha, zeta" in output
    assert any("platform used" in line and "alpha" in line for line in output.splitlines())


def test_info_reports_a_missing_platform_instead_of_failing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise RuntimeError("cannot tell which platform to use")

    monkeypatch.setattr(cli, "get_platform", refuse)
    assert "cannot tell which platform to use" in invoke("info")


def test_ops_lists_every_registered_operator() -> None:
    output = invoke("ops")
    assert f"{len(op_names())} operators" in output
    assert "layer_norm" in output and "scaled_dot_product_attention" in output


def test_the_documented_support_table_is_the_generated_one() -> None:
    documented = Path(__file__).parents[2] / "docs" / "operators.md"
    assert documented.read_text() == invoke("ops", "--markdown"), (
        "run: hyper-parallel ops --markdown > docs/operators.md"
    )


def test_ops_lists_the_users_own_operators_and_names_what_is_wrong_in_them(tmp_path: Path) -> None:
    environment = os.environ | {"HYPER_PARALLEL_OPS_YAML_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "hyper_parallel", "ops"]
    (tmp_path / "own.yaml").write_text("ops:\n  my_shape_of: {local: true}\n")
    good = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert "my_shape_of" in good.stdout and "runs on locals" in good.stdout

    (tmp_path / "own.yaml").write_text("ops:\n  my_shape_of: {lokal: true}\n")
    bad = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert bad.returncode == 1
    assert bad.stderr.startswith("error: ") and "own.yaml" in bad.stderr and "lokal" in bad.stderr
    assert "Traceback" not in bad.stderr


def test_module_runs_as_a_program() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "hyper_parallel", "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "hyper-parallel" in result.stdout
    assert "info" in result.stdout and "ops" in result.stdout
