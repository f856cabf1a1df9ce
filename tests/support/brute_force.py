"""Brute force for operator families: every layout of every input is equal to one device, or refused.

A test file is a list of samples::

    SAMPLES = [
        Sample("add", "torch.add", [(4, 8), (8,)], [{}, {"alpha": 2}], accepts=["S(0) R -> S(0)", "P P -> P"]),
        Sample("clamp_", "Tensor.clamp_", [(4, 8)], [(-0.5, 0.5), (0.0, 0.1)]),
    ]

    @pytest.mark.parametrize("sample", SAMPLES, ids=str)
    def test_on_two_ranks(sample, ranks2):
        brute_force(ranks2, sample)

All cases of a sample run in one call of the pool (see ``case_runner``). Two ranks form the mesh ``(2,)``, on
which every combination of placements is tried; four form ``(2, 2)``, on which pairs of the combinations that one
axis accepts are tried, and some others. The reference is the operation itself on one device.
"""

from __future__ import annotations

from tests.support.case_runner import Outcome, run_sample
from tests.support.ranks import RankPool
from tests.support.sample import Report, Sample

__all__ = ["brute_force"]

CALL_TIMEOUT = 110.0
SHOWN_FAILURES = 8


def brute_force(pool: RankPool, sample: Sample, *, timeout: float = CALL_TIMEOUT) -> Report:
    """Run all cases of a sample on the ranks of a pool (2: one mesh axis, 4: two).

    Raises:
        AssertionError: If a case is neither equal to the reference nor refused alike on all ranks, or (on
            one axis) a row of ``sample.accepts`` is not accepted.
        RankError: If a rank died or hung.
    """
    assert pool.size in (2, 4), "the harness knows the meshes (2,) and (2, 2)"
    by_rank: list[list[Outcome]] = pool.run(run_sample, sample, pool.size, timeout=timeout)
    report, failures = Report(), []
    for outcomes in zip(*by_rank, strict=True):
        case = outcomes[0].case
        states = [outcome.state for outcome in outcomes]
        if "failed" in states:
            rank = states.index("failed")
            failures.append(f"{case}  (rank {rank})\n    {outcomes[rank].text}")
        elif len(set(states)) > 1:
            failures.append(f"{case}\n    the ranks do not agree: {states}")
        elif states[0] == "equal":
            report.calls += outcomes[0].calls
            report.accepted[case] = outcomes[0].text
            report.refused.pop(case, None)
        elif case not in report.accepted:
            report.refused[case] = outcomes[0].text
    assert not failures, _failure_text(sample, failures)
    assert report.accepted, f"{sample}: no layout was accepted, not even Replicate: {report.refused}"
    if pool.size == 2:
        missing = report.missing(sample.accepts)
        lines = "\n  ".join(missing)
        assert not missing, f"{sample}: layouts that must be accepted\n  {lines}"
    return report


def _failure_text(sample: Sample, failures: list[str]) -> str:
    shown = "\n  ".join(failures[:SHOWN_FAILURES])
    more = f"\n  ... and {len(failures) - SHOWN_FAILURES} more" if len(failures) > SHOWN_FAILURES else ""
    return f"{sample}: {len(failures)} cases neither equal nor refused\n  {shown}{more}"
