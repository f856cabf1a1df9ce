"""The promise on a whole block: single-device gradients over several steps, the hand-written collectives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hyper_dtensor import DTensor, get_platform
from hyper_parallel import CommDebugMode, init_device_mesh, parallelize_module
from tests.platform_torch.tensor_parallel.block import (
    BATCH,
    SEQUENCE,
    VOCABULARY,
    Model,
    plain_plan,
    sequence_plan,
)

PLANS = {"plain": plain_plan, "sequence": sequence_plan}
STEPS = 3


def build() -> Model:
    torch.manual_seed(0)
    return Model().double()


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE + 1), generator=generator)
    return ids[:, :-1], ids[:, 1:]


def whole(x: Any) -> torch.Tensor:
    return x.full_tensor() if isinstance(x, DTensor) else x


def loss_of(model: torch.nn.Module, step: int) -> Any:
    ids, targets = batch(step)
    return F.cross_entropy(model(ids).view(-1, VOCABULARY), targets.reshape(-1))


def compare_steps(plan: str) -> float:
    """The largest relative error of any loss or gradient over three optimizer steps."""
    world = get_platform().world_size()
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
    single, parallel = build(), parallelize_module(build(), mesh, PLANS[plan]())
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-2) for model in (single, parallel)]
    worst = 0.0
    for step in range(STEPS):
        losses = []
        for model, optimizer in zip((single, parallel), optimizers, strict=True):
            optimizer.zero_grad()
            loss = loss_of(model, step)
            loss.backward()
            losses.append(whole(loss).detach())
        worst = max(worst, float((losses[0] - losses[1]).abs() / losses[0]))
        for (name, expected), found in zip(single.named_parameters(), parallel.parameters(), strict=True):
            assert expected.grad is not None and found.grad is not None, name
            error = (whole(found.grad) - expected.grad).norm() / expected.grad.norm().clamp_min(1e-9)
            worst = max(worst, float(error))
        for optimizer in optimizers:
            optimizer.step()
    return worst


def count_collectives(plan: str) -> tuple[dict[str, int], dict[str, int], int]:
    """Collectives of one step, forward and backward, and the number of split or norm parameters."""
    world = get_platform().world_size()
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
    model = parallelize_module(build(), mesh, PLANS[plan]())
    loss_of(model, 0).backward()
    with CommDebugMode(model) as comm:
        loss_of(model, 0).backward()
    return comm.forward_counts, comm.backward_counts, comm.total


@pytest.mark.parametrize("plan", list(PLANS))
@pytest.mark.parametrize("pool", ["ranks2", "ranks4"])
def test_gradients_are_the_single_device_ones_over_three_steps(
    plan: str, pool: str, request: pytest.FixtureRequest
) -> None:
    worst = request.getfixturevalue(pool).run(compare_steps, plan)
    assert max(worst) < 1e-12


def test_plain_styles_send_the_hand_written_collectives(ranks2: Any) -> None:
    """Megatron's pairs: per block 2 all_reduce forward and 2 backward."""
    for forward, backward, total in ranks2.run(count_collectives, "plain"):
        assert forward == {"all_reduce": 2}
        assert backward == {"all_reduce": 2}
        assert total == 4


def test_sequence_parallel_sends_the_hand_written_collectives(ranks2: Any) -> None:
    """Per block 2 all_gather and 2 reduce_scatter each way, and what embedding, head and loss add.

    Forward: the embedding's reduce_scatter, the head's all_gather, three all_reduce of the vocabulary-parallel
    loss (maximum, sum of exponentials, the target's logit). Backward: their transposes, and one small
    all_reduce for each weight and bias of the three norms and of the two row-parallel layers' ... none.
    """
    for forward, backward, _ in ranks2.run(count_collectives, "sequence"):
        assert forward == {"all_gather": 2 + 1, "reduce_scatter": 2 + 1, "all_reduce": 3}
        assert backward == {"all_gather": 2 + 1, "reduce_scatter": 2 + 1, "all_reduce": 3 * 2}
