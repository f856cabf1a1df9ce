"""The example in the package's README runs as it stands."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "packages" / "layout" / "README.md"


def test_the_example_runs(capsys: pytest.CaptureFixture[str]):
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(example, str(README), "exec"), {})
    assert capsys.readouterr().out.splitlines() == [
        "dp:S(0) tp:P(sum) (4, 16) (slice(4, 8, None), slice(0, 16, None))",
        "['reduce_scatter']",
    ]
