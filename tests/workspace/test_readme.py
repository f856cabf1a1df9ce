"""The README's commands are the ones that are checked, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```bash\n(.*?)\n```", README, re.DOTALL)


def test_first_block_is_the_main_job_and_second_runs_all_tests() -> None:
    assert BLOCKS[:2] == [
        "pip install uv && uv run python examples/train_tp.py",
        "pip install uv && uv run pytest",
    ]


def test_ci_runs_the_test_command() -> None:
    """On a part of the tests at a time; tests/workspace/test_stages.py sees that the parts are the whole."""
    run = (ROOT / ".ci" / "run").read_text()
    assert f'readme_tests() {{ bash -euo pipefail -c \'{BLOCKS[1]} "$@"\' pytest "$@"; }}\n' in run
    assert run.count("pytest") == 2, "CI runs pytest in no other way than this and .ci/core-tests"


def test_links_lead_somewhere() -> None:
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    missing = [
        f"{document.relative_to(ROOT)}: {target}"
        for document in documents
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text())
        if "://" not in target and not (document.parent / target).exists()
    ]
    assert not missing
