"""The programs in the packages' READMEs, by what starts them: each kind is run where its framework is tested."""

from __future__ import annotations

from pathlib import Path

from tests.support.documents import ROOT, Program, programs

__all__ = ["LAUNCHERS", "programs_of", "programs_started_by"]

# Alone, where only the package is installed; on ranks of PyTorch; on ranks of MindSpore.
LAUNCHERS = ("python", "torchrun", "msrun")


def programs_of(member: Path, launcher: str) -> list[Program]:
    """The programs in the README of one package that are run with this launcher."""
    return [program for program in programs(member / "README.md") if program.command.split()[0] == launcher]


def programs_started_by(launcher: str) -> list[Program]:
    """The programs in the READMEs of all packages that are run with this launcher."""
    members = sorted(path.parent for path in ROOT.glob("packages/*/README.md"))
    return [program for member in members for program in programs_of(member, launcher)]
