"""The Python examples of the READMEs, and what each of them needs in order to run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["READMES", "Example", "examples_in", "examples_of", "run_example"]

ROOT = Path(__file__).parents[2]
READMES = {path.parent.name: path for path in ROOT.glob("packages/*/README.md")} | {
    "root": ROOT / "README.md"
}

# A block of Python, and the block of text that follows it at once: what it prints.
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Example:
    """A block of Python in a README.

    Attributes:
        readme: Folder of the package, or ``"root"``.
        code: The block.
        output: What it prints; ``None`` where the README does not say.
    """

    readme: str
    code: str
    output: str | None

    @property
    def framework(self) -> str | None:
        """The framework it imports and whose ranks it therefore runs on; ``None`` if it needs neither."""
        found = re.findall(r"^import (torch|mindspore)$", self.code, re.MULTILINE)
        return found[0] if found else None


def examples_in(text: str, readme: str) -> list[Example]:
    """The blocks of Python in Markdown, in order."""
    return [Example(readme, code, output or None) for code, output in BLOCK.findall(text)]


def examples_of(framework: str | None) -> list[Example]:
    """The blocks of all READMEs that need this framework."""
    every = (each for name, path in sorted(READMES.items()) for each in examples_in(path.read_text(), name))
    return [example for example in every if example.framework == framework]


def run_example(example: Example) -> None:
    """Run a block as a program of its own would."""
    exec(compile(example.code, f"{example.readme}/README.md", "exec"), {"__name__": "__main__"})
