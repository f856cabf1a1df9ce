"""The Python programs in the Markdown documents, and what they print.

A program starts at a block whose first line says how it is run, as the reader would run it::

    # mlp.py: run with "uv run torchrun --nproc-per-node 2 mlp.py"

A block without such a line goes on with the program before it. What a program prints stands behind the ``print``
(``print(x)  # this: and a remark``) or in a ``text`` block. A block that cannot be run has the comment
``<!-- not run: the reason -->`` in the line before it.
"""

from __future__ import annotations

import contextlib
import io
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["ROOT", "Program", "blocks", "check_output", "documents", "execute", "programs"]

ROOT = Path(__file__).parents[2]

_HEADER = re.compile(r'# (?P<name>\S+\.py): run with "uv run (?P<command>[^"]+)"')
_PRINTED = re.compile(r"\s*print\(.*\)  # (?P<said>.*)")
_NOT_RUN = re.compile(r"<!-- not run: .+ -->")


@dataclass
class Program:
    """One program of a document.

    Attributes:
        document: Path of the document in the repository.
        name: The file that the reader would write it into.
        command: How it is run, without ``uv run``.
        lines: The document with everything blank that is not of this program: errors have its line numbers.
        expected: What it prints, line by line.
    """

    document: str
    name: str
    command: str
    lines: list[str]
    expected: list[str] = field(default_factory=list)

    @property
    def source(self) -> str:
        """The program."""
        return "\n".join(self.lines) + "\n"

    @property
    def ranks(self) -> int:
        """How many ranks the command starts."""
        found = re.search(r"(?:--nproc-per-node |--worker_num=)(\d+)", self.command)
        return int(found[1]) if found else 1

    @property
    def starts_ranks(self) -> bool:
        """Whether it runs on ranks: by its command, or a test that starts some."""
        return self.ranks > 1 or self.command.startswith("pytest")

    def __str__(self) -> str:
        return f"{self.document}:{self.name}"


def documents() -> list[Path]:
    """The documents of the repository (those of the packages are tested with their package)."""
    return [
        *sorted(ROOT.glob("*.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
        ROOT / "benchmarks" / "README.md",
    ]


def programs(document: Path) -> list[Program]:
    """The programs of a document, in their order.

    Raises:
        ValueError: If a block says neither how it is run nor why it is not.
    """
    found: list[Program] = []
    text = document.read_text(encoding="utf-8").splitlines()
    for start, language, block in blocks(text):
        if language == "text" and found:
            found[-1].expected += block
        if language != "python" or _NOT_RUN.fullmatch(text[start - 2].strip() if start > 1 else ""):
            continue
        header = _HEADER.match(block[0])
        if header is not None:
            name = str(document.relative_to(ROOT))
            found.append(Program(name, header["name"], header["command"], [""] * len(text)))
        if not found:
            raise ValueError(
                f"{document}:{start}: the first line of a block says how it is run: {_HEADER.pattern}"
            )
        found[-1].lines[start : start + len(block)] = block
        found[-1].expected += [printed["said"] for line in block if (printed := _PRINTED.fullmatch(line))]
    return found


def blocks(text: list[str]) -> Iterator[tuple[int, str, list[str]]]:
    """Number of the line that opens it (from 1), language and lines of every fenced block."""
    start = None
    for number, line in enumerate(text, 1):
        if not line.lstrip().startswith("```"):
            continue
        if start is None:
            start = number
        else:
            block = textwrap.dedent("\n".join(text[start : number - 1])).splitlines()
            yield start, text[start - 1].lstrip(" `"), block
            start = None


def execute(source: str, document: str) -> str:
    """Run a program in this process, as its main module; returns what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, document, "exec"), {"__name__": "__main__"})
    return printed.getvalue()


def check_output(program: Program, printed: str) -> None:
    """Compare with what the document shows, where a remark may follow (``: like this``)."""
    lines = printed.splitlines()
    same = len(lines) == len(program.expected) and all(
        shown == line or shown.startswith(f"{line}: ")
        for shown, line in zip(program.expected, lines, strict=True)
    )
    assert same, f"{program} printed\n{printed}\nand the document shows\n" + "\n".join(program.expected)
