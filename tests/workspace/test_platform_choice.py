"""Which platform a process uses, where several are installed: that of the framework in use, or the one it chose."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def _python(code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "GLOG_v": "3"}
    environment.pop("HYPER_PARALLEL_PLATFORM", None)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, env=environment
    )


@pytest.mark.parametrize("imported", ["torch", "mindspore"])
def test_the_platform_is_that_of_the_framework_in_use(imported: str) -> None:
    done = _python(f"import {imported}; from hyper_parallel import get_platform; print(get_platform().name)")
    assert done.stdout.split()[-1] == imported, done.stderr


def test_without_a_framework_in_use_the_error_explains_the_choice() -> None:
    done = _python("from hyper_parallel import get_platform; get_platform()")
    assert "installed mindspore, torch, frameworks imported none" in done.stderr
    assert "HYPER_PARALLEL_PLATFORM=name" in done.stderr


def test_with_both_frameworks_in_use_the_user_chooses_and_the_choice_is_final() -> None:
    done = _python(
        """
import mindspore, torch
from hyper_parallel import get_platform, set_platform

def refusal(call):
    try:
        call()
    except RuntimeError as error:
        print(error)

refusal(get_platform)
print(set_platform("mindspore").name, get_platform().name, set_platform("mindspore") is get_platform())
refusal(lambda: set_platform("torch"))
print(get_platform().name)
"""
    )
    unclear, chosen, refused, kept = done.stdout.splitlines()[-4:]
    assert "installed mindspore, torch, frameworks imported mindspore, torch. Call" in unclear, done.stderr
    assert chosen == "mindspore mindspore True"
    assert "uses the platform 'mindspore' (since set_platform at <string>:" in refused
    assert "cannot change to 'torch'" in refused
    assert kept == "mindspore"
