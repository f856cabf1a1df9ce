"""How long imports take, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.case import OURS, TORCH, Result
from benchmarks.timing import summarize

__all__ = ["FACADE", "IMPORT", "imports"]

IMPORT = "import"
FACADE = "import hyper_parallel"
EVERY_NAME = "the same, every public name"

_PROGRAM = """
import json, sys, time
started = time.perf_counter()
import {module}
for name in {names}:
    getattr({module}, name)
seconds = time.perf_counter() - started
print(json.dumps([seconds, sorted({{"torch", "torch_npu", "mindspore"}} & sys.modules.keys())]))
"""


def imports(repeats: int) -> tuple[list[Result], list[str]]:
    """Results of all imports, and the frameworks that importing ours brought in: there should be none."""
    programs = {
        FACADE: _PROGRAM.format(module="hyper_parallel", names="()"),
        EVERY_NAME: _PROGRAM.format(module="hyper_parallel", names="hyper_parallel.__all__"),
        "torch": _PROGRAM.format(module="torch", names="()"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    frameworks: set[str] = set()
    for _ in range(repeats):
        for name, program in programs.items():
            took, found = _run(program)
            seconds[name].append(took)
            if name != "torch":
                frameworks.update(found)
    theirs = summarize(seconds["torch"])
    results = [
        Result(IMPORT, name, {TORCH: theirs, OURS: summarize(seconds[name])}, note="beside it: import torch")
        for name in (FACADE, EVERY_NAME)
    ]
    return results, sorted(frameworks)


def _run(program: str) -> tuple[float, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    seconds, frameworks = json.loads(done.stdout)
    return seconds, frameworks
