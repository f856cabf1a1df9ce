"""Ranks that fail."""

from __future__ import annotations

from hyper_conformance.case import case
from hyper_conformance.here import Here


@case(1, fails="only the last rank raises")
def a_rank_that_raises(here: Here) -> None:
    """One rank raises while the others wait for it: the run fails within seconds, with that rank's error."""
    everyone = here.everyone()
    if here.rank == here.size - 1:
        raise KeyError("only the last rank raises")
    here.platform.all_gather_object("waiting", everyone)


@case(1, fails="every rank raises")
def ranks_that_raise_alike(here: Here) -> None:
    """All ranks raise: the run fails at once."""
    here.everyone()
    raise KeyError("every rank raises")


@case(1)
def the_next_call_is_in_step(here: Here) -> None:
    """After a failure the ranks are fit for the next call, all of them."""
    here.equal(here.platform.all_gather_object(here.rank, here.everyone()), list(range(here.size)))
