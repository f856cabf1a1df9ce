"""Covers generate.py: the list of an operation's strategies."""

from __future__ import annotations

import pytest

from hyper_dispatch import RowsOp, register_op, row, strategies
from tests.dispatch.examples import LINE, MESH, Product, Sum


def test_the_strategies_are_the_rows() -> None:
    register_op("multiply", Product, signature="x, w")
    found = {str(each) for each in strategies("multiply", LINE, (2, 2))}
    written = {str(each) for each in Product("multiply").rows([])}
    assert found == written | {"R R -> R"}


def test_markers_are_shown() -> None:
    register_op("plus", Sum, signature="input, other")
    assert "P(sum) + -> P(sum)" in map(str, strategies("plus", LINE, (1, 1)))

    class Reduced(RowsOp):
        def rows(self, cache_values: object) -> object:  # type: ignore[override]
            return [row("S(0) -> I")]

        def output_ndims(self, cache_values: object) -> tuple[int]:  # type: ignore[override]
            return (0,)

    register_op("reduced", Reduced)
    assert list(map(str, strategies("reduced", LINE, (1,)))) == ["R -> R", "S(0) -> I"]


def test_what_cannot_be_listed() -> None:
    with pytest.raises(ValueError, match="operation 'nothing' is not registered"):
        strategies("nothing", LINE, (1,))
    register_op("plus", Sum)
    with pytest.raises(ValueError, match="a mesh of one axis"):
        strategies("plus", MESH, (1, 1))
