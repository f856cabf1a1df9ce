"""What brute force is given and what it finds. Knows no framework: each adapter's ranks import it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

__all__ = ["Input", "Report", "Sample"]

Variant: TypeAlias = Mapping[str, Any] | Sequence[Any]
"""What a call gets behind its tensors: keyword arguments, or a tuple of positional ones."""


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
