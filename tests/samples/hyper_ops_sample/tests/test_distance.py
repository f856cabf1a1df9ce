"""cdist on two real ranks: every split that the rule has, forward and gradients, beside one device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from hyper_conformance import ProcessRanks
from hyper_dtensor import distribute_tensor, init_device_mesh
from hyper_layout import LayoutError, Partial, Placement, Replicate, Shard
from hyper_platform_torch.conformance import TorchHarness

R, S = Replicate(), Shard


@pytest.fixture(scope="module")
def ranks() -> Iterator[ProcessRanks]:
    with ProcessRanks(2, TorchHarness()) as started:
        yield started


def beside_one_device(left: Placement, right: Placement, wanted: Placement, p: float) -> None:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    values = torch.randn(2, 4, 3, dtype=torch.float64), torch.randn(2, 6, 3, dtype=torch.float64)
    single = [value.clone().requires_grad_() for value in values]
    ours = [
        distribute_tensor(value, mesh, [placement]).requires_grad_()
        for value, placement in zip(values, (left, right), strict=True)
    ]
    expected, got = torch.cdist(*single, p=p), torch.cdist(*ours, p=p)
    assert got.placements == (wanted,)
    torch.testing.assert_close(got.full_tensor(), expected)
    expected.sin().sum().backward()
    got.sin().sum().backward()
    for mine, theirs in zip(ours, single, strict=True):
        torch.testing.assert_close(mine.grad.full_tensor(), theirs.grad)


@pytest.mark.parametrize("p", [1.0, 2.0])
@pytest.mark.parametrize(
    ("left", "right", "wanted"), [(S(0), S(0), S(0)), (S(1), R, S(1)), (R, S(1), S(2)), (R, R, R)], ids=str
)
def test_beside_one_device(
    ranks: ProcessRanks, left: Placement, right: Placement, wanted: Placement, p: float
) -> None:
    ranks.run(beside_one_device, left, right, wanted, p)


def refused(left: Placement, right: Placement) -> str:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    x = torch.ones(4, 4)
    with pytest.raises(LayoutError) as caught:
        torch.cdist(distribute_tensor(x, mesh, [left]), distribute_tensor(x, mesh, [right]))
    return str(caught.value)


@pytest.mark.parametrize(
    ("left", "right"), [(S(1), S(1)), (Partial(), R), (R, Partial()), (S(0), S(0))], ids=str
)
def test_what_has_no_row_is_refused_alike(ranks: ProcessRanks, left: Placement, right: Placement) -> None:
    first, second = ranks.run(refused, left, right)
    assert first == second
    assert "cdist cannot combine its operands on mesh axis 'tp'" in first
    assert ".redistribute(tp=R)" in first
