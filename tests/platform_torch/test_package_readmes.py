"""What the packages' READMEs show in PyTorch runs, on as many ranks as they say."""

from __future__ import annotations

import pytest

from tests.support.documents import Program, check_output, execute
from tests.support.package_readmes import programs_started_by
from tests.support.ranks import run_once


@pytest.mark.ranks
@pytest.mark.parametrize("program", programs_started_by("torchrun"), ids=str)
def test_the_program_runs(program: Program) -> None:
    # The ranks have what a launcher gives them; the program joins them itself.
    printed = run_once(program.ranks, execute, program.source, program.document, process_group=False)
    check_output(program, printed[0])
