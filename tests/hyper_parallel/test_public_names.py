"""The public names are frozen: a change of the list is a change of the API and belongs in CHANGELOG.md."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import hyper_parallel

FROZEN = Path(__file__).with_name("public_names.txt").read_text().split()


def names_for_type_checkers() -> dict[str, str]:
    """Name to module, from the imports under ``if TYPE_CHECKING``."""
    assert hyper_parallel.__file__ is not None
    tree = ast.parse(Path(hyper_parallel.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    found: dict[str, str] = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom) and node.module is not None
        found.update({alias.name: node.module for alias in node.names})
    return found


def test_public_names_are_the_frozen_ones() -> None:
    assert hyper_parallel.__all__ == FROZEN
    assert set(dir(hyper_parallel)) >= set(FROZEN)


def test_type_checkers_and_the_interpreter_see_the_same() -> None:
    assert names_for_type_checkers() == hyper_parallel._OWNERS
    assert set(hyper_parallel._OWNERS) == set(FROZEN)


@pytest.mark.parametrize("name", FROZEN)
def test_name_is_what_its_owner_exports(name: str) -> None:
    owner = import_module(hyper_parallel._OWNERS[name])
    assert getattr(hyper_parallel, name) is getattr(owner, name)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'hyper_parallel' has no attribute 'Shrad'"):
        hyper_parallel.Shrad  # noqa: B018


def test_import_brings_in_no_framework_and_nothing_else() -> None:
    code = (
        "import sys, hyper_parallel\n"
        "loaded = [name for name in sys.modules if name in ('torch', 'mindspore', 'numpy')"
        " or name.startswith('hyper_')]\n"
        "assert loaded == ['hyper_parallel'], loaded\n"
        "for name in hyper_parallel.__all__: getattr(hyper_parallel, name)\n"
        "assert not {'torch', 'torch_npu', 'mindspore'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
