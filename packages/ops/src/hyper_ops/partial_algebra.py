"""How elementwise operations act on Partial operands: rows over all parameters of an operation.

Column i of a row belongs to positional parameter i, whether a call passes a tensor or a number there: a
number counts as Replicate, and one under `+` enters once like a tensor. `rows_for` picks the rows that a
call can use and drops the columns of its numbers.

Sums and averages pass through what is linear. Maxima and minima pass through what is monotone *exactly*,
NaN and infinities included: a Replicate tensor may hold infinities of the other sign, a factor 0 makes NaN
of an infinity, integers wrap around; such rows are missing. They also carry no gradient, so that they exist
only without one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from numbers import Complex, Real
from typing import Any, Final

from hyper_dispatch import ONCE, Row, row
from hyper_layout import Partial

TENSOR: Final = "T"
NOTHING: Final = "x"


def kind_of(value: Any) -> str:
    """One character for an argument that is no tensor: what a rule must know of it.

    `+`, `-`, `0` for finite numbers, `i` infinite, `n` NaN, `c` complex, `x` None, `s` anything else.
    """
    if value is None:
        return NOTHING
    if isinstance(value, Real):
        value = float(value)
        if value != value:
            return "n"
        if value in (float("inf"), float("-inf")):
            return "i"
        return "+" if value > 0 else "-" if value < 0 else "0"
    return "c" if isinstance(value, Complex) else "s"


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rules know of a call with Partial operands.

    Attributes:
        kinds: One character per parameter: `T` or as `kind_of` says.
        ungraded: Whether no gradient is needed (False is always safe).
        floating: Whether every tensor is floating.
    """

    kinds: str
    ungraded: bool
    floating: bool

    @property
    def exact(self) -> bool:
        """Whether arithmetic on a maximum or minimum is monotone and needs no gradient."""
        return self.ungraded and self.floating

    def finite(self, parameter: int) -> bool:
        """Whether a parameter is a finite number."""
        return self.kinds[parameter] in "+-0"


@lru_cache(maxsize=1024)
def rows_for(algebra: str, facts: Facts) -> list[tuple[Row, Row]]:
    """The rows of an algebra that a call can use: `(over all parameters, over the tensors)`."""
    found = []
    for text in _RULES[algebra](facts):
        full = row(text)
        tensors, possible = [], True
        for token, kind in zip(full.inputs, facts.kinds, strict=False):
            if kind == TENSOR:
                tensors.append(token)
            elif isinstance(token, Partial):
                possible = False
        if possible:
            found.append((full, Row(tuple(tensors), full.outputs)))
    return found


def numbers_once(full: Row, kinds: str) -> list[int]:
    """The parameters of a row that are numbers and enter once."""
    return [i for i, token in enumerate(full.inputs) if token is ONCE and kinds[i] != TENSOR]


def _none(facts: Facts) -> list[str]:
    return []


def _linear(facts: Facts) -> list[str]:
    rows = ["P -> P", "P(avg) -> P(avg)"]
    return rows + (["P(max) -> P(max)", "P(min) -> P(min)"] if facts.exact else [])


def _negation(facts: Facts) -> list[str]:
    rows = ["P -> P", "P(avg) -> P(avg)"]
    return rows + (["P(max) -> P(min)", "P(min) -> P(max)"] if facts.exact else [])


def _sums(facts: Facts) -> list[str]:
    """`input + alpha * other`."""
    if facts.kinds[2] not in "+-0":
        return []
    return [
        "P P -> P",
        "P(avg) P(avg) -> P(avg)",
        "P + -> P",
        "+ P -> P",
        "P(avg) R -> P(avg)",
        "R P(avg) -> P(avg)",
    ]


def _additive(facts: Facts) -> list[str]:
    rows = _sums(facts)
    if facts.exact and facts.finite(1):
        rows += ["P(max) R -> P(max)", "P(min) R -> P(min)"]
    if facts.exact and facts.finite(0) and facts.kinds[2] == "+":
        rows += ["R P(max) -> P(max)", "R P(min) -> P(min)"]
    return rows


def _subtractive(facts: Facts) -> list[str]:
    rows = _sums(facts)
    if facts.exact and facts.finite(1):
        rows += ["P(max) R -> P(max)", "P(min) R -> P(min)"]
    if facts.exact and facts.finite(0) and facts.kinds[2] == "+":
        rows += ["R P(max) -> P(min)", "R P(min) -> P(max)"]
    return rows


def _scaled(facts: Facts, factor: int, left: str, right: str) -> list[str]:
    """Rows of a Partial times or over a number or tensor; `left`, `right` stand around the Partial."""
    rows = [f"{left}{op}{right} -> {op}" for op in ("P", "P(avg)")]
    if facts.exact and facts.kinds[factor] == "+":
        rows += [f"{left}{op}{right} -> {op}" for op in ("P(max)", "P(min)")]
    if facts.exact and facts.kinds[factor] == "-":
        rows += [f"{left}P(max){right} -> P(min)", f"{left}P(min){right} -> P(max)"]
    return rows


def _product(facts: Facts) -> list[str]:
    # An infinite factor makes NaN of summands that are 0 or of two signs.
    if "i" in facts.kinds:
        return []
    rows = _scaled(facts, 1, "", " R") + _scaled(facts, 0, "R ", "")
    return rows + (["P(prod) P(prod) -> P(prod)"] if facts.exact else [])


def _quotient(facts: Facts) -> list[str]:
    # Over 0 summands of two signs make NaN of an infinity; a rounding mode is not linear.
    if facts.kinds[1] in "0" or facts.kinds[2] != NOTHING:
        return []
    return _scaled(facts, 1, "", " R")


def _select(facts: Facts) -> list[str]:
    """`where(condition, input, other)`: either branch may be Partial, the other one enters once."""
    rows = ["R P P -> P", "R P(avg) P(avg) -> P(avg)", "R P + -> P", "R + P -> P"]
    rows += ["R P(avg) R -> P(avg)", "R R P(avg) -> P(avg)"]
    if facts.ungraded:
        for op in ("P(max)", "P(min)"):
            rows += [f"R {op} {op} -> {op}", f"R {op} R -> {op}", f"R R {op} -> {op}"]
        rows.append("R P(prod) P(prod) -> P(prod)")
    return rows


def _masked(facts: Facts) -> list[str]:
    """`masked_fill(input, mask, value)`."""
    # As `where`, with the first two parameters swapped.
    swapped = [text.split(maxsplit=2) for text in _select(facts)]
    return [f"{branch} {mask} {rest}" for mask, branch, rest in swapped]


def _monotone(facts: Facts) -> list[str]:
    """Monotone in the first parameter, whatever the others."""
    others = " R" * (len(facts.kinds) - 1)
    return [f"{op}{others} -> {op}" for op in ("P(max)", "P(min)")] if facts.ungraded else []


def _maximum(facts: Facts) -> list[str]:
    if not facts.ungraded:
        return []
    return [
        "P(max) P(max) -> P(max)",
        *(f"{pair} -> {op}" for op in ("P(max)", "P(min)") for pair in (f"{op} R", f"R {op}")),
    ]


def _minimum(facts: Facts) -> list[str]:
    return [text.replace("P(max) P(max) -> P(max)", "P(min) P(min) -> P(min)") for text in _maximum(facts)]


def _lerp(facts: Facts) -> list[str]:
    """`input + weight * (end - input)`: linear in input and end together, affine in weight."""
    rows = ["P P R -> P", "P + R -> P", "+ P R -> P", "R R P -> P"]
    return [
        *rows,
        "P(avg) P(avg) R -> P(avg)",
        "P(avg) R R -> P(avg)",
        "R P(avg) R -> P(avg)",
        "R R P(avg) -> P(avg)",
    ]


def _addcmul(facts: Facts) -> list[str]:
    """`input + value * tensor1 * tensor2`."""
    if not facts.finite(3):
        return []
    rows = ["P P R -> P", "P R P -> P", "+ P R -> P", "+ R P -> P", "P R R -> P"]
    rows += ["P(avg) P(avg) R -> P(avg)", "P(avg) R P(avg) -> P(avg)", "P(avg) R R -> P(avg)"]
    return [*rows, "R P(avg) R -> P(avg)", "R R P(avg) -> P(avg)"]


def _addcdiv(facts: Facts) -> list[str]:
    """`input + value * tensor1 / tensor2`."""
    if not facts.finite(3):
        return []
    rows = ["P P R -> P", "+ P R -> P", "P R R -> P"]
    return [*rows, "P(avg) P(avg) R -> P(avg)", "R P(avg) R -> P(avg)", "P(avg) R R -> P(avg)"]


def _fill(facts: Facts) -> list[str]:
    """`fill_(input, value)` and `copy_`: the target waits for the reduction of the value."""
    rows = ["P + -> P", "P(avg) R -> P(avg)"]
    if facts.floating:
        rows += ["P P -> P", "P(avg) P(avg) -> P(avg)"]
    if facts.ungraded:
        rows += [f"{op} R -> {op}" for op in ("P(max)", "P(min)")]
    if facts.exact:
        rows += [f"{op} {op} -> {op}" for op in ("P(max)", "P(min)", "P(prod)")]
    return rows


def _zero(facts: Facts) -> list[str]:
    return [f"{op} -> {op}" for op in ("P", "P(avg)", "P(max)", "P(min)", "P(prod)")]


_RULES: Final[dict[str, Callable[[Facts], list[str]]]] = {
    "none": _none,
    "linear": _linear,
    "negation": _negation,
    "additive": _additive,
    "subtractive": _subtractive,
    "product": _product,
    "quotient": _quotient,
    "select": _select,
    "masked": _masked,
    "monotone": _monotone,
    "maximum": _maximum,
    "minimum": _minimum,
    "lerp": _lerp,
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
    "fill": _fill,
    "zero": _zero,
}

ALGEBRAS: Final = frozenset(_RULES)
