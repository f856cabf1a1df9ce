"""torch.optim on models that mix plain and DTensor parameters, against one device."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from hyper_dtensor import DTensor, clip_grad_norm_, distribute_parameter
from hyper_layout import LayoutError
from hyper_platform_torch.tensor import SlottedDTensor
from tests.platform_torch.helpers import (
    S0,
    Block,
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
)
from tests.support.ranks import RankPool

OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}),
    ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.01, "amsgrad": True, "weight_decay": 0.01}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.1}),
    ("Adagrad", {"lr": 0.01}),
]
IDS = [f"{name}-{'-'.join(options)}" for name, options in OPTIMIZERS]


def train_alike(optimizer: str, options: dict[str, Any], built_before: bool) -> None:
    mesh = line()
    single = Block()
    model = copy.deepcopy(single)
    make = getattr(torch.optim, optimizer)
    theirs = make(single.parameters(), **options)
    if built_before:
        ours = make(model.parameters(), **options)
        distribute(model, mesh)
    else:
        distribute(model, mesh)
        ours = make(model.parameters(), **options)
    for plain, x in batches(mesh, 4):
        for block, batch, step in ((single, plain, theirs), (model, x, ours)):
            step.zero_grad()
            loss_of(block, batch).backward()
            step.step()
        assert_same_gradients(model, single)
        assert_same_parameters(model, single)
    assert isinstance(model.up, DTensor)
    assert isinstance(model.up, torch.nn.Parameter)
    states = [state for state in ours.state_dict()["state"].values() if state]
    kinds = {type(value) for state in states for name, value in state.items() if name != "step"}
    assert kinds <= {SlottedDTensor, torch.Tensor, type(None)}


@pytest.mark.parametrize(("optimizer", "options"), OPTIMIZERS, ids=IDS)
@pytest.mark.parametrize("how", ["one by one", "foreach", "fused"])
def test_steps_are_those_of_one_device(
    optimizer: str, options: dict[str, Any], how: str, ranks2: RankPool
) -> None:
    chosen = {"foreach": False} if how == "one by one" else {how: True}
    ranks2.run(train_alike, optimizer, {**options, **chosen}, False)


def fused_refusals() -> None:
    """A fused step has no other form: what it cannot do on locals is refused before anything is written."""
    model = Block()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
    plain, x = batches(line(), 1)[0]
    loss_of(model, plain).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    distribute(model, line())
    before = copy.deepcopy(model)
    loss_of(model, x).backward()
    assert "a plain tensor and tp:S" in raised(optimizer.step, ValueError)
    assert_same_parameters(model, before)


def test_a_fused_step_of_tensors_that_are_not_alike_is_refused(ranks2: RankPool) -> None:
    ranks2.run(fused_refusals)


def watched(optimizer: str) -> None:
    """What was taken from a parameter before a fused step does not pass for what is there after it."""
    mesh = line()
    x = laid_out(numbers(4, 4, seed=2), mesh, S0)
    single = torch.nn.Parameter(numbers(4, 4))
    ours = [torch.nn.Parameter(laid_out(numbers(4, 4), mesh, each)) for each in (R, S0)]
    taken = [weight.t().contiguous() for weight in (single, ours[0])]
    row = ours[1].detach()[0]
    for weight in (single, *ours):
        weight.grad = torch.ones_like(weight)
        getattr(torch.optim, optimizer)([weight], lr=0.5, fused=True).step()
    assert_equal(x @ taken[1], full(x) @ taken[0])
    for weight in ours:
        assert_equal(weight, single)
    assert "written in place since" in raised(row.sum, LayoutError)


@pytest.mark.parametrize("optimizer", ["Adam", "AdamW", "Adagrad", "SGD"])
def test_a_fused_step_shows_that_it_wrote(optimizer: str, ranks2: RankPool) -> None:
    ranks2.run(watched, optimizer)


def in_any_memory_order() -> None:
    """PyTorch's fused kernels follow the order in memory, whatever the strides are."""
    mesh = line()
    single = torch.nn.Parameter(numbers(4, 6))
    ours = torch.nn.Parameter(laid_out(numbers(4, 6).t().contiguous().t(), mesh, S0))
    optimizers = [torch.optim.AdamW([weight], lr=0.1, fused=True) for weight in (single, ours)]
    for _ in range(3):
        single.grad = numbers(4, 6, seed=1)
        ours.grad = laid_out(numbers(4, 6, seed=1), mesh, S0)
        assert ours.to_local().stride() != ours.grad.to_local().stride()
        for optimizer in optimizers:
            optimizer.step()
        assert_equal(ours, single)


def test_a_fused_step_on_tensors_of_other_strides(ranks2: RankPool) -> None:
    ranks2.run(in_any_memory_order)


@torch.no_grad()
def shared_memory() -> None:
    mesh = line()
    columns = laid_out(numbers(4, 6).t().contiguous().t(), mesh, S0)
    twice = torch.nn.Parameter(columns)
    twice.grad = torch.ones_like(twice)
    before = full(twice).clone()
    torch._fused_sgd_([twice, twice], [twice.grad] * 2, [], **PLAIN_SGD)
    assert_equal(twice, before - 0.2)
    # An expanded gradient is read; where it would be written, nothing is done.
    grown = torch.nn.Parameter(laid_out(numbers(4, 6), mesh, S0))
    grown.grad = DTensor.from_local(torch.ones(()).double().expand(2, 6), mesh, [S0])
    torch.optim.SGD([grown], lr=0.1, fused=True).step()
    assert_equal(grown, numbers(4, 6) - 0.1)
    with pytest.raises(
        RuntimeError, match=r"_fused_sgd_ would write into an expanded tensor of shape \(2, 6\)"
    ):
        torch._fused_sgd_([grown], [grown.grad], [], grad_scale=torch.ones(()), **PLAIN_SGD)
    assert_equal(grown, numbers(4, 6) - 0.1)


PLAIN_SGD = {
    "lr": 0.1,
    "weight_decay": 0.0,
    "momentum": 0.0,
    "dampening": 0.0,
    "nesterov": False,
    "maximize": False,
    "is_first_step": False,
}


def test_a_fused_step_on_tensors_that_share_memory(ranks2: RankPool) -> None:
    ranks2.run(shared_memory)


def scaled(fused: bool) -> None:
    """An overflow in the part of one rank makes all ranks skip the step, as one device does."""
    mesh = line()
    blocks = pair(mesh)
    optimizers = [torch.optim.AdamW(block.parameters(), lr=0.01, fused=fused) for block in blocks]
    scalers = [torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2) for _ in blocks]
    for number, inputs in enumerate(batches(mesh, 6)):
        for block, x, optimizer, scaler in zip(blocks, inputs, optimizers, scalers, strict=True):
            optimizer.zero_grad()
            scaler.scale(loss_of(block, x)).backward()
            if number == 3:
                block.up.grad[0, 0] = float("inf")
            if number % 2:
                row = block.up.grad[0]
                scaler.unscale_(optimizer)
                if isinstance(row, DTensor):
                    assert "written in place since" in raised(row.sum, LayoutError)
                clip_grad_norm_(block.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        assert scalers[0].get_scale() == scalers[1].get_scale() == (8, 16, 16, 8, 8, 16)[number]
        assert_same_parameters(blocks[1], blocks[0])


@pytest.mark.parametrize("fused", [False, True])
def test_steps_with_scaled_gradients_are_those_of_one_device(fused: bool, ranks2: RankPool) -> None:
    ranks2.run(scaled, fused)


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_an_optimizer_built_before_the_model_was_distributed_trains_it(
    optimizer: str, ranks4: RankPool
) -> None:
    ranks4.run(train_alike, optimizer, {"lr": 0.05}, True)


def state_from_before() -> None:
    """State of the whole parameter must not meet this rank's part in silence."""
    mesh = line()
    model = Block()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    plain, x = batches(mesh, 1)[0]
    loss_of(model, plain).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    distribute(model, mesh)
    loss_of(model, x).backward()
    assert "plain tensor" in raised(optimizer.step, ValueError)


def test_state_from_before_the_model_was_distributed_is_refused(ranks2: RankPool) -> None:
    ranks2.run(state_from_before)


def what_cannot_be_exchanged() -> list[str]:
    """Whatever would leave the optimizer with a parameter that is not trained."""
    mesh = line()
    messages = []

    def distribute_up(model: Block) -> str:
        return raised(lambda: distribute_parameter(model, "up", mesh, [S0], src_data_rank=None))

    import weakref

    model = Block()
    reference = weakref.ref(model.up)
    messages.append(distribute_up(model))
    assert reference() is model.up

    model = Block()
    model.up.register_hook(lambda gradient: gradient)
    messages.append(distribute_up(model))

    model = Block()
    model.up.register_post_accumulate_grad_hook(lambda p: None)
    messages.append(distribute_up(model))

    model = Block()
    loss_of(model, batches(mesh, 1)[0][0]).backward()
    messages.append(distribute_up(model))
    assert not isinstance(model.up, DTensor)
    return messages


def test_a_parameter_that_cannot_be_exchanged_in_place_is_refused(ranks2: RankPool) -> None:
    for weak, hook, post_hook, gradient in ranks2.run(what_cannot_be_exchanged):
        assert "optimizer" in weak
        assert "weakref" in weak
        assert "hooks" in hook
        assert "hooks" in post_hook
        assert "zero_grad" in gradient
        assert "'up' of Block" in weak


def a_graph_from_before() -> str:
    mesh = line()
    model = Block()
    loss = loss_of(model, batches(mesh, 1)[0][0])
    return raised(lambda: (distribute(model, mesh), loss.backward()))


def test_a_graph_made_before_the_model_was_distributed_does_not_train_in_silence(ranks2: RankPool) -> None:
    for message in ranks2.run(a_graph_from_before):
        assert "AccumulateGrad" in message


def exchanged_in_place() -> None:
    """The object stays: ties, lists made before, attributes, and the need of a gradient."""
    mesh = line()
    model = Block()
    model.tied = model.up
    model.up.mark = "mine"  # type: ignore[attr-defined]
    model.gain.requires_grad_(False)
    before = list(model.parameters())
    distribute(model, mesh)
    assert model.tied is model.up
    assert before[0] is model.up
    assert model.up.mark == "mine"  # type: ignore[attr-defined]
    assert isinstance(before[0], DTensor)
    assert not model.gain.requires_grad
    assert model.up.requires_grad
    assert model.up.is_leaf


def test_the_parameter_object_is_kept(ranks2: RankPool) -> None:
    ranks2.run(exchanged_in_place)


CLIPPING = [
    (name, norm_type)
    for name in ("torch-None", "torch-True", "torch-False", "ours")
    for norm_type in (2.0, 1.0, float("inf"))
]


def clip(name: str, parameters: Any, max_norm: float, norm_type: float) -> Any:
    if name == "ours":
        return clip_grad_norm_(parameters, max_norm, norm_type)
    foreach = {"None": None, "True": True, "False": False}[name.partition("-")[2]]
    return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type, foreach=foreach)


def test_the_facade_offers_our_clipping() -> None:
    import hyper_parallel

    assert hyper_parallel.clip_grad_norm_ is clip_grad_norm_


def clipped(name: str, norm_type: float, max_norm: float) -> None:
    mesh = line()
    single, model = pair(mesh)
    plain, x = batches(mesh, 1)[0]
    loss_of(single, plain).backward()
    loss_of(model, x).backward()
    expected = torch.nn.utils.clip_grad_norm_(single.parameters(), max_norm, norm_type)
    assert_equal(clip(name, model.parameters(), max_norm, norm_type), expected, "norm")
    assert_same_gradients(model, single)


@pytest.mark.parametrize(("name", "norm_type"), CLIPPING)
def test_clipping_gives_the_norm_and_gradients_of_one_device(
    name: str, norm_type: float, ranks2: RankPool
) -> None:
    for max_norm in (0.1, 1e6):
        ranks2.run(clipped, name, norm_type, max_norm)


def zeroed(set_to_none: bool) -> None:
    mesh = line()
    for foreach in (False, True):
        single, model = pair(mesh)
        for block, x in ((single, batches(mesh, 1)[0][0]), (model, batches(mesh, 1)[0][1])):
            optimizer = torch.optim.SGD(block.parameters(), lr=0.1, foreach=foreach)
            loss_of(block, x).backward()
            optimizer.zero_grad(set_to_none)
        assert_same_gradients(model, single)
        block.zero_grad(set_to_none)
    if not set_to_none:
        assert model.up.grad is not None
        assert float(model.up.grad.abs().sum().full_tensor()) == 0.0


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad(set_to_none: bool, ranks2: RankPool) -> None:
    ranks2.run(zeroed, set_to_none)


def accumulated() -> None:
    """Gradients of several micro-batches add up; two graphs may be alive at a time."""
    mesh = line()
    single, model = pair(mesh)
    for interleaved in (False, True):
        for block, which in ((single, 0), (model, 1)):
            inputs = [batch[which] for batch in batches(mesh, 3)]
            if interleaved:
                losses = [loss_of(block, x) for x in inputs]
                for loss in reversed(losses):
                    loss.backward()
            else:
                for x in inputs:
                    (loss_of(block, x) / 3).backward()
        assert_same_gradients(model, single)
    for block, which in ((single, 0), (model, 1)):
        loss = loss_of(block, batches(mesh, 1)[0][which])
        loss.backward(retain_graph=True)
        loss.backward()
    assert_same_gradients(model, single)


def test_accumulation_two_live_graphs_and_retain_graph(ranks2: RankPool) -> None:
    ranks2.run(accumulated)


def replicated_model() -> None:
    """Data parallel: everything Replicate, the batch split."""
    mesh = line()
    single = Block()
    model = copy.deepcopy(single)
    for name in ("up", "up_bias", "down", "gain"):
        distribute_parameter(model, name, mesh, [R], src_data_rank=None)
    for name in ("weight", "bias"):
        distribute_parameter(model.outside, name, mesh, [R], src_data_rank=None)
    theirs, ours = (torch.optim.AdamW(block.parameters(), lr=0.01) for block in (single, model))
    for plain, x in batches(mesh, 3):
        theirs.zero_grad()
        ours.zero_grad()
        loss_of(single, plain).backward()
        hidden = torch.tanh(torch.nn.functional.linear(x.redistribute([S0]), model.up, model.up_bias))
        out = torch.nn.functional.linear(hidden, model.down) * model.gain
        model.outside(out).square().mean().backward()
        assert_same_gradients(model, single)
        theirs.step()
        ours.step()
    assert_same_parameters(model, single)


def test_data_parallel_training(ranks2: RankPool) -> None:
    ranks2.run(replicated_model)
