"""The READMEs' examples in PyTorch run as they stand."""

from __future__ import annotations

import pytest

from tests.support.ranks import run_once
from tests.support.readmes import Example, examples_of, run_example


@pytest.mark.ranks
@pytest.mark.parametrize("example", examples_of("torch"), ids=lambda example: example.readme)
def test_the_example_runs_on_two_ranks(example: Example) -> None:
    # The ranks have what a launcher gives them; the example joins them itself.
    run_once(2, run_example, example, process_group=False)
