"""What the packages' READMEs show in MindSpore runs, on as many ranks as they say."""

from __future__ import annotations

import pytest

from tests.support.documents import Program, check_output, execute
from tests.support.ms_ranks import MindSporeRankPool
from tests.support.package_readmes import programs_started_by


@pytest.mark.ranks
@pytest.mark.parametrize("program", programs_started_by("msrun"), ids=str)
def test_the_program_runs(program: Program) -> None:
    # The ranks have what a launcher gives them; the program joins them itself.
    with MindSporeRankPool(program.ranks, process_group=False) as pool:
        check_output(program, pool.run(execute, program.source, program.document)[0])
