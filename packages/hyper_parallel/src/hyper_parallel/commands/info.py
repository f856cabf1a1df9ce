"""``hyper-parallel info``: what is installed here, and which platform is used."""

from __future__ import annotations

import json
import platform as machine
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, entry_points, version

import typer

from hyper_dtensor.platform import ENTRY_POINT_GROUP, ENVIRONMENT_VARIABLE, default_platform
from hyper_parallel.commands.tables import show_table

__all__ = ["info"]

# An entry point's name is the framework's import name; these distributions are what a report needs.
DISTRIBUTIONS = ("hyper-parallel", "torch", "torch_npu", "mindspore", "numpy")
ASK_TIMEOUT = 180.0
# Runs in a process of its own: this one stays without a framework, and one that fails to load ends nothing.
ASK = """
import json, sys
from hyper_dtensor import set_platform
platform = set_platform(sys.argv[1])
print(json.dumps({each: platform.device_count(each) for each in platform.device_types}))
"""


def info() -> None:
    """Show versions, platforms and devices.

    Each platform is asked in a process of its own, which takes as long as importing its framework. The exit
    code is 1 if the platform that was chosen is not installed.
    """
    names = sorted(point.name for point in entry_points(group=ENTRY_POINT_GROUP))
    rows = [["python", machine.python_version()]]
    rows += [[distribution, _version(distribution)] for distribution in DISTRIBUTIONS]
    rows.append(["platforms installed", ", ".join(names) or "none"])
    asked = [(name, _ask(name)) for name in names]
    rows += [[f"devices of {name}", _answer(process)] for name, process in asked]
    used, installed = _chosen_platform(names)
    rows.append(["platform used", used])
    show_table(["what", "value"], rows)
    typer.echo(
        f"To choose: set {ENVIRONMENT_VARIABLE}=name, or call hyper_parallel.set_platform(name) first.\n"
        "Without either it is the one whose framework the program has imported, else the only one installed."
    )
    if not installed:
        raise typer.Exit(1)


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"


def _chosen_platform(installed: Sequence[str]) -> tuple[str, bool]:
    """The platform's name, or why there is none, and whether a program can go on with it or choose.

    The report is made whole where nothing works: it is needed most there.
    """
    try:
        name, _ = default_platform()
    except RuntimeError as error:
        return str(error), True
    return (name, True) if name in installed else (f"{name}, which is not installed", False)


def _ask(name: str) -> subprocess.Popen[str]:
    """Start asking; all platforms are asked at once."""
    return subprocess.Popen(
        [sys.executable, "-c", ASK, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _answer(process: subprocess.Popen[str]) -> str:
    """The devices as text, or what is wrong with the platform."""
    try:
        output, errors = process.communicate(timeout=ASK_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return f"no answer within {ASK_TIMEOUT:.0f} s"
    if process.returncode:
        lines = errors.strip().splitlines()
        return f"cannot be loaded: {lines[-1] if lines else f'exit code {process.returncode}'}"
    counts: dict[str, int] = json.loads(output.strip().splitlines()[-1])
    return ", ".join(_devices(kind, count) for kind, count in counts.items())


def _devices(kind: str, count: int) -> str:
    if not count:
        return f"{kind}: none here"
    return kind if kind == "cpu" else f"{kind}: {count}"
