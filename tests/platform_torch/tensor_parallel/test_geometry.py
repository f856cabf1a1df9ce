"""RFC 8.2 B1-B9: how parameters are cut, and whose data they hold."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from hyper_dtensor import CommDebugMode
from hyper_layout import Placement
from hyper_parallel import (
    ColwiseParallel,
    DTensor,
    NoParallel,
    ParallelStyle,
    Replicate,
    RowwiseParallel,
    SequenceParallel,
    Shard,
    parallelize_module,
)
from tests.platform_torch.tensor_parallel.common import (
    close,
    line,
    on_ranks,
    piece,
    rank,
    values,
    whole,
    world,
)

OUT, IN, VOCABULARY, HIDDEN = 12, 8, 16, 8
STYLES: dict[str, tuple[Callable[[], ParallelStyle], Callable[[], nn.Module]]] = {
    "colwise linear": (ColwiseParallel, lambda: nn.Linear(IN, OUT)),
    "rowwise linear": (RowwiseParallel, lambda: nn.Linear(IN, OUT)),
    "colwise embedding": (ColwiseParallel, lambda: nn.Embedding(VOCABULARY, HIDDEN)),
    "rowwise embedding": (RowwiseParallel, lambda: nn.Embedding(VOCABULARY, HIDDEN)),
    "sequence norm": (SequenceParallel, lambda: nn.LayerNorm(HIDDEN)),
    "no parallel": (NoParallel, lambda: nn.Linear(IN, OUT)),
    "no parallel batch norm": (NoParallel, lambda: nn.BatchNorm1d(HIDDEN)),
}


def cut(parameter: Any, placement: Placement, shape: tuple[int, ...], original: torch.Tensor) -> None:
    """A DTensor leaf of the whole shape whose local part is this rank's piece of ``original``."""
    assert isinstance(parameter, DTensor)
    assert isinstance(parameter, nn.Parameter)
    assert parameter.placements == (placement,)
    assert tuple(parameter.shape) == tuple(original.shape)
    assert tuple(parameter.to_local().shape) == shape
    assert parameter.is_leaf
    assert parameter.requires_grad
    dim = placement.dim if isinstance(placement, Shard) else None
    assert torch.equal(parameter.to_local().detach(), piece(original.detach(), dim))


def pair(name: str) -> tuple[nn.Module, nn.Module]:
    style, build = STYLES[name]
    module = build()
    return module, parallelize_module(copy.deepcopy(module), line(), style())


@on_ranks(2, 4)
def test_b1_colwise_linear() -> None:
    module, split = pair("colwise linear")
    cut(split.weight, Shard(0), (OUT // world(), IN), module.weight)
    cut(split.bias, Shard(0), (OUT // world(),), module.bias)


@on_ranks(2, 4)
def test_b2_rowwise_linear() -> None:
    module, split = pair("rowwise linear")
    cut(split.weight, Shard(1), (OUT, IN // world()), module.weight)
    cut(split.bias, Replicate(), (OUT,), module.bias)


@on_ranks(2, 4)
def test_b3_colwise_embedding() -> None:
    module, split = pair("colwise embedding")
    cut(split.weight, Shard(1), (VOCABULARY, HIDDEN // world()), module.weight)


@on_ranks(2, 4)
def test_b4_rowwise_embedding() -> None:
    module, split = pair("rowwise embedding")
    cut(split.weight, Shard(0), (VOCABULARY // world(), HIDDEN), module.weight)


@on_ranks(2, 4)
def test_b5_sequence_parallel_norm() -> None:
    module, split = pair("sequence norm")
    cut(split.weight, Replicate(), (HIDDEN,), module.weight)
    cut(split.bias, Replicate(), (HIDDEN,), module.bias)


@on_ranks(2, 4)
def test_b6_no_parallel() -> None:
    module, split = pair("no parallel")
    cut(split.weight, Replicate(), (OUT, IN), module.weight)
    cut(split.bias, Replicate(), (OUT,), module.bias)
    module, split = pair("no parallel batch norm")
    assert isinstance(split.running_mean, DTensor)
    assert split.running_mean.placements == (Replicate(),)
    assert not split.running_mean.requires_grad


@on_ranks(2, 4)
@pytest.mark.parametrize("name", list(STYLES))
def test_b7_only_the_source_rank_holds_the_truth(name: str) -> None:
    """Every style broadcasts or scatters alike; in PyTorch SequenceParallel keeps what each rank has."""
    style, build = STYLES[name]
    module = build()
    received = copy.deepcopy(module)
    if rank() != 0:
        with torch.no_grad():
            for value in [*received.parameters(), *received.buffers()]:
                value.zero_() if value.dtype == torch.int64 else value.fill_(float("nan"))
    parallelize_module(received, line(), style())
    for key, original in module.state_dict().items():
        close(received.state_dict()[key], original, key, 0.0)


@on_ranks(4)
def test_b7_another_source_rank() -> None:
    module = nn.Linear(IN, OUT)
    received = copy.deepcopy(module)
    if rank() != 2:
        nn.init.zeros_(received.weight)
    parallelize_module(received, line(), ColwiseParallel(), src_data_rank=2)
    close(received.weight, module.weight.detach(), tolerance=0.0)


@on_ranks(2, 4)
@pytest.mark.parametrize("name", list(STYLES))
def test_b8_without_a_source_nothing_is_sent(name: str) -> None:
    style, build = STYLES[name]
    module = build()
    scattered, cut_locally = copy.deepcopy(module), copy.deepcopy(module)
    with CommDebugMode() as comm:
        parallelize_module(scattered, line(), style())
    assert comm.total == len(module.state_dict())
    with CommDebugMode() as comm:
        parallelize_module(cut_locally, line(), style(), src_data_rank=None)
    assert comm.total == 0
    for found, expected in zip(
        cut_locally.state_dict().values(), scattered.state_dict().values(), strict=True
    ):
        assert found.placements == expected.placements
        assert torch.equal(found.to_local(), expected.to_local())


@on_ranks(2)
@pytest.mark.parametrize("name", list(STYLES))
def test_b9_meta_parameters_send_nothing(name: str) -> None:
    style, build = STYLES[name]
    module = build().to("meta")
    shapes = {key: value.shape for key, value in module.state_dict().items()}
    with CommDebugMode() as comm:
        parallelize_module(module, line(), style())
    assert comm.total == 0
    for key, value in module.state_dict().items():
        assert isinstance(value, DTensor)
        assert value.device.type == "meta"
        assert value.shape == shapes[key]


@on_ranks(2)
def test_b9_meta_parameters_are_filled_afterwards() -> None:
    """The usual way to build a large model: meta, parallelize, to_empty, initialise."""
    with torch.device("meta"):
        module = nn.Linear(IN, OUT)
    parallelize_module(module, line(), ColwiseParallel())
    module.to_empty(device="cpu")
    with torch.no_grad():
        module.weight.fill_(2.0)
        module.bias.zero_()
    assert module.weight.placements == (Shard(0),)
    assert torch.equal(whole(module.weight), torch.full((OUT, IN), 2.0))
    x = values(3, IN, dtype=torch.float32)
    close(module(x), piece((x @ torch.full((OUT, IN), 2.0).T), -1), tolerance=1e-6)
