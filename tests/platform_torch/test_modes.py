"""no_grad, inference_mode, autocast and checkpointing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import dropout, linear
from torch.utils.checkpoint import checkpoint

from hyper_dtensor import CommDebugMode, DTensor
from tests.platform_torch.helpers import (
    S0,
    Block,
    R,
    assert_equal,
    assert_same_gradients,
    batches,
    laid_out,
    line,
    loss_of,
    numbers,
    pair,
    raised,
)
from tests.support.ranks import RankPool


def without_gradients() -> None:
    mesh = line()
    single, model = pair(mesh)
    plain, x = batches(mesh, 1)[0]
    for mode in (torch.no_grad, torch.inference_mode):
        with mode(), CommDebugMode() as comm:
            y = linear(x, model.up, model.up_bias)
            out = model(x)
        assert not y.requires_grad
        assert y.grad_fn is None
        assert y._views is None
        assert_equal(out, single(plain))
        assert comm.backward_counts == {}
    # Made without gradients, used with them: a constant, as on one device.
    with torch.no_grad():
        ours, theirs = model.gain * 2, single.gain * 2
    (ours * model.gain).sum().backward()
    (theirs * single.gain).sum().backward()
    assert_same_gradients(model, single)
    # Views made under no_grad are not found again.
    with torch.no_grad():
        loss_of(model, x)
    for block, value in ((model, x), (single, plain)):
        block.zero_grad()
        loss_of(block, value).backward()
    assert_same_gradients(model, single)
    with torch.no_grad():
        model.gain.add_(1)
        single.gain.add_(1)
        model.up[0:8].mul_(2)
        single.up[0:8].mul_(2)
    for block, value in ((model, x), (single, plain)):
        block.zero_grad()
        loss_of(block, value).backward()
    assert_same_gradients(model, single)


def test_no_grad_and_inference_mode(ranks2: RankPool) -> None:
    ranks2.run(without_gradients)


def autocasted() -> None:
    mesh = line()
    single, model = pair(mesh)
    single.float()
    model.float()
    plain, x = batches(mesh, 1)[0]
    losses = []
    for block, value in ((single, plain.float()), (model, x.float())):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = linear(value, block.up, block.up_bias)
            assert hidden.dtype == torch.bfloat16
            if isinstance(hidden, DTensor):
                assert hidden.to_local().dtype == torch.bfloat16
                assert torch.Tensor.dtype.__get__(hidden) == torch.bfloat16
            loss = loss_of(block, value)
        loss.backward()
        losses.append(loss)
    assert_equal(losses[1], losses[0], "loss", 2e-2)
    assert model.up.grad.dtype == torch.float32
    assert_same_gradients(model, single, 5e-2)


def test_autocast(ranks2: RankPool) -> None:
    ranks2.run(autocasted)


def inner(block: Block, x: Any) -> Any:
    """The distributed part, with a random op in it."""
    hidden = torch.tanh(linear(x, block.up, block.up_bias))
    return linear(dropout(hidden, 0.0), block.down) * block.gain


def recomputed(border: str) -> None:
    """A checkpointed region gives the gradients of the plain one; the border is DTensors or plain tensors."""
    mesh = line()
    single, model = pair(mesh)
    for plain, _ in batches(mesh, 2):
        x = plain.clone().requires_grad_()
        single.outside(inner(single, x)).square().mean().backward()
        if border == "dtensor":
            dx = laid_out(plain, mesh, R).requires_grad_()
            out = checkpoint(inner, model, dx, use_reentrant=False).full_tensor()
        else:
            dx = plain.clone().requires_grad_()

            def region(value: torch.Tensor) -> torch.Tensor:
                return inner(model, DTensor.from_local(value, mesh, [R])).full_tensor()

            out = checkpoint(region, dx, use_reentrant=border == "reentrant")
        model.outside(out).square().mean().backward()
        assert_equal(dx.grad, x.grad, "input")
        assert_same_gradients(model, single)


@pytest.mark.parametrize("border", ["dtensor", "plain", "reentrant"])
def test_checkpoint(border: str, ranks2: RankPool) -> None:
    ranks2.run(recomputed, border)


def recomputed_random() -> None:
    """Recomputation draws the same numbers: the mask of dropout is that of the forward."""
    mesh = line()
    seen: list[torch.Tensor] = []

    def region(x: DTensor) -> DTensor:
        dropped = dropout(x, 0.5)
        seen.append(dropped.detach().to_local().clone())
        return dropped * dropped * x

    for placement in (S0, R):
        seen.clear()
        x = laid_out(numbers(4, 4), mesh, placement).requires_grad_()
        loss = checkpoint(region, x, use_reentrant=False).sum()
        torch.rand(3)  # the generator goes on in between
        loss.backward()
        assert len(seen) == 2
        assert torch.equal(seen[0], seen[1])
        mask = (seen[0] != 0) * 4.0
        assert_equal(x.grad.to_local(), 3 * mask * x.detach().to_local().square(), "gradient")


def test_checkpoint_repeats_random_operations(ranks2: RankPool) -> None:
    ranks2.run(recomputed_random)


def reentrant_with_dtensors() -> list[str]:
    mesh = line()
    _, model = pair(mesh)
    x = laid_out(numbers(6, 4), mesh, R).requires_grad_()
    y = checkpoint(inner, model, x, use_reentrant=True)
    messages = [raised(lambda use=use: use()) for use in (lambda: y * 2, y.to_local, y.sum, y.full_tensor)]

    def region(value: DTensor) -> torch.Tensor:
        return inner(model, value).full_tensor()

    messages.append(raised(lambda: checkpoint(region, x, use_reentrant=True)))
    return messages


def test_a_reentrant_checkpoint_with_dtensors_is_refused(ranks2: RankPool) -> None:
    for messages in ranks2.run(reentrant_with_dtensors):
        assert len(messages) == 5
        for message in messages:
            assert "use_reentrant=False" in message
            assert "local_map" in message


def collectives_of_a_checkpoint() -> list[dict[str, int]]:
    """Recomputation repeats the collectives of the region's forward, and no others."""
    mesh = line()
    counts = []
    for checkpointed in (False, True):
        _, model = pair(mesh)
        x = laid_out(numbers(6, 4), mesh, R)

        def region(x: DTensor, model: Block = model) -> DTensor:
            return inner(model, x).redistribute([R]).square()

        with CommDebugMode() as comm:
            out = checkpoint(region, x, use_reentrant=False) if checkpointed else region(x)
            out.sum().backward()
        counts.append(comm.counts)
    return counts


def test_collectives_of_a_checkpoint(ranks2: RankPool) -> None:
    for plain, checkpointed in ranks2.run(collectives_of_a_checkpoint):
        assert checkpointed == {**plain, "all_reduce": plain["all_reduce"] + 1}
