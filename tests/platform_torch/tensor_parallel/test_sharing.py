"""Design section 6: parameters are converted in place, so that ties and optimizers keep the object."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from hyper_parallel import (
    ColwiseParallel,
    DTensor,
    NoParallel,
    RowwiseParallel,
    SequenceParallel,
    Shard,
    distribute_tensor,
    parallelize_module,
)
from tests.platform_torch.tensor_parallel.common import close, line, on_ranks, refused, same_gradients, values

VOCABULARY, HIDDEN, FEATURES = 16, 8, 12
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=False),
    "adamw foreach": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
}


class Tied(nn.Module):
    """An embedding, an MLP, a norm and a head with the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.up = nn.Linear(HIDDEN, FEATURES)
        self.down = nn.Linear(FEATURES, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN)
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Any) -> Any:
        x = self.embedding(ids)
        return self.head(self.norm(x + self.down(torch.relu(self.up(x)))))


def plan(sequence: bool) -> dict[str, Any]:
    if not sequence:
        return {
            "embedding": RowwiseParallel(),
            "up": ColwiseParallel(),
            "down": RowwiseParallel(),
            "norm": NoParallel(),
            "head": ColwiseParallel(output_layouts=Shard(-1)),
        }
    row: dict[str, Any] = {"output_layouts": Shard(1), "use_local_output": False}
    return {
        "embedding": RowwiseParallel(**row),
        "up": ColwiseParallel(),
        "down": RowwiseParallel(**row),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(),
    }


def build() -> Tied:
    torch.manual_seed(0)
    return Tied().double()


def ids(step: int = 0) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (2, 8), generator=torch.Generator().manual_seed(step))


def backward(model: nn.Module, step: int) -> torch.Tensor:
    """Gradients for a sum of logits with fixed weights; each rank has its part of the vocabulary."""
    logits = model(ids(step))
    weights = values(2, 8, VOCABULARY, seed=step)
    size, place = VOCABULARY // logits.shape[-1], line().get_local_rank()
    logits.backward(weights.chunk(size, -1)[place if size > 1 else 0])
    return logits.detach()


@on_ranks(2, 4)
@pytest.mark.parametrize("sequence", [False, True])
def test_tied_embeddings_stay_one_parameter(sequence: bool) -> None:
    """Row-wise for the embedding and column-wise for the head are the same cut: by vocabulary."""
    single, parallel = build(), build()
    weight, before = parallel.embedding.weight, dict(parallel.named_parameters())
    parallelize_module(parallel, line(), plan(sequence))
    assert parallel.head.weight is parallel.embedding.weight is weight
    assert weight.placements == (Shard(0),)
    assert dict(parallel.named_parameters()).keys() == before.keys()
    for name, parameter in parallel.named_parameters():
        assert parameter is before[name]
        assert isinstance(parameter, DTensor)
    backward(single, 0)
    backward(parallel, 0)
    same_gradients(single, parallel)


@on_ranks(2, 4)
def test_ties_that_would_be_cut_in_two_ways() -> None:
    """Rows for one user and columns for the other cannot be one tensor."""
    plan: dict[str, Any] = {"embedding": ColwiseParallel(), "head": ColwiseParallel()}
    refused(
        ValueError,
        r"head: parameter 'weight' of Linear is laid out as .* already .*same placements",
        lambda: parallelize_module(build(), line(), plan),
    )


@on_ranks(2)
@pytest.mark.parametrize("name", list(OPTIMIZERS))
@pytest.mark.parametrize("sequence", [False, True])
def test_an_optimizer_built_before_keeps_training(name: str, sequence: bool) -> None:
    """Its parameter groups hold the same objects; momentum lives on their shards."""
    single, parallel = build(), build()
    optimizers = [OPTIMIZERS[name](model.parameters()) for model in (single, parallel)]
    parallelize_module(parallel, line(), plan(sequence))
    for step in range(3):
        for model, optimizer in zip((single, parallel), optimizers, strict=True):
            optimizer.zero_grad()
            backward(model, step)
            optimizer.step()
        same_gradients(single, parallel, 1e-11)
        for (key, expected), found in zip(single.named_parameters(), parallel.parameters(), strict=True):
            close(found, expected, key, 1e-11)
    assert len(optimizers[1].state) == len(list(parallel.parameters()))
    for parameter, state in optimizers[1].state.items():
        for key, value in state.items():
            if key != "step":
                assert value.placements == parameter.placements


def with_momentum(foreach: bool) -> tuple[Tied, torch.optim.Optimizer]:
    """A model after its first step on one device."""
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=foreach)
    backward(model, 0)
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


@on_ranks(2)
@pytest.mark.parametrize("foreach", [False, True])
def test_an_optimizer_with_old_state_is_told_so(foreach: bool) -> None:
    """Momentum of whole tensors does not fit shards: an error, never a fresh start in silence."""
    model, optimizer = with_momentum(foreach)
    parallelize_module(model, line(), plan(False))
    backward(model, 1)
    with pytest.raises(ValueError, match="plain tensor"):
        optimizer.step()


@on_ranks(2)
@pytest.mark.parametrize("foreach", [False, True])
def test_old_state_goes_on_when_it_is_distributed(foreach: bool) -> None:
    """The optimizer finds its state under the same parameters; laid out like them it is exact."""
    (single, reference), (parallel, optimizer) = with_momentum(foreach), with_momentum(foreach)
    parallelize_module(parallel, line(), plan(False))
    for parameter, state in optimizer.state.items():
        state["momentum_buffer"] = distribute_tensor(
            state["momentum_buffer"], parameter.device_mesh, parameter.placements
        )
    for step in (1, 2):
        for model, stepping in ((single, reference), (parallel, optimizer)):
            stepping.zero_grad()
            backward(model, step)
            stepping.step()
        for (key, expected), found in zip(single.named_parameters(), parallel.parameters(), strict=True):
            close(found, expected, key, 1e-11)


@on_ranks(2)
def test_frozen_parameters_stay_frozen() -> None:
    single, parallel = build(), build()
    for model in (single, parallel):
        model.up.weight.requires_grad_(False)
        model.norm.bias.requires_grad_(False)
        model.embedding.weight.requires_grad_(False)
    parallelize_module(parallel, line(), plan(True))
    for (name, expected), found in zip(single.named_parameters(), parallel.named_parameters(), strict=True):
        assert found[1].requires_grad == expected.requires_grad, name
    backward(single, 0)
    backward(parallel, 0)
    same_gradients(single, parallel)
    assert parallel.up.weight.grad is None


@on_ranks(2)
def test_a_parameter_shared_with_a_plain_module() -> None:
    """Both modules are named; nothing was converted."""
    model = build()
    missing = plan(False)
    del missing["embedding"]
    refused(
        ValueError,
        "parameter 'weight' of 'head' is shared with 'embedding', which the plan leaves plain",
        lambda: parallelize_module(model, line(), missing),
    )
    assert not any(isinstance(parameter, DTensor) for parameter in model.parameters())


@on_ranks(2)
def test_a_parameter_that_cannot_be_exchanged_in_place() -> None:
    """Somebody else holds on to the object: the error says what to do."""
    model = nn.Sequential(nn.Linear(HIDDEN, FEATURES))
    reference = weakref.ref(model[0].weight)
    with pytest.raises(RuntimeError, match="in place, and an optimizer built before would train the old"):
        parallelize_module(model, line(), {"0": ColwiseParallel()})
    assert reference() is model[0].weight


@on_ranks(2)
def test_a_copy_of_a_parallel_model_computes_alike() -> None:
    parallel = parallelize_module(build(), line(), plan(True))
    again = copy.deepcopy(parallel)
    assert again.head.weight is again.embedding.weight
    assert again.head.weight is not parallel.head.weight
    close(backward(again, 0), backward(parallel, 0))
    same_gradients_of = dict(parallel.named_parameters())
    for name, parameter in again.named_parameters():
        assert parameter.grad is not None
        assert torch.equal(parameter.grad.to_local(), same_gradients_of[name].grad.to_local())
