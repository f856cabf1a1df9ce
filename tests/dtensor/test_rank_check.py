"""The debug switch: a rank that went another way is named instead of waited for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hyper_dtensor import CommDebugMode, local_map
from hyper_dtensor.rank_check import enabled
from tests.dtensor.helpers import S0, P, R, equal, line, make, on_ranks, square, values
from tests.support import simulated as sim


@pytest.fixture(autouse=True)
def unread() -> Iterator[None]:
    enabled.cache_clear()
    yield
    enabled.cache_clear()


@pytest.fixture
def debug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPER_PARALLEL_DEBUG", "1")


def test_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, expected in (("1", True), ("yes", True), ("0", False), ("", False)):
        monkeypatch.setenv("HYPER_PARALLEL_DEBUG", value)
        enabled.cache_clear()
        assert enabled() is expected
    monkeypatch.delenv("HYPER_PARALLEL_DEBUG")
    assert not enabled()  # read once, as "" is
    enabled.cache_clear()
    assert not enabled()


@pytest.mark.usefixtures("debug")
@on_ranks(4)
def test_ranks_that_agree_go_on() -> None:
    x = make(values(4, 8), square(), [S0, P])
    with CommDebugMode() as comm:
        y = x.redistribute([R, R])
        local_map(lambda t: t, [P, P])(y).backward(sim.tensor(values(4, 8)))
    equal(y, values(4, 8))
    assert comm.total == 4


@pytest.mark.usefixtures("debug")
def test_a_rank_that_went_another_way_is_named_on_every_rank() -> None:
    def body() -> None:
        x = make(values(4, 8), square(), [S0, P])
        if sim.rank() == 3:
            x.redistribute([R, P])  # another axis, too
        else:
            x.redistribute([S0, R])

    for error in sim.errors_of(4, body):
        assert isinstance(error, RuntimeError)
        first, *lines = str(error).splitlines()
        assert first == "the ranks went different ways before a collective:"
        assert [line.split(" at ")[0] for line in lines] == [
            *(f"  rank {rank}: all_reduce on axis 'tp' of f64[2, 8]" for rank in range(3)),
            "  rank 3: all_gather on axis 'dp' of f64[2, 8]",
        ]
        assert all("test_rank_check.py:" in line for line in lines)


@pytest.mark.usefixtures("debug")
def test_other_shapes_and_other_call_sites_are_named() -> None:
    def shapes() -> None:
        make(values(4, 8 + 8 * sim.rank()), line(), [S0]).redistribute([R])

    def call_sites() -> None:
        x = make(values(4, 8), line(), [S0])
        if sim.rank():
            x.redistribute([R])
        else:
            x.redistribute([R])

    for body, expected in ((shapes, "f64[2, 16]"), (call_sites, "test_rank_check.py")):
        for error in sim.errors_of(2, body):
            assert "the ranks went different ways" in str(error)
            assert expected in str(error)


def test_without_the_switch_the_ranks_do_not_compare() -> None:
    def body() -> None:
        make(values(4, 8), line(), [S0]).redistribute([R])

    assert not enabled()
    sim.run_ranks(2, body)
