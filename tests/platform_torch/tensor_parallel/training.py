"""Training a model beside its single-device twin, and counting what one step sends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from hyper_dtensor import CommDebugMode
from tests.platform_torch.tensor_parallel.common import TOLERANCE, close, same_gradients

Loss = Callable[[nn.Module, int], Any]
"""The loss of a model on the batch of a step."""


class Counts(NamedTuple):
    """Collectives of one step by kind."""

    forward: dict[str, int]
    backward: dict[str, int]


def train_alike(single: nn.Module, parallel: nn.Module, loss_of: Loss, steps: int = 3) -> None:
    """Train both with AdamW; losses and gradients are equal in every step."""
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-2) for model in (single, parallel)]
    for step in range(steps):
        losses = []
        for model, optimizer in zip((single, parallel), optimizers, strict=True):
            optimizer.zero_grad()
            losses.append(loss_of(model, step))
            losses[-1].backward()
        close(losses[1], losses[0], f"loss of step {step}", TOLERANCE)
        assert all(parameter.grad is not None for parameter in single.parameters())
        same_gradients(single, parallel, TOLERANCE)
        for optimizer in optimizers:
            optimizer.step()


def count(model: nn.Module, loss_of: Loss) -> Counts:
    """What a step of a model sends after its first one."""
    loss_of(model, 0).backward()
    model.zero_grad()
    with CommDebugMode(model) as comm:
        loss_of(model, 0).backward()
    assert comm.total == sum(comm.forward_counts.values()) + sum(comm.backward_counts.values())
    return Counts(comm.forward_counts, comm.backward_counts)
