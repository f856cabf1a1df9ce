"""The README's commands are the ones that are checked, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

from hyper_dispatch import op_names
from hyper_ops import load_ops
from tests.support.documents import ROOT, documents

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
    missing = [
        f"{document.relative_to(ROOT)}: {target}"
        for document in documents()
        for target in re.findall(r"\]\(([^)]+)\)", document.read_text())
        if "://" not in target and not leads_somewhere(document, target)
    ]
    assert not missing


def leads_somewhere(document: Path, target: str) -> bool:
    """A path that exists, and a heading of the document there if one is named."""
    path, _, heading = target.partition("#")
    found = document.parent / path if path else document
    if not heading:
        return found.exists()
    titles = re.findall(r"^#+ (.*)$", found.read_text(), re.MULTILINE)
    return heading in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_what_is_said_not_to_be_there_is_not() -> None:
    missing = re.findall(
        r"`(\w+)`", README.partition("Operators on tensors that are split:")[2].partition(" On tensors")[0]
    )
    assert len(missing) > 15
    load_ops()
    both = sorted(set(missing) & set(op_names()))
    assert not both, f"README 'Not there' lists {both}, which are registered: remove them"
