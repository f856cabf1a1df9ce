"""The adapter that is not written yet: chosen like any other, it says so."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

MEMBER = Path(__file__).parents[2] / "packages" / "platform_ms"


def entry_point() -> EntryPoint:
    """As the installed package would register it; MindSpore and so the package are not installed here."""
    settings = tomllib.loads((MEMBER / "pyproject.toml").read_text())
    ((name, value),) = settings["project"]["entry-points"]["hyper_parallel.platforms"].items()
    return EntryPoint(name, value, "hyper_parallel.platforms")


def test_choosing_it_says_that_it_is_not_there_and_what_to_use() -> None:
    assert entry_point().name == "mindspore"
    platform = entry_point().load()
    with pytest.raises(
        NotImplementedError, match=r"MindSpore adapter .* not there yet.*set_platform\('torch'\)"
    ):
        platform()


def test_importing_it_does_not_import_mindspore() -> None:
    code = "import sys, hyper_platform_ms; sys.exit('mindspore' in sys.modules)"
    subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(MEMBER / "src")}, check=True, timeout=60
    )
