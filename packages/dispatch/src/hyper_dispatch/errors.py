"""Errors of the dispatcher. What a user sees is assembled once, in `refusal.py`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from hyper_layout import LayoutError


class RuleError(LayoutError):
    """No rule of an operation covers its operands.

    Attributes:
        op_name: The operation.
        axes: Indices of the mesh axes on which no rule matched.
        axis_names: Their names.
    """

    def __init__(
        self,
        op_name: str,
        axes: tuple[int, ...],
        axis_names: tuple[str, ...],
        reason: str | Callable[[], str],
    ) -> None:
        """Make the error.

        Args:
            op_name: See the class.
            axes: See the class.
            axis_names: See the class.
            reason: One line that says what stands in the way, or what makes it when somebody reads it: a
                search for cures tries hundreds of layouts and reads none. `{0}` stands for the name of
                operand 0.
        """
        super().__init__(op_name, axes, axis_names, reason)
        self.op_name = op_name
        self.axes = axes
        self.axis_names = axis_names
        self._reason = reason

    @property
    def reason(self) -> str:
        """One line that says what stands in the way; `{0}` stands for the name of operand 0."""
        return self._reason if isinstance(self._reason, str) else self._reason()

    def __reduce__(self) -> tuple[type[RuleError], tuple[Any, ...]]:
        # What makes the reason holds the strategy, which another process need not be able to read.
        return RuleError, (self.op_name, self.axes, self.axis_names, self.reason)

    def __repr__(self) -> str:
        return f"RuleError({str(self)!r})"

    def __str__(self) -> str:
        where = " and ".join(map(repr, self.axis_names))
        return f"{self.op_name} cannot combine its operands on mesh axis {where}: {self.reason_for()}"

    def reason_for(self, names: Sequence[str] = ()) -> str:
        """The reason with the operands' names filled in (`operand 0` where there is none)."""
        return re.sub(
            r"\{(\d+)\}",
            lambda found: names[int(found[1])] if int(found[1]) < len(names) else f"operand {found[1]}",
            self.reason,
        )


class RegistryError(ValueError):
    """A registration is wrong: the message names the file, the entry, the key and what is allowed."""
