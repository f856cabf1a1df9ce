"""Errors of the dispatcher. What a user sees is assembled once, in `cures.py`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hyper_layout import LayoutError


class RuleError(LayoutError):
    """No rule of an operation covers its operands.

    Attributes:
        op_name: The operation.
        axes: Indices of the mesh axes on which no rule matched.
        reason: One line that says what stands in the way; `{0}` stands for the name of operand 0.
    """

    def __init__(self, op_name: str, axes: tuple[int, ...], axis_names: tuple[str, ...], reason: str) -> None:
        self.op_name = op_name
        self.axes = axes
        self.reason = reason
        where = " and ".join(repr(name) for name in axis_names)
        super().__init__(f"{op_name} cannot combine its operands on mesh axis {where}: {self.reason_for()}")

    def reason_for(self, names: Sequence[str] = ()) -> str:
        """The reason with the operands' names filled in (`operand 0` where there is none)."""
        return re.sub(
            r"\{(\d+)\}",
            lambda found: names[int(found[1])] if int(found[1]) < len(names) else f"operand {found[1]}",
            self.reason,
        )


class RegistryError(ValueError):
    """A registration is wrong: the message names the file, the entry, the key and what is allowed."""
