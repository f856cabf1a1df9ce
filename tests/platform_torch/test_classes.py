"""The two classes of DTensors: a parameter that was exchanged in place does what any other DTensor does."""

from __future__ import annotations

import gc
import weakref

import torch
from torch import nn

from hyper_dtensor import distribute_parameter
from hyper_platform_torch.tensor import SlottedDTensor, TorchDTensor
from tests.platform_torch.helpers import S0, R, assert_equal, full, laid_out, line, numbers
from tests.support.ranks import RankPool


def exchanged() -> tuple[nn.Linear, torch.Tensor]:
    """A layer whose weight became a DTensor in place, and the whole weight."""
    layer = nn.Linear(4, 8, bias=False).double()
    with torch.no_grad():
        layer.weight.copy_(numbers(8, 4))
    layer.weight.note = "kept"  # type: ignore[attr-defined]
    distribute_parameter(layer, "weight", line(), [S0])
    return layer, numbers(8, 4)


def parameters_of_parameters() -> None:
    layer, whole = exchanged()
    weight = layer.weight
    assert type(weight) is TorchDTensor
    for made in (nn.Parameter(weight), nn.Parameter(nn.Parameter(weight), requires_grad=False)):
        assert isinstance(made, nn.Parameter) and isinstance(made, TorchDTensor)
        assert made is not weight and made.is_leaf
        assert made._local.data_ptr() == weight._local.data_ptr()
        assert_equal(made, whole)
    tied = nn.Linear(4, 8, bias=False)
    tied.weight = nn.Parameter(weight)
    x = laid_out(numbers(2, 4, seed=3), line(), R)
    (tied(x) * 2).sum().backward()
    assert_equal(tied.weight.grad, torch.ones(2, 8).double().T @ numbers(2, 4, seed=3) * 2)
    assert weight.grad is None
    ours = laid_out(numbers(8, 4), line(), S0)
    assert type(nn.Parameter(ours)) is type(ours) is SlottedDTensor


def test_a_parameter_of_a_parameter(ranks2: RankPool) -> None:
    ranks2.run(parameters_of_parameters)


def conversions_in_place() -> None:
    layer, whole = exchanged()
    made = nn.Linear(4, 8, bias=False)
    made.weight = nn.Parameter(laid_out(whole, line(), S0))
    made.weight.note = "kept"  # type: ignore[attr-defined]
    for module in (layer, made):
        weight = module.weight
        module(laid_out(numbers(2, 4), line(), R)).sum().backward()  # it has views and a gradient now
        module.zero_grad()
        module.float()
        assert module.weight is weight and vars(weight)["note"] == "kept"
        assert weight.dtype == weight._local.dtype == torch.float32 and weight.placements == (S0,)
        assert isinstance(weight, nn.Parameter) and weight.requires_grad
        assert_equal(weight, whole.float())
        module(laid_out(numbers(2, 4).float(), line(), R)).sum().backward()
        assert weight.grad is not None and weight.grad.dtype == torch.float32
        assert_equal(weight.grad, numbers(2, 4).float().sum(0).expand(8, 4))
    assert sorted(set(vars(made.weight)) - {"_is_param"}) == ["note"]  # nothing but the user's


def test_conversion_in_place_keeps_the_object(ranks2: RankPool) -> None:
    ranks2.run(conversions_in_place)


def conversions_that_swap() -> None:
    layer, whole = exchanged()
    weight = layer.weight
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        layer.float()
        layer.to(torch.bfloat16).type(torch.float64)
        layer.load_state_dict({"weight": laid_out(2 * whole, line(), S0)})
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert layer.weight is weight and isinstance(weight, nn.Parameter) and weight.requires_grad
    assert_equal(weight, 2 * whole)
    layer(laid_out(numbers(2, 4), line(), R)).sum().backward()
    assert_equal(weight.grad, numbers(2, 4).sum(0).expand(8, 4))
    assert type(weight.float()) is SlottedDTensor


def test_conversion_that_swaps_keeps_the_object(ranks2: RankPool) -> None:
    ranks2.run(conversions_that_swap)


def what_ends_with_a_tensor() -> None:
    x = laid_out(numbers(4, 4), line(), S0)
    local = weakref.ref(x._local)
    wrapper = weakref.ref(x)
    del x
    assert local() is None and wrapper() is None  # at once, without the garbage collector

    y = laid_out(numbers(4, 4), line(), S0)
    y._local.back = y  # a circle through a slot
    y.back = y
    local = weakref.ref(y._local)
    del y
    assert local() is not None
    gc.collect()
    assert local() is None


def test_what_a_tensor_holds_ends_with_it(ranks2: RankPool) -> None:
    ranks2.run(what_ends_with_a_tensor)


def a_detached_parameter() -> None:
    layer, whole = exchanged()
    assert torch.equal(full(layer.weight), whole)
    detached = layer.weight.detach()
    assert not detached.requires_grad and detached.is_leaf and detached._spec is layer.weight._spec


def test_detach_of_an_exchanged_parameter(ranks2: RankPool) -> None:
    ranks2.run(a_detached_parameter)
