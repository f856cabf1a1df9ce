"""Writing a generated file: whole, or not at all."""

from __future__ import annotations

from pathlib import Path

__all__ = ["replace"]


def replace(path: Path, content: str) -> None:
    """Write to the end beside the file, then put it in its place: what reads the file meanwhile finds the old one."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(content, encoding="utf-8")
    beside.replace(path)
