"""The rules of indexing, and how an index is read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyper_layout import LayoutError
from hyper_ops.index_code import read_code, tensor_dim
from tests.support.rules import infer

# Cache values behind the layouts: the code of the index and whether the values are booleans; for writing whether the
# value needs a gradient, the code, and the sizes of the value.
ACCEPTED = [
    ("getitem", "S(0)", [2], (": :", False), "S(0)"),
    ("getitem", "S(1)", [2], ("i :", False), "S(0)"),
    ("getitem", "S(0)", [2], ("i :", False), "P(sum)"),
    ("getitem", "S(0)/S(0)", [2], ("i :", False), "P(sum)/P(sum)"),
    ("getitem", "S(0)/S(1)", [3], ("i i :", False), "P(sum)/P(sum)"),
    ("getitem", "S(0)", [2], ("i :", True), "P(max)"),
    ("getitem", "S(1)", [2], ("n : n :", False), "S(3)"),
    ("getitem", "S(0) R", [2, 0], ("I :", False), "P(sum)"),
    ("getitem", "P(avg)", [2], ("i :", False), "P(avg)"),
    ("getitem", "S(1) R", [3, 1], (": t. :", False), "P(sum)"),
    ("getitem", "R S(0)", [3, 2], (": t.. :", False), "S(1)"),
    ("getitem", "S(2)/R R/S(1)", [3, 2], (": t.. :", False), "S(3)/S(2)"),
    ("getitem", "S(0)/S(2) R/R R/R", [3, 1, 1], ("t. : t.", False), "P(sum)/P(sum)"),
    ("getitem", "S(1) R R", [3, 1, 1], ("t. : t.", False), "S(1)"),
    ("getitem", "R S(0) R", [2, 2, 1], ("t.1 t.", False), "S(0)"),
    ("getitem", "R R S(0)", [2, 2, 1], ("t.1 t.", False), "S(1)"),
    ("getitem", "S(2) R", [3, 2], ("m2 :", False), "S(1)"),
    ("getitem", "S(1)", [2], ("l. :", False), "S(1)"),
    ("select", "S(1)", [2], ("i :", False), "S(0)"),
    ("narrow", "S(1)", [2], (": :", False), "S(1)"),
    ("setitem", "S(0)", [2], (False, "i :", "number"), "S(0)"),
    ("setitem", "S(0)", [2], (False, "| :", "number"), "S(0)"),
    ("setitem", "S(0) R", [2, 1], (True, "i :", "."), "S(0)"),
    ("setitem", "S(1) S(0)", [2, 1], (True, "i :", "."), "S(1)"),
    ("setitem", "S(1) R", [2, 1], (True, "i :", "1"), "S(1)"),
    ("setitem", "S(1)/S(0) S(1)/R", [2, 2], (True, ": :", "1."), "S(1)/S(0)"),
    ("setitem", "P(sum) R", [2, 1], (True, "i :", "."), "P(sum)"),
    ("setitem", "P(max)", [2], (False, "i :", "number"), "P(max)"),
    ("setitem", "S(1) S(1)", [2, 2], (False, "m2", "number"), "S(1)"),
    ("setitem", "S(1) R", [2, 1], (False, "m1 :", "number"), "S(1)"),
    ("setitem", "S(1) R S(1)", [2, 1, 2], (True, "t. :", ".."), "S(1)"),
]
REFUSED = [
    ("getitem", "S(0)", [2], ("| :", False), "nearest"),
    ("getitem", "S(0) S(0)", [2, 1], ("t. :", False), "nearest"),
    ("getitem", "S(0) R", [2, 1], ("m1 :", False), "nearest"),
    ("getitem", "R S(0)", [2, 1], ("m1 :", False), "nearest"),
    ("getitem", "R S(0)", [2, 1], ("l. t.", False), "nearest"),
    ("getitem", "R P(sum)", [2, 0], ("I :", False), "nearest"),
    ("getitem", "S(0)/P(max)", [2], ("i :", False), "do not commute"),
    ("setitem", "S(0) S(0)", [2, 1], (True, "i :", "."), "nearest"),
    ("setitem", "S(1) R", [2, 1], (True, "i :", "."), "nearest"),
    ("setitem", "S(0) S(0)", [2, 2], (True, "| :", ".."), "nearest"),
    ("setitem", "S(0) R R", [2, 1, 2], (True, "t. :", ".."), "nearest"),
    ("setitem", "P(max) R", [2, 1], (True, "i :", "."), "nearest"),
    ("setitem", "P(prod)", [2], (False, "i :", "number"), "nearest"),
    ("setitem", "R S(0)", [2, 1], (True, "i :", "."), "nearest"),
    ("setitem", "S(0) S(0) R", [2, 1, 1], (False, "m1 :", "."), "nearest"),
]


@pytest.mark.parametrize(("op", "operands", "ndims", "static", "output"), ACCEPTED)
def test_accepted(op, operands, ndims, static, output):
    assert infer(op, operands, ndims, *static) == output


@pytest.mark.parametrize(("op", "operands", "ndims", "static", "message"), REFUSED)
def test_refused(op, operands, ndims, static, message):
    with pytest.raises(LayoutError, match=message):
        infer(op, operands, ndims, *static)


def test_only_an_integer_on_a_split_dim_gives_a_copy():
    from hyper_dispatch import find_op
    from hyper_layout import Layout, Shard
    from tests.support.rules import ONE_AXIS

    infer("getitem", "R", [2], "i :", False)
    op = find_op("getitem")
    layout, other = Layout(ONE_AXIS, (Shard(0),), 2), Layout(ONE_AXIS, (Shard(1),), 2)
    assert op.infer_layout([layout, "i :", False])[1].copies
    assert not op.infer_layout([layout, ": i", False])[1].copies
    assert not op.infer_layout([other, "i :", False])[1].copies
    # A list gives a copy on a single device too.
    assert not op.infer_layout([layout, "l. :", False])[1].copies
    assert op.views([layout, "i :", False]) and not op.views([layout, "l. :", False])


SIZES = (2, 3, 5, 7)


@st.composite
def indices(draw):
    """An index of an array of shape SIZES, its tokens, and per token the NumPy element."""
    tokens, elements, dim = [], [], 0
    while dim < len(SIZES):
        kind = draw(st.sampled_from(["i", ":", ":", "n", "t", "m"]))
        if kind == "n" and tokens.count("n") > 1:
            continue
        if kind == "i":
            tokens.append("i")
            elements.append(draw(st.integers(0, SIZES[dim] - 1)))
        elif kind == ":":
            tokens.append(":")
            elements.append(slice(None))
        elif kind == "n":
            tokens.append("n")
            elements.append(None)
            continue
        elif kind == "t":
            shape = draw(st.sampled_from([(11,), (13, 11), (1, 11), (13, 1)]))
            tokens.append("t" + "".join("1" if size == 1 else "." for size in shape))
            elements.append(np.zeros(shape, dtype=int))
        else:
            if any(token[0] in "tm" for token in tokens):
                continue
            mask = np.zeros(SIZES[dim], dtype=bool)
            mask[0] = True
            tokens.append("m1")
            elements.append(mask)
        dim += 1
    return tokens, elements


@given(indices())
@settings(max_examples=150, deadline=None)
def test_dims_of_the_result(case):
    tokens, elements = case
    code = read_code(" ".join(tokens))
    array = np.zeros(SIZES)
    # As the frameworks do, and NumPy does not: integers are taken first.
    picked = array[
        tuple(e if t == "i" else slice(None) for t, e in zip(tokens, elements, strict=True) if t != "n")
    ]
    result = picked[tuple(e for t, e in zip(tokens, elements, strict=True) if t != "i")]
    assert code.ndim == result.ndim
    for element in code.elements:
        if element.token == ":":
            assert result.shape[element.out] == SIZES[element.dim]
        elif element.token == "n":
            assert result.shape[element.out] == 1
        elif element.token == "i":
            assert element.out == -1
        else:
            block = result.shape[code.block : code.block + code.block_ndim]
            assert set(block) <= {1, 11, 13}
            assert element.out == code.block
            if element.token[0] == "t":
                given = elements[code.elements.index(element)].shape
                for out, size in enumerate(block):
                    dim = tensor_dim(element.token, code.block_ndim, out)
                    assert dim is None or given[dim] == size
