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

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.support.case_runner import Outcome, run_sample
from tests.support.ranks import RankPool

__all__ = ["Input", "Report", "Sample", "brute_force"]

Variant: TypeAlias = Mapping[str, Any] | Sequence[Any]
"""What a call gets behind its tensors: keyword arguments, or a tuple of positional ones."""

CALL_TIMEOUT = 110.0
SHOWN_FAILURES = 8


@dataclass(frozen=True)
class Input:
    """One input of a sample.

    Attributes:
        shape: Its global shape.
        values: How it is filled: ``normal``, ``positive`` (0.5 to 2), ``unit`` (-0.9 to 0.9), ``tied`` (few
            different values), ``integers`` (``low`` to ``high - 1``), ``booleans``.
        dtype: Name of its dtype; by default float64, int64 or bool as the values are.
        low: Smallest integer.
        high: One more than the greatest integer.
        tokens: The placements to try, as texts (``"R"``, ``"V"``, ``"S(0)"``, ``"P(sum)"``); by default all
            that make sense. ``V`` is Replicate-varying. ``("plain",)`` passes a plain tensor.
        grad: Whether a floating input needs a gradient.
    """

    shape: tuple[int, ...]
    values: str = "normal"
    dtype: str | None = None
    low: int = 0
    high: int = 4
    tokens: tuple[str, ...] | None = None
    grad: bool = True


@dataclass(frozen=True)
class Sample:
    """One operation on inputs of certain shapes.

    Attributes:
        op: Name for messages and test ids.
        call: The function of the tensors: an importable function, or its name (``torch.add``,
            ``Tensor.add_``, ``F.gelu``, ``torch.linalg.vector_norm``).
        inputs: The tensors: shapes or `Input` objects.
        variants: What the call gets behind the tensors. They run one after the other, then the first again:
            what an entry of the layout cache keeps of the call that made it shows here.
        grads: Whether gradients are compared.
        inplace: The call writes into input 0: its value after the call is compared too, also where the
            call is refused (it is untouched then).
        accepts: Rows that must be accepted on one axis: ``"S(0) R -> S(0)"``; ``P`` is ``P(sum)``. Without
            ``->`` the output is not looked at. On any of the calls with or without gradients.
        two_axes: How many pairs of accepted cases run on the mesh of two axes (and half as many others).
        tolerance: Relative error allowed in float64; narrower results have their own.
        tensors_in_list: The call takes the inputs as one list (``cat``, ``stack``).
        label: Tells samples of one operation apart in test ids.
    """

    op: str
    call: str | Callable[..., Any]
    inputs: Sequence[tuple[int, ...] | Input]
    variants: Sequence[Variant] = field(default_factory=lambda: [{}])
    grads: bool = True
    inplace: bool = False
    accepts: Sequence[str] = ()
    two_axes: int = 25
    tolerance: float = 1e-12
    tensors_in_list: bool = False
    label: str = ""

    def __post_init__(self) -> None:
        inputs = tuple(x if isinstance(x, Input) else Input(tuple(x)) for x in self.inputs)
        object.__setattr__(self, "inputs", inputs)

    def __str__(self) -> str:
        shapes = "_".join("x".join(map(str, x.shape)) or "0d" for x in self.inputs if isinstance(x, Input))
        return "-".join(filter(None, [self.op, self.label, shapes]))


@dataclass
class Report:
    """What became of the cases of a sample.

    Attributes:
        accepted: Case to the layouts of its outputs: ``{"S(0) R": "S(0)"}``.
        refused: Case to the first line of the message.
        calls: How many calls were compared with the reference.
    """

    accepted: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    calls: int = 0

    def missing(self, rows: Sequence[str]) -> list[str]:
        """The rows of a table of layouts that must be accepted that were not, with what happened instead."""
        problems = []
        for text in rows:
            inputs, _, outputs = re.sub(r"\bP\b(?!\()", "P(sum)", text).partition("->")
            case, wanted = " ".join(inputs.split()), " ".join(outputs.split())
            if case in self.accepted:
                if wanted and self.accepted[case] != wanted:
                    problems.append(f"{case}: gives {self.accepted[case]}, not {wanted}")
            else:
                problems.append(f"{case}: {self.refused.get(case, 'was not tried')}")
        return problems


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
