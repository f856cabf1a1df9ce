"""Rows in few words: what holds for every reduction is said once, and an operand that may lie anyhow too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from hyper_dispatch import Row, Token
from hyper_dispatch.rows import token_text
from hyper_layout import REDUCE_OPS, Partial

__all__ = ["compact"]

ANY = "*"
"""Any placement, of an operand that has no say in the layout (another's dtype or shape is taken from it)."""


def compact(rows: Sequence[Row]) -> tuple[str, ...]:
    """The rows as text, without the one in which all operands are Replicate.

    ``P(op)`` in a row stands for one reduction, and the row for all five of them; ``*`` for any placement.
    """
    choices = [len({row.inputs[i] for row in rows}) for i in range(len(rows[0].inputs))] if rows else []
    texts = [([token_text(t) for t in row.inputs], _outputs(row)) for row in rows]
    for i, count in enumerate(choices):
        texts = _anyhow(texts, i, count)
    lines = [f"{' '.join(inputs)} -> {outputs}" for inputs, outputs in texts]
    return tuple(_for_all_reductions([line for line in lines if not _is_replicated(line)]))


def _outputs(row: Row) -> str:
    """The outputs; many alike are said once."""
    parts = []
    for text, group in groupby(row.outputs, _text):
        count = len(list(group))
        parts.append(f"{text} ..." if count > 3 else " ".join([text] * count))
    return " ".join(parts)


def _text(token: Token) -> str:
    return token_text(token)


def _anyhow(texts: list[tuple[list[str], str]], i: int, count: int) -> list[tuple[list[str], str]]:
    """Say ``*`` where operand ``i`` is accepted in each of its placements, with one result for all."""
    found: dict[tuple[tuple[str, ...], str], int] = {}
    for inputs, outputs in texts:
        key = (*inputs[:i], ANY, *inputs[i + 1 :]), outputs
        found[key] = found.get(key, 0) + 1
    if count < 2 or len(found) * count != len(texts):
        return texts
    return [(list(inputs), outputs) for inputs, outputs in found]


def _is_replicated(line: str) -> bool:
    return set(line.partition(" -> ")[0].split()) == {"R"}


def _for_all_reductions(lines: Iterable[str]) -> list[str]:
    """``P(op)`` instead of five lines that differ in the reduction alone."""
    lines = list(dict.fromkeys(lines))
    result: list[str] = []
    for line in lines:
        ops = [op for op in REDUCE_OPS if Partial(op).notation in line]
        general = line.replace(Partial(ops[0]).notation, "P(op)") if len(ops) == 1 else line
        alike = [general.replace("P(op)", Partial(op).notation) for op in REDUCE_OPS]
        result.append(general if len(ops) == 1 and set(alike) <= set(lines) else line)
    return list(dict.fromkeys(result))
