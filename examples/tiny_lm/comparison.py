"""Runs the training on one device and on the ranks side by side, and compares their losses."""

from collections.abc import Callable, Sequence
from pathlib import Path

from tiny_lm import report
from tiny_lm.launch import Job, JobFailedError, Say, run_jobs


def compare(
    one_device: Callable[[Say], None],
    workers: Sequence[Job],
    steps: int,
    tokens_per_step: int,
    tolerance: report.Tolerance,
    out: Path,
) -> None:
    """Trains, reports and draws; ends the program with an error if the losses are not equal."""
    jobs = [Job("one device", one_device), *workers]
    names = [job.name for job in jobs if not job.background]
    try:
        single, *parallel = report.collect(run_jobs(jobs), names, steps, tokens_per_step)
    except JobFailedError as error:
        raise SystemExit(str(error)) from None
    equal = report.print_report(single, parallel, tolerance)
    report.plot(single, parallel, out)
    print(f"Loss curves: {out}")
    if not equal:
        raise SystemExit("The losses under tensor parallelism are not those of one device.")
