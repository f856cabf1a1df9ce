"""Rank pictures are executed as they read."""

from __future__ import annotations

import numpy as np
import pytest

from hyper_conformance.pictures import Picture

A, B = np.asarray([[1.0, 2.0]]), np.asarray([[3.0, 5.0]])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a] [b] -> [a+b] [a+b]", [[[4, 7]], [[4, 7]]]),
        ("[a] [b] -> [a*b] [b]", [[[3, 10]], [[3, 5]]]),
        ("[a] [b] -> [max(a,b)] [min(a,b)]", [[[3, 5]], [[1, 2]]]),
        ("[a] [b] -> [a/2] [0]", [[[0.5, 1]], [[0, 0]]]),
        ("[a] [?] -> [a] [a]", [[[1, 2]], [[1, 2]]]),
        ("[a] [b] -> [a b] [b a]", [[[1, 2], [3, 5]], [[3, 5], [1, 2]]]),
    ],
)
def test_blocks(text: str, expected: list[list[list[float]]]) -> None:
    assert [x.tolist() for x in Picture(text).apply([A, B])] == expected


def test_blocks_are_cut_and_joined_along_their_dims() -> None:
    picture = Picture("[a0 a1] [b0 b1] -> [a0 b0] [a1 b1]", before_dim=1, after_dim=0)
    assert [x.tolist() for x in picture.apply([A, B])] == [[[1], [3]], [[2], [5]]]


def test_a_sum_of_bool_counts() -> None:
    yes = np.asarray([True])
    (total, _) = Picture("[a] [b] -> [a+b] [a+b]").apply([yes, yes])
    assert (total.dtype, total.tolist()) == (np.int64, [2])
