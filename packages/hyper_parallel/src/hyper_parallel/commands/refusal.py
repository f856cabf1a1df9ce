"""How a command ends where it cannot do what was asked: one line, exit code 1, no traceback.

What cannot even be read (a mesh string, a dtype) is a matter of usage: exit code 2, from the parser.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

__all__ = ["refusals", "refuse"]


def refuse(message: str) -> typer.Exit:
    """Print why, and make the exit to raise."""
    typer.echo(f"error: {message}", err=True)
    return typer.Exit(1)


@contextmanager
def refusals() -> Iterator[None]:
    """Turn what the library refuses (a ``ValueError``) into the end of the command."""
    try:
        yield
    except ValueError as error:
        raise refuse(str(error)) from None
