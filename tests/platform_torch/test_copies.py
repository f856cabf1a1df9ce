"""Copying, saving, loading, converting and initialising DTensors and modules that hold them."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from hyper_dtensor import DTensor, distribute_module, distribute_parameter
from hyper_dtensor.parts import loaded_alone
from hyper_layout import LayoutError
from tests.platform_torch.helpers import (
    LAYOUT,
    S0,
    S1,
    Block,
    P,
    R,
    assert_equal,
    assert_same_gradients,
    assert_same_parameters,
    batches,
    distribute,
    full,
    laid_out,
    line,
    loss_of,
    numbers,
    pair,
    raised,
    square,
)
from tests.support.ranks import RankPool, run_once


def same(got: Any, expected: DTensor) -> None:
    """Another object of the same content, on the same mesh."""
    assert isinstance(got, DTensor)
    assert type(got) is type(expected)
    assert got is not expected
    assert got.layout is expected.layout
    assert got._spec is expected._spec
    assert got.requires_grad == expected.requires_grad
    assert isinstance(got, nn.Parameter) == isinstance(expected, nn.Parameter)
    assert torch.equal(got.to_local(), expected.to_local())


def copied() -> None:
    mesh = line()
    for placement in (S0, S1, R, P):
        x = laid_out(numbers(4, 4), mesh, placement).requires_grad_()
        parameter = nn.Parameter(laid_out(numbers(4, 4), mesh, placement))
        parameter.mark = [1, 2]  # type: ignore[attr-defined]
        parameter.grad = None
        for original in (x, parameter):
            got = copy.deepcopy(original)
            same(got, original)
            with torch.no_grad():
                got.zero_()
            assert_equal(original, numbers(4, 4))
        assert copy.deepcopy(parameter).mark == [1, 2]
        assert copy.deepcopy(parameter).mark is not parameter.mark
        both = copy.deepcopy([x, x])
        assert both[0] is both[1]
        with pytest.raises(RuntimeError, match="graph leaves"):
            copy.deepcopy(x * 2)
        shallow = copy.copy(parameter)
        same(shallow, parameter)
    # The gradient of a parameter is not copied, as for plain ones.
    parameter.redistribute([R]).sum().backward()
    assert parameter.grad is not None
    assert copy.deepcopy(parameter).grad is None


def test_deepcopy(ranks2: RankPool) -> None:
    ranks2.run(copied)


def copied_module() -> None:
    single, model = pair()
    model.tied = model.up
    twin = copy.deepcopy(model)
    assert twin.tied is twin.up
    assert_same_parameters(twin, single)
    for plain, x in batches(line(), 1):
        loss_of(single, plain).backward()
        loss_of(twin, x).backward()
    assert model.up.grad is None
    assert_same_gradients(twin, single)


def test_deepcopy_of_a_module(ranks2: RankPool) -> None:
    ranks2.run(copied_module)


def saved() -> None:
    mesh = line()
    for placement in (S0, S1, R, P):
        x = laid_out(numbers(4, 4), mesh, placement).requires_grad_()
        parameter = nn.Parameter(laid_out(numbers(4, 4), mesh, placement))
        for original in (x, parameter):
            for protocol in (2, pickle.HIGHEST_PROTOCOL):
                same(pickle.loads(pickle.dumps(original, protocol)), original)
            file = io.BytesIO()
            torch.save({"value": original}, file)
            for weights_only in (True, False):
                file.seek(0)
                same(torch.load(file, weights_only=weights_only)["value"], original)


def test_pickle_and_torch_save(ranks2: RankPool) -> None:
    ranks2.run(saved)


def file_of_each_rank() -> bytes:
    """Every rank loads the files of all: the parts of others are refused."""
    mesh, rank = square(), dist.get_rank()
    split, whole = laid_out(numbers(4, 4), mesh, R, S0), laid_out(numbers(4, 4), mesh, R, R)
    file = io.BytesIO()
    torch.save({"split": split, "whole": whole}, file)
    files: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(files, file.getvalue())
    for saver, content in enumerate(files):
        for weights_only in (True, False):
            if saver % 2 == rank % 2:  # the same place along tp: the same part
                loaded = torch.load(io.BytesIO(content), weights_only=weights_only)
                same(loaded["split"], split)
                same(loaded["whole"], whole)
            else:
                with pytest.raises(LayoutError, match=f"part tp={saver % 2} of a tensor laid out as dp:R"):
                    torch.load(io.BytesIO(content), weights_only=weights_only)
    return file.getvalue()


def put_together(files: list[bytes]) -> bytes:
    """One process alone is no rank of that mesh, and may put together what the ranks saved."""
    parts = [torch.load(io.BytesIO(file))["split"] for file in files]
    assert {part for _, part in loaded_alone} == {(0,), (1,)}
    assert torch.equal(torch.cat([part.to_local() for part in parts[:2]]), numbers(4, 4))
    file = io.BytesIO()
    torch.save(parts[0].float(), file)
    return file.getvalue()


def test_a_part_is_not_taken_for_that_of_another_rank(ranks4: RankPool) -> None:
    files = ranks4.run(file_of_each_rank)
    (saved_alone,) = run_once(1, put_together, files, process_group=False)
    ranks4.run(refused_everywhere, saved_alone)


def refused_everywhere(file: bytes) -> None:
    square()
    with pytest.raises(LayoutError, match=r"this is the part of nobody \(pickled by a process that"):
        torch.load(io.BytesIO(file))


def copied_row() -> None:
    """A shallow copy shares the memory; of a row that is itself a copy, it is one too."""
    x = laid_out(numbers(4, 4), line(), S0)
    row = copy.copy(x[0])
    assert "taken from another" in raised(row.zero_, LayoutError)
    x.zero_()
    assert "written in place since" in raised(row.sum, LayoutError)


def test_a_shallow_copy_of_a_copied_row_is_one(ranks2: RankPool) -> None:
    ranks2.run(copied_row)


def checkpointed() -> None:
    """Train, save per rank, load into a fresh model and optimizer, go on: as if nothing had happened."""
    mesh = line()
    single, model = pair(mesh)
    theirs, ours = (torch.optim.AdamW(block.parameters(), lr=0.01) for block in (single, model))

    def step(number: int) -> None:
        plain, x = batches(mesh, number + 1)[number]
        for block, batch, optimizer in ((single, plain, theirs), (model, x, ours)):
            optimizer.zero_grad()
            loss_of(block, batch).backward()
            optimizer.step()

    step(0)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": ours.state_dict()}, file)
    step(1)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert isinstance(state["model"]["up"], DTensor)
    fresh = distribute(Block(), mesh)
    with torch.no_grad():
        for p in fresh.parameters():
            p.zero_()
    assert not fresh.load_state_dict(state["model"]).missing_keys
    model, ours = fresh, torch.optim.AdamW(fresh.parameters(), lr=0.5)
    ours.load_state_dict(state["optimizer"])
    step_again = batches(mesh, 2)[1][1]
    ours.zero_grad()
    loss_of(model, step_again).backward()
    ours.step()
    assert_same_parameters(model, single)
    assert isinstance(ours.state[model.up]["exp_avg"], DTensor)


def test_state_dict_of_model_and_optimizer(ranks2: RankPool) -> None:
    ranks2.run(checkpointed)


def loaded() -> list[str]:
    mesh = line()
    single, model = pair(mesh)
    messages = [raised(lambda: model.load_state_dict(single.state_dict()))]
    # As it says: distribute it first.
    state = {
        name: laid_out(value, mesh, LAYOUT[name]) if name in LAYOUT else value
        for name, value in single.state_dict().items()
    }
    up = model.up
    model.load_state_dict(state)
    assert model.up is up
    model.load_state_dict(state, assign=True)
    assert isinstance(model.up, nn.Parameter)
    assert isinstance(model.up, DTensor)
    assert model.up.requires_grad
    messages.append(raised(lambda: single.load_state_dict(model.state_dict())))
    other = dict(state, up=laid_out(single.up.detach(), mesh, S1))
    messages.append(raised(lambda: model.load_state_dict(other)))
    # The full state of a distributed model fits the single-device one.
    single.load_state_dict(
        {name: v.full_tensor() if isinstance(v, DTensor) else v for name, v in state.items()}
    )
    return messages


def test_load_state_dict_says_what_does_not_fit(ranks2: RankPool) -> None:
    for plain_into_split, split_into_plain, other_layout in ranks2.run(loaded):
        assert "distribute_tensor(" in plain_into_split
        assert "'up'" in plain_into_split.replace('"', "'")
        assert "plain tensor" in split_into_plain
        assert "redistribute" in other_layout


def converted() -> None:
    mesh = line()
    plain, x = batches(mesh, 1)[0]
    for convert in (
        lambda block: block.to(torch.float32),
        lambda block: block.float(),
        lambda block: block.bfloat16().to(torch.float64),
        lambda block: block.half().double(),
        lambda block: block.to("cpu"),
        lambda block: block.cpu(),
    ):
        single, model = pair(mesh)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        up = model.up
        loss_of(single, plain).backward()
        loss_of(model, x).backward()
        convert(single)
        convert(model)
        assert model.up is up
        assert isinstance(model.up, DTensor)
        assert isinstance(model.up, nn.Parameter)
        assert_same_parameters(model, single)
        assert_same_gradients(model, single, tolerance=1e-5 if single.up.dtype != torch.float64 else 1e-2)
        assert model.up.dtype == single.up.dtype
        # It still trains, with the optimizer from before.
        model.zero_grad()
        loss_of(model, x.to(single.up.dtype)).backward()
        before = model.up.to_local().clone()
        optimizer.step()
        assert not torch.equal(before, model.up.to_local())


def test_conversion_of_modules(ranks2: RankPool) -> None:
    ranks2.run(converted)


def from_meta() -> None:
    """meta -> distribute -> to_empty -> init: pieces of one random tensor, or reset_parameters of its own."""
    mesh = line()
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 4))
    distribute_parameter(model[0], "weight", mesh, [S0])
    distribute_parameter(model[0], "bias", mesh, [S0])
    distribute_module(model, mesh)
    assert model[0].weight.is_meta
    model[2].tied = model[0].weight
    weight = model[0].weight
    model.to_empty(device="cpu")
    assert model[0].weight is weight
    assert model[2].tied is weight
    assert not model[0].weight.is_meta
    assert model[0].weight.placements == (S0,)
    assert tuple(model[0].weight.shape) == (8, 4)
    for module in (model[0], model[1], model[2]):
        module.reset_parameters()
    assert_equal(model[1].weight, torch.ones(8))
    assert_equal(model[1].bias, torch.zeros(8))
    whole = full(model[0].weight)
    assert float(whole.abs().max()) <= 0.5  # kaiming_uniform_(a=sqrt(5)): 1 / sqrt(fan_in), of the whole
    assert not torch.equal(whole[:4], whole[4:])
    assert float(whole.abs().max()) > 0.3
    for init in (
        lambda t: nn.init.normal_(t, 0.0, 0.02),
        lambda t: nn.init.trunc_normal_(t, std=0.02),
        lambda t: nn.init.uniform_(t, -0.1, 0.1),
        nn.init.xavier_uniform_,
        nn.init.kaiming_normal_,
        lambda t: nn.init.constant_(t, 0.5),
        nn.init.ones_,
        nn.init.zeros_,
    ):
        for p in (model[0].weight, model[2].weight):
            before = full(p).clone()
            assert init(p) is p
            assert not torch.equal(before, full(p))
            assert p.requires_grad
            assert p.is_leaf
    replicated = model[2].weight
    nn.init.normal_(replicated)
    DTensor.from_local(replicated.to_local().detach(), mesh, [R], run_check=True)
    x = laid_out(numbers(2, 4).float(), mesh, R)
    model[2](model[1](model[0](x).redistribute([R]))).sum().backward()
    assert model[0].weight.grad is not None


def test_from_meta_to_trained(ranks2: RankPool) -> None:
    ranks2.run(from_meta)
