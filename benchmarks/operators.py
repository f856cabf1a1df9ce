"""The operators that are timed, written once for all libraries.

Each function makes its operands, whose local parts are ``[rows, cols]`` or the like, and returns the call.
Both libraries lay them out alike, as tensor-parallel models do.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from benchmarks.library import VOCABULARY, Maker, Operator
from benchmarks.timing import Call

__all__ = ["ON_NEW_OPERANDS", "OPERATORS"]


def add(m: Maker) -> Call:
    """Two sharded operands."""
    x, y = (m.tensor(m.rows, m.cols, shard=0) for _ in range(2))
    return lambda: x + y


def mul(m: Maker) -> Call:
    """Two sharded operands."""
    x, y = (m.tensor(m.rows, m.cols, shard=0) for _ in range(2))
    return lambda: x * y


def relu(m: Maker) -> Call:
    """A sharded operand."""
    x = m.tensor(m.rows, m.cols, shard=0)
    return lambda: F.relu(x)


def linear(m: Maker) -> Call:
    """Column-parallel: a whole input, weight and bias split by output features."""
    x, weight = m.tensor(m.rows, m.cols, shard=None), m.tensor(m.rows, m.cols, shard=0)
    bias = m.tensor(m.rows, shard=0)
    return lambda: F.linear(x, weight, bias)


def matmul(m: Maker) -> Call:
    """Split rows times a whole matrix."""
    x, y = m.tensor(m.rows, m.cols, shard=0), m.tensor(m.cols, m.cols, shard=None)
    return lambda: x @ y


def layer_norm(m: Maker) -> Call:
    """Sequence-parallel: a split input, whole weight and bias."""
    shape = (m.cols,)
    x, weight, bias = (
        m.tensor(m.rows, m.cols, shard=0),
        m.tensor(*shape, shard=None),
        m.tensor(*shape, shard=None),
    )
    return lambda: F.layer_norm(x, shape, weight, bias)


def softmax(m: Maker) -> Call:
    """Over the whole dim of a sharded operand."""
    x = m.tensor(m.rows, m.cols, shard=0)
    return lambda: F.softmax(x, -1)


def sum_(m: Maker) -> Call:
    """Over the whole dim of a sharded operand."""
    x = m.tensor(m.rows, m.cols, shard=0)
    return lambda: x.sum(-1)


def view(m: Maker) -> Call:
    """Splits the whole dim of a sharded operand, as attention does with heads."""
    x = m.tensor(m.rows, m.cols, shard=0)
    rows, groups = m.rows * m.library.ranks, m.cols // 4
    return lambda: x.view(rows, groups, 4)


def transpose(m: Maker) -> Call:
    """Of a sharded operand."""
    x = m.tensor(m.rows, m.cols, shard=0)
    return lambda: x.transpose(0, 1)


def cat(m: Maker) -> Call:
    """Along the whole dim of two sharded operands."""
    x, y = (m.tensor(m.rows, m.cols, shard=0) for _ in range(2))
    return lambda: torch.cat((x, y), -1)


def split(m: Maker) -> Call:
    """In two, along the whole dim of a sharded operand."""
    x, half = m.tensor(m.rows, m.cols, shard=0), m.cols // 2
    return lambda: torch.split(x, half, -1)


def getitem(m: Maker) -> Call:
    """A slice of the whole dim of a sharded operand."""
    x, half = m.tensor(m.rows, m.cols, shard=0), m.cols // 2
    return lambda: x[:, :half]


def embedding(m: Maker) -> Call:
    """Column-parallel: whole ids, a table split by features."""
    ids, table = m.ids(m.rows), m.tensor(VOCABULARY, m.cols, shard=1)
    return lambda: F.embedding(ids, table)


OPERATORS: dict[str, Operator] = {
    operator.__name__.rstrip("_"): operator
    for operator in (
        add, mul, relu, linear, matmul, layer_norm, softmax,
        sum_, view, transpose, cat, split, getitem, embedding,
    )
}  # fmt: skip
ON_NEW_OPERANDS = {operator.__name__: operator for operator in (linear, matmul, layer_norm)}
"""Those that use a whole tensor differently on each rank."""
