"""The rules of operations that move, drop and repeat dims."""

from __future__ import annotations

import pytest

from hyper_layout import LayoutError
from tests.support.rules import infer

# Cache values behind the layouts: see the strategies.
ACCEPTED = [
    ("permute", "S(0)", [3], (2, 0, 1), "S(1)"),
    ("transpose", "S(0)/S(0)", [2], (1, 0), "S(1)/S(1)"),
    ("transpose", "SS(0,2)/S(0)", [2], (1, 0), "SS(1,2)/S(1)"),
    ("mT", "S(1)/P(sum)", [3], (0, 2, 1), "S(2)/P(sum)"),
    ("t", "P(max)", [2], (1, 0), "P(max)"),
    ("squeeze", "S(2)", [3], (0, 1), "S(0)"),
    ("squeeze", "P(prod)", [3], (), "P(prod)"),
    ("unsqueeze", "S(1)", [2], (0,), "S(2)"),
    ("unsqueeze", "S(0)", [2], (2,), "S(0)"),
    ("expand", "S(0)", [2], (4, 1, 3, 4, 5), "S(1)"),
    ("expand", "P(avg)", [1], (1, 6), "P(avg)"),
    ("expand_as", "R S(0)", [2, 2], (1, 4, 2, 4), "S(0)"),
    ("expand_as", "R S(1)", [2, 2], (1, 4, 2, 4), "R"),
    ("expand_as", "S(1) S(0)", [2, 2], (1, 4, 2, 4), "S(1)"),
    ("expand_as", "P(sum) P(max)", [2, 2], (1, 4, 2, 4), "P(sum)"),
    ("flip", "S(1)", [3], (0, 2), "S(1)"),
    ("roll", "P(min)", [2], (0, 1), "P(min)"),
    ("repeat", "S(0)", [2], (True, False, True), "S(1)"),
    ("tile", "S(1)", [2], (True, False), "S(1)"),
    ("repeat_interleave", "S(1)", [2], (False, 1), "S(1)"),
    ("repeat_interleave", "S(0)", [2], (False, None), "S(0)"),
    ("repeat_interleave", "S(0) R", [2, 1], (True, 1), "S(0)"),
    ("diagonal", "S(1)", [3], (0, 2), "S(0)"),
]
REFUSED = [
    ("flip", "S(0)", [3], (0, 2), "nearest"),
    ("roll", "S(0)", [2], (0, 1), "nearest"),
    ("repeat", "S(0)", [2], (True, True, False), "nearest"),
    ("repeat_interleave", "S(1)", [2], (False, None), "nearest"),
    ("repeat_interleave", "S(1) R", [2, 1], (True, 1), "nearest"),
    ("repeat_interleave", "R S(0)", [2, 1], (True, 1), "nearest"),
    ("diagonal", "S(0)", [3], (0, 2), "nearest"),
    ("t_", "R", [2], (), "out-of-place"),
    ("squeeze_", "S(0)", [2], (), "out-of-place"),
]


@pytest.mark.parametrize(("op", "operands", "ndims", "static", "output"), ACCEPTED)
def test_accepted(op, operands, ndims, static, output):
    assert infer(op, operands, ndims, *static) == output


@pytest.mark.parametrize(("op", "operands", "ndims", "static", "message"), REFUSED)
def test_refused(op, operands, ndims, static, message):
    with pytest.raises(LayoutError, match=message):
        infer(op, operands, ndims, *static)


def test_axes_of_size_one_vanish_with_their_dim():
    from hyper_dispatch import find_op
    from hyper_layout import DeviceMesh, Layout, Shard

    mesh = DeviceMesh("cpu", (1, 2), ("one", "tp"))
    layout = Layout(mesh, (Shard(0), Shard(1)), 2)
    outputs, _ = find_op("squeeze").infer_layout([layout, 0])
    assert outputs[0].notation == "one:R tp:S(0)"
    outputs, _ = find_op("expand").infer_layout([layout, 1, 4, 3, 4])
    assert outputs[0].notation == "one:R tp:S(1)"
