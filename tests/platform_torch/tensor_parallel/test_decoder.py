"""A Qwen3-like decoder under the published plan: every gradient, and the collectives of a step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from hyper_parallel import DTensor, parallelize_module
from tests.platform_torch.tensor_parallel.common import line, on_ranks, world
from tests.platform_torch.tensor_parallel.decoder import HIDDEN, LAYERS, VOCABULARY, Decoder, plan
from tests.platform_torch.tensor_parallel.training import Counts, count, train_alike


def build(tied: bool) -> Decoder:
    torch.manual_seed(0)
    model = Decoder(tied).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def loss_of(model: nn.Module, step: int) -> Any:
    """Of a batch with some positions that do not count."""
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(0, VOCABULARY, (2, 8), generator=generator)
    return model(ids, ids.masked_fill(ids < 4, -100))


@on_ranks(2, 4)
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("loss_parallel", [False, True])
@pytest.mark.parametrize("sequence", [False, True])
def test_gradients_are_the_single_device_ones(sequence: bool, loss_parallel: bool, tied: bool) -> None:
    parallel = parallelize_module(build(tied), line(), plan(sequence, loss_parallel))
    train_alike(build(tied), parallel, loss_of, steps=2)
    assert len(list(parallel.parameters())) == 11 * LAYERS + (2 if tied else 3)
    assert (parallel.lm_head.weight is parallel.model.embed_tokens.weight) is tied


@on_ranks(2, 4)
def test_what_a_rank_holds() -> None:
    """Matrices are cut by the number of ranks, norms are whole; the model knows nothing of it."""
    model = parallelize_module(build(False), line(), plan(True, True))
    for name, parameter in model.named_parameters():
        assert isinstance(parameter, DTensor), name
        assert parameter.to_local().numel() == parameter.numel() // (1 if "norm" in name else world()), name
    assert type(model.model.rotary_emb.inv_freq) is torch.Tensor
    assert tuple(model.model.layers[0].input_layernorm.weight.shape) == (HIDDEN,)


@on_ranks(2, 4)
@pytest.mark.parametrize("loss_parallel", [False, True])
def test_sequence_parallel_sends_the_hand_written_collectives(loss_parallel: bool) -> None:
    """Per layer two pairs of gather and scatter each way; beside them:

    Forward: the embedding's sum is scattered; the head gathers its input, and its logits unless the loss takes them
    split, which costs Megatron's three reductions. Backward: the transposes; that of the gathered logits is a slice,
    as all ranks compute the same loss. One small reduction for all weights that are whole and see a part: the norms
    of the sequence, two per layer and the last one, and the norms of the heads, two per layer.
    """
    model = parallelize_module(build(False), line(), plan(True, loss_parallel))
    layers = 2 * LAYERS
    forward = {"reduce_scatter": layers + 1, "all_gather": layers + 1}
    if loss_parallel:
        forward["all_reduce"] = 3
    else:
        forward["all_gather"] += 1
    norms = 1
    backward = {"reduce_scatter": layers + 1, "all_gather": layers + 1, "all_reduce": norms}
    assert count(model, loss_of) == Counts(forward, backward)


@on_ranks(2, 4)
@pytest.mark.parametrize("loss_parallel", [False, True])
def test_without_sequence_parallelism(loss_parallel: bool) -> None:
    """Per layer two reductions each way; the embedding's sum forward, the input of the head backward.

    The norms of the sequence see all of it and need nothing, those of the heads are as before. Gathered logits cost
    one gather, the loss over split ones three reductions.
    """
    model = parallelize_module(build(True), line(), plan(False, loss_parallel))
    layers, head_norms = 2 * LAYERS, 1
    forward = {"all_reduce": layers + 1}
    if loss_parallel:
        forward["all_reduce"] += 3
    else:
        forward["all_gather"] = 1
    assert count(model, loss_of) == Counts(forward, {"all_reduce": layers + 1 + head_norms})
