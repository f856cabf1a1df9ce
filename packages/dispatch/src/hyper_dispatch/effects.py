"""What an inference says about its result beyond the output layouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Effects:
    """The `extra_info` of an inference: how the operation treats gradients, and shapes it knows.

    Masks are integers over mesh axes: bit `a` stands for axis `a`.

    Attributes:
        invariant: Axes on which the implementation itself reduced or gathered, so that a Replicate
            output is the same computation on every rank there. One mask for all outputs or one per output.
        once: Per operand, the axes on which it enters a Partial output once and not once per rank.
            An empty tuple means: none.
        shapes: Global shape of each output where the rule knows it, or None.
        copies: The output is a copy of values of operand 0 where a single device returns a view: writing into
            it would not reach the operand, and is refused.
        info: Whatever `infer_layout` wants to hand to `get_expand_impl`.
    """

    invariant: int | tuple[int, ...] = 0
    once: tuple[int, ...] = ()
    shapes: tuple[tuple[int, ...] | None, ...] | None = None
    copies: bool = False
    info: Any = None

    def invariant_of(self, output: int) -> int:
        """Mask of the axes on which output number `output` is invariant by its implementation."""
        return self.invariant if isinstance(self.invariant, int) else self.invariant[output]

    def once_of(self, operand: int) -> int:
        """Mask of the axes on which operand number `operand` enters once."""
        return self.once[operand] if operand < len(self.once) else 0


NO_EFFECTS = Effects()
