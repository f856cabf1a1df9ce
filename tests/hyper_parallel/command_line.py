"""Running a command as a user does."""

from __future__ import annotations

from typer.testing import CliRunner

from hyper_parallel.cli import app

__all__ = ["run"]


def run(*arguments: str, code: int = 0) -> str:
    """What a command prints, errors included. An exception that it does not handle is the test's."""
    result = CliRunner().invoke(app, list(arguments), prog_name="hyper-parallel", catch_exceptions=False)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result.output
