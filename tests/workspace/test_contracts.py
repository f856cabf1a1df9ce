"""The import contracts hold, and each of them fails when its rule is broken."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
CONTRACTS = {contract["id"]: contract["name"] for contract in SETTINGS["contracts"]}

# contract, module that gets the import, the import; several where a contract says several things
PLANTS = [
    ("layers", "hyper_layout", "import hyper_dtensor"),
    ("layers", "hyper_dtensor", "import hyper_dispatch"),
    ("layers", "hyper_dispatch", "import hyper_ops"),
    ("layers", "hyper_ops", "import hyper_platform_torch"),
    ("layers", "hyper_platform_ms", "import hyper_parallel"),
    ("layers", "hyper_platform_torch", "import hyper_conformance"),
    ("layers", "hyper_conformance", "import hyper_parallel"),
    ("no-framework", "hyper_layout", "import torch"),
    ("no-framework", "hyper_dtensor", "def late():\n    import mindspore"),
    ("no-framework", "hyper_parallel", "from torch_npu import npu"),
    ("no-framework", "hyper_conformance", "import torch"),
    ("adapters", "hyper_platform_ms", "import hyper_platform_torch"),
    ("styles-and-ops", "hyper_tensor_parallel", "import hyper_ops"),
    ("styles", "hyper_tensor_parallel", "import hyper_dispatch"),
    ("facade", "hyper_parallel", "import hyper_platform_torch"),
    ("facade", "hyper_conformance", "import hyper_platform_ms"),
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what the linter reads."""
    for source in ROOT.glob("packages/*/src"):
        shutil.copytree(source, tmp_path / source.relative_to(ROOT), ignore=shutil.ignore_patterns("*.pyc"))
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def plant(tree: Path, package: str, lines: str) -> None:
    (source,) = tree.glob(f"packages/*/src/{package}")
    (source / "planted.py").write_text(f"{lines}\n")


def lint(tree: Path, *options: str) -> subprocess.CompletedProcess[str]:
    scripts = str(Path(sys.executable).parent)
    environment = os.environ | {"PATH": scripts + os.pathsep + os.environ["PATH"], "COLUMNS": "200"}
    return subprocess.run(
        ["bash", str(tree / ".ci" / "lint-imports"), "--no-cache", *options],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_this_tree_keeps_every_contract(tree: Path) -> None:
    result = lint(tree)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"Contracts: {len(CONTRACTS)} kept, 0 broken." in result.stdout


@pytest.mark.parametrize(("contract", "package", "lines"), PLANTS)
def test_a_planted_import_breaks_its_contract(tree: Path, contract: str, package: str, lines: str) -> None:
    plant(tree, package, lines)
    result = lint(tree, "--contract", contract)
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"{CONTRACTS[contract]} BROKEN" in result.stdout
    assert f"{package}.planted" in result.stdout


def test_an_indirect_framework_import_breaks_its_contract(tree: Path) -> None:
    plant(tree, "hyper_platform_ms", "import mindspore")
    plant(tree, "hyper_ops", "import hyper_platform_ms.planted")
    result = lint(tree, "--contract", "no-framework")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "hyper_ops is not allowed to import mindspore" in result.stdout


def test_every_contract_has_a_plant() -> None:
    assert {contract for contract, _, _ in PLANTS} == set(CONTRACTS)


def test_every_member_is_linted_and_has_a_layer() -> None:
    members = {source.name for source in ROOT.glob("packages/*/src/*") if source.name != "__pycache__"}
    assert set(SETTINGS["root_packages"]) == members
    (layers,) = (contract["layers"] for contract in SETTINGS["contracts"] if contract["id"] == "layers")
    assert {package for layer in layers for package in layer.split(" | ")} == members
