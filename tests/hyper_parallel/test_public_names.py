"""The public names of every package are frozen; the facade hands out its own lazily.

The lists are in ``public_names/<import name>.txt``. The packages' ``__init__.py`` are read, not imported, so that the
adapters are checked where no framework is installed.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import hyper_parallel

REPOSITORY = Path(__file__).parents[2]
LISTS = Path(__file__).with_name("public_names")
PACKAGES = {path.parent.name: path for path in sorted(REPOSITORY.glob("packages/*/src/*/__init__.py"))}


def frozen(package: str) -> list[str]:
    """The list of a package."""
    return (LISTS / f"{package}.txt").read_text().split()


def public_names(source: str) -> list[str]:
    """What ``__all__`` of a package says; without one, what it defines and what it imports ``as`` itself."""
    found: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            if "__all__" in names:
                return sorted(ast.literal_eval(node.value))  # type: ignore[arg-type]
            found |= names
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.name for alias in node.names if alias.asname == alias.name}
    return sorted(name for name in found if not name.startswith("_"))


def names_for_type_checkers() -> dict[str, str]:
    """Name to module, from the imports under ``if TYPE_CHECKING``."""
    tree = ast.parse(PACKAGES["hyper_parallel"].read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    found: dict[str, str] = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom) and node.module is not None
        found.update({alias.name: node.module for alias in node.names})
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_are_the_frozen_ones(package: str) -> None:
    """The failure is the rule: whoever changes the interface says so in the changelog."""
    now, before = public_names(PACKAGES[package].read_text()), frozen(package)
    added, gone = sorted({*now} - {*before}), sorted({*before} - {*now})
    assert now == before, (
        f"the public names of {package} changed: added {', '.join(added) or 'nothing'}, removed "
        f"{', '.join(gone) or 'nothing'}. If that is meant, say it under 'Unreleased' in CHANGELOG.md, and change "
        f"tests/hyper_parallel/public_names/{package}.txt (one name a line, sorted)."
    )


def test_every_package_has_a_list() -> None:
    assert {path.stem for path in LISTS.iterdir()} == set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_names_exist(package: str) -> None:
    """Where the package can be imported: an adapter cannot without its framework."""
    try:
        module = import_module(package)
    except ModuleNotFoundError as error:
        pytest.skip(f"{package} cannot be imported here: {error}")
    assert [name for name in frozen(package) if not hasattr(module, name)] == []


def test_how_public_names_are_read() -> None:
    assert public_names("from a import b as b, c\nfrom d import e as _e\nX = 1\n_y = 2\ndef f(): ...\n") == [
        "X",
        "b",
        "f",
    ]
    assert public_names("from a import b as b\n__all__ = ['z', 'a']\n") == ["a", "z"]


# -- the facade ---------------------------------------------------------------------------------------------
FACADE = frozen("hyper_parallel")


def test_type_checkers_and_the_interpreter_see_the_same() -> None:
    assert names_for_type_checkers() == hyper_parallel._OWNERS
    assert set(hyper_parallel._OWNERS) == set(FACADE) == set(hyper_parallel.__all__)
    assert set(dir(hyper_parallel)) >= set(FACADE)


@pytest.mark.parametrize("name", FACADE)
def test_name_is_what_its_owner_exports(name: str) -> None:
    owner = import_module(hyper_parallel._OWNERS[name])
    assert getattr(hyper_parallel, name) is getattr(owner, name)


def test_every_error_of_the_packages_below_is_handed_out() -> None:
    """A user catches what the library raises without knowing the packages."""
    errors = set()
    for package in ("hyper_layout", "hyper_dtensor", "hyper_dispatch", "hyper_ops", "hyper_tensor_parallel"):
        module = import_module(package)
        errors |= {
            name
            for name in frozen(package)
            if isinstance(getattr(module, name), type) and issubclass(getattr(module, name), Exception)
        }
    assert errors <= set(FACADE)
    assert errors == {"LayoutError", "RegistryError", "RuleError"}


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
