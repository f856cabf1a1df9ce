"""The dispatcher knows no operation by name, and imports nothing by name outside of the registry."""

from __future__ import annotations

import ast
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "packages/dispatch/src/hyper_dispatch").glob("*.py"))
FAMILIES = sorted((ROOT / "packages/ops/src/hyper_ops/yaml").glob("*.yaml"))


def literals(path: Path) -> set[str]:
    """The string literals of a module, docstrings excluded."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    }


def registered_names() -> set[str]:
    """Every operation name in the YAML files of the families, aliases included."""
    names: set[str] = set()
    for path in FAMILIES:
        for name, entry in (yaml.safe_load(path.read_text(encoding="utf-8")).get("ops") or {}).items():
            names |= {name, *entry.get("aliases", ())}
    return names


def test_no_operation_is_named() -> None:
    names = {name for name in registered_names() if len(name) >= 3}
    assert len(names) > 100
    # A platform's autograd has verbs of its own; `out` and `inplace` are words of every operation.
    for path in SOURCES:
        assert not literals(path) & names, f"{path.name} names operations: {sorted(literals(path) & names)}"


def test_names_are_imported_in_the_registry_only() -> None:
    for path in SOURCES:
        if path.name != "registry.py":
            assert "importlib" not in path.read_text(encoding="utf-8"), path.name
