"""The command line: what is installed, and its help. The commands have test files of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version

import pytest

from hyper_parallel.commands import info
from tests.hyper_parallel.command_line import run


class Point:
    """An installed adapter, as far as its listing goes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.module = "nowhere"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of installed adapters, which the test chooses."""
    names: list[str] = []
    monkeypatch.setattr(info, "entry_points", lambda group: [Point(name) for name in names])
    monkeypatch.setattr(info, "_ask", lambda name: name)
    monkeypatch.setattr(info, "_answer", lambda name: f"those of {name}")
    return names


def test_info_shows_versions_adapters_devices_and_the_choice(
    installed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed += ["zeta", "alpha"]
    monkeypatch.setattr(info, "default_platform", lambda: ("alpha", "its first use"))
    output = run("info")
    rows = {" ".join(line.split()) for line in output.splitlines()}
    assert {"platforms installed alpha, zeta", "platform used alpha", "devices of zeta those of zeta"} <= rows
    assert any(row.startswith("python 3.") for row in rows) and any(
        row.startswith("hyper-parallel ") for row in rows
    )
    assert (
        "To choose: set HYPER_PARALLEL_PLATFORM=name, or call hyper_parallel.set_platform(name) first."
        in rows
    )


def test_info_reports_a_missing_platform_instead_of_failing(
    installed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HYPER_PARALLEL_PLATFORM", raising=False)
    monkeypatch.setattr("hyper_dtensor.platform.entry_points", lambda group: [])
    assert "cannot tell which platform to use: installed none" in run("info")
    monkeypatch.setenv("HYPER_PARALLEL_PLATFORM", "jax")
    assert "jax, which is not installed" in run("info", code=1), "a report, and the exit code of a mistake"


def answer(code: str, *arguments: str) -> str:
    """What is made of a process that runs ``code``."""
    command = [sys.executable, "-c", code, *arguments]
    return info._answer(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))


def test_devices() -> None:
    said = json.dumps({"cpu": 1, "cuda": 8, "npu": 0})
    assert answer(f"print('a greeting'); print('{said}')") == "cpu, cuda: 8, npu: none here"


def test_a_platform_that_cannot_be_loaded_is_named_with_the_reason() -> None:
    assert (
        answer("raise OSError('libnone.so: cannot open')")
        == "cannot be loaded: OSError: libnone.so: cannot open"
    )
    assert answer("import os; os._exit(7)") == "cannot be loaded: exit code 7"


def test_a_platform_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(info, "ASK_TIMEOUT", 0.2)
    assert answer("import time; time.sleep(60)") == "no answer within 0 s"


def test_a_platform_is_asked_in_a_process_of_its_own() -> None:
    """The question itself: an adapter that is not installed is refused there, not here."""
    assert "unknown platform 'no such platform'" in info._answer(info._ask("no such platform"))


def test_module_runs_as_a_program() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "hyper_parallel", "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "Usage: hyper-parallel [OPTIONS] COMMAND [ARGS]" in result.stdout
    for command in ("info", "ops", "layout", "plan"):
        assert f"\n  {command} " in result.stdout


@pytest.mark.parametrize("command", ["info", "ops", "layout", "plan"])
def test_help_is_plain(command: str) -> None:
    output = run(command, "--help")
    assert run(command, "-h") == output
    assert output.startswith(f"Usage: hyper-parallel {command} [OPTIONS]")
    assert output.isascii(), "no boxes"


def test_version() -> None:
    assert run("--version") == f"hyper-parallel {version('hyper-parallel')}\n"


def test_what_is_no_command() -> None:
    assert "No such command 'layuot'" in run("layuot", code=2)


def test_no_framework_is_imported() -> None:
    code = (
        "import sys\nfrom hyper_parallel.cli import app\n"
        "try: app(['ops', 'add'])\nexcept SystemExit: pass\n"
        "assert not {'torch', 'torch_npu', 'mindspore', 'matplotlib'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, stdout=subprocess.DEVNULL)
