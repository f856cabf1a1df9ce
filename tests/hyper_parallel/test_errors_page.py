"""``docs/errors.md``: its examples raise what it says, and its texts are those of the sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hyper_parallel
from tests.support import simulated as sim

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "errors.md").read_text()
EXAMPLES = re.findall(r"^```pycon\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
TEXTS = re.findall(r"\*\*`([^`]+)`\*\*", PAGE)
PLACE = "\0"
"""Stands for a formatted value in the text of a source."""


@pytest.fixture(autouse=True)
def without_a_framework() -> Iterator[None]:
    with sim.simulated_platform():
        yield


def run(lines: list[str], names: dict[str, Any]) -> None:
    """Run the lines of a block; what stands below one is the beginning of its error."""
    statement = ""
    expected: list[str] = []
    for line in [*lines, ">>> "]:
        if not line.startswith(">>> "):
            expected.append(line)
            continue
        if statement and expected:
            with pytest.raises(Exception) as caught:  # which one is compared
                exec(statement, names)
            said = f"{type(caught.value).__name__}: {caught.value}"
            assert said.startswith("\n".join(expected)), f"{statement}\nraises\n{said}"
        elif statement:
            exec(statement, names)
        statement, expected = line.removeprefix(">>> "), []


@pytest.mark.parametrize("block", EXAMPLES[1:], ids=lambda block: block.partition("\n")[0])
def test_an_example_raises_what_it_says(block: str) -> None:
    names: dict[str, Any] = {"tensor": sim.tensor}
    run(EXAMPLES[0].splitlines(), names)
    assert "\n" in block.strip(), "an example shows the error that it raises"
    run(block.splitlines(), names)


def texts_of_the_sources() -> list[str]:
    """All string literals of the packages, with a mark for each formatted value."""
    found = []
    for path in REPOSITORY.glob("packages/*/src/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else PLACE for part in node.values]
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


SOURCES = texts_of_the_sources()


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_that_of_a_source(text: str) -> None:
    """``...`` stands for what changes from case to case."""
    pattern = re.compile(
        ".*".join(re.escape(part.strip()) for part in text.split("...") if part.strip()), re.DOTALL
    )
    assert any(pattern.search(source) for source in SOURCES), (
        f"no source says {text!r}: correct docs/errors.md"
    )


def test_every_public_error_is_on_the_page() -> None:
    errors = {
        node.name
        for path in REPOSITORY.glob("packages/*/src/**/*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and node.name.endswith("Error") and not node.name.startswith("_")
    }
    assert {"LayoutError", "RuleError", "RegistryError", "RankError"} <= errors
    assert [name for name in sorted(errors) if f"| `{name}` |" not in PAGE] == []
    assert issubclass(hyper_parallel.RuleError, hyper_parallel.LayoutError)
    assert issubclass(hyper_parallel.LayoutError, ValueError) and issubclass(
        hyper_parallel.RegistryError, ValueError
    )


def test_every_package_that_refuses_is_on_the_page() -> None:
    """Each is represented by a text of its own sources."""
    for package in ("hyper_layout", "hyper_dtensor", "hyper_dispatch", "hyper_ops", "hyper_tensor_parallel"):
        own = "".join(path.read_text() for path in REPOSITORY.glob(f"packages/*/src/{package}/*.py"))
        assert any(text.partition("...")[0].strip() in own for text in TEXTS), package
