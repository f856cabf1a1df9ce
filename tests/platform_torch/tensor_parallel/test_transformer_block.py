"""The promise on a whole block: single-device gradients over several steps, the hand-written collectives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hyper_parallel import parallelize_module
from tests.platform_torch.tensor_parallel.block import (
    BATCH,
    SEQUENCE,
    VOCABULARY,
    Model,
    plain_plan,
    sequence_plan,
)
from tests.platform_torch.tensor_parallel.common import line, on_ranks
from tests.platform_torch.tensor_parallel.training import Counts, count, train_alike

PLANS = {"plain": plain_plan, "sequence": sequence_plan}


def build() -> Model:
    torch.manual_seed(0)
    model = Model().double()
    for parameter in model.parameters():  # norms and biases that are not one and zero
        nn.init.normal_(parameter, std=0.3)
    return model


def loss_of(model: nn.Module, step: int) -> Any:
    """Cross entropy of the next token."""
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE + 1), generator=generator)
    return F.cross_entropy(model(ids[:, :-1]).view(-1, VOCABULARY), ids[:, 1:].reshape(-1))


@on_ranks(2, 4)
@pytest.mark.parametrize("plan", list(PLANS))
def test_gradients_are_the_single_device_ones_over_three_steps(plan: str) -> None:
    train_alike(build(), parallelize_module(build(), line(), PLANS[plan]()), loss_of)


@on_ranks(2, 4)
def test_plain_styles_send_the_hand_written_collectives() -> None:
    """Megatron's pairs. Forward: an all_reduce of the output of attention and of the MLP (its function g).

    Backward: an all_reduce of the gradient of the input of each (f), shared by q, k and v and by gate and up. The
    biases of o_proj and down_proj enter their sum once and cost nothing; embedding, norms and head are plain.
    """
    model = parallelize_module(build(), line(), plain_plan())
    assert count(model, loss_of) == Counts(forward={"all_reduce": 2}, backward={"all_reduce": 2})


@on_ranks(2, 4)
def test_sequence_parallel_sends_the_hand_written_collectives() -> None:
    """Megatron's pairs with sequence parallelism: each all_reduce in two halves, one on either side.

    Forward: per block an all_gather at the entrance of attention and MLP and a reduce_scatter at their exits; the
    embedding's sum over the vocabulary is a reduce_scatter, the head gathers its input. Backward: their transposes.
    The loss over a split vocabulary reduces the maximum, the sum of exponentials and the logit of the target
    (Megatron's three), and nothing backward. Each norm sees a part of the sequence, so the gradients of its weight
    and bias are summed over the ranks: three norms of two parameters, in one collective at the end.
    """
    model = parallelize_module(build(), line(), sequence_plan())
    block, embedding, head, loss, norms = 2, 1, 1, 3, 1
    assert count(model, loss_of) == Counts(
        forward={"all_gather": block + head, "reduce_scatter": block + embedding, "all_reduce": loss},
        backward={"reduce_scatter": block + head, "all_gather": block + embedding, "all_reduce": norms},
    )
