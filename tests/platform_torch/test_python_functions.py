"""A framework function written in Python runs its own body on DTensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import handle_torch_function, has_torch_function

from hyper_platform_torch.python_functions import python_body
from tests.platform_torch.helpers import S0, R, assert_equal, full, laid_out, line, numbers
from tests.support.ranks import RankPool


def library(x: torch.Tensor, factor: float = 2.0, *, shift: float = 1.0) -> torch.Tensor:
    """As a library writes a function that tensor classes may override."""
    if has_torch_function((x,)):
        return handle_torch_function(library, (x,), x, factor, shift=shift)
    if factor > 100:
        return library(x, factor / 100)
    return x * factor + shift


def decorated(f: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if has_torch_function(args):
            return handle_torch_function(wrapped, args, *args, **kwargs)
        with torch.no_grad():
            return f(*args, **kwargs)

    return wrapped


@decorated
def without_gradient(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def by_flag(choose: bool) -> Callable[..., Any]:
    """As boolean_dispatch: the branches, not the function that chooses, ask for overrides."""

    def one(x: torch.Tensor) -> Any:
        if has_torch_function((x,)):
            return handle_torch_function(fn, (x,), x)
        return x + 1

    def other(x: torch.Tensor) -> Any:
        if has_torch_function((x,)):
            return handle_torch_function(fn, (x,), x)
        return x - 1

    def fn(x: torch.Tensor) -> Any:
        return one(x) if choose else other(x)

    return fn


def test_built_ins_have_no_body() -> None:
    assert python_body(torch.add) is None
    assert python_body(torch.Tensor.add) is None
    assert python_body(torch.ops.aten.add) is None
    assert python_body(F.normalize) is not None
    assert python_body(F.normalize) is python_body(F.normalize)


def test_defaults_and_closures_are_kept() -> None:
    body = python_body(library)
    assert body is not None
    assert float(body(torch.tensor(3.0))) == 7.0
    assert float(body(torch.tensor(3.0), shift=0.0)) == 6.0
    assert body.__globals__ is not library.__globals__
    assert library.__globals__["has_torch_function"] is has_torch_function
    chosen = python_body(by_flag(True))
    assert chosen is not None
    assert float(chosen(torch.tensor(3.0))) == 4.0


def bodies() -> None:
    mesh = line()
    whole, other = numbers(4, 4), numbers(4, 4, seed=1)
    for placement in (S0, R):
        x = laid_out(whole, mesh, placement).requires_grad_()
        assert_equal(library(x), library(whole))
        assert_equal(library(x, 300.0, shift=2.0), library(whole, 300.0, shift=2.0))
        result = without_gradient(x)  # a decorator's effect is kept
        assert not result.requires_grad
        assert_equal(result, whole * 2)
        assert_equal(by_flag(True)(x), whole + 1)
        assert_equal(by_flag(False)(x), whole - 1)
        assert_equal(F.normalize(x, dim=1), F.normalize(whole, dim=1))
        assert_equal(2 / x, 2 / whole)
        assert_equal(2**x, 2**whole)
        # The gradient flows through the parts.
        w = whole.clone().requires_grad_()
        (F.normalize(w, dim=1) * other).sum().backward()
        (F.normalize(x, dim=1) * laid_out(other, mesh, placement)).sum().backward()
        assert_equal(x.grad, w.grad)
    x = laid_out(whole, mesh, R)
    variance = whole.abs() + 1
    assert_equal(F.gaussian_nll_loss(x, x, x.abs() + 1), F.gaussian_nll_loss(whole, whole, variance))
    assert_equal(torch.tensordot(x, x, ([1], [1])), torch.tensordot(whole, whole, ([1], [1])))
    # boolean_dispatch of the framework; its parts are built-ins without a rule, fine where all is Replicate.
    image = numbers(1, 2, 4, 4)
    dimage = laid_out(image, mesh, R)
    assert_equal(F.max_pool2d(dimage, 2), F.max_pool2d(image, 2))
    for ours, theirs in zip(
        F.max_pool2d(dimage, 2, return_indices=True), F.max_pool2d(image, 2, return_indices=True), strict=True
    ):
        assert_equal(ours, theirs)
    assert_equal(F.adaptive_avg_pool2d(dimage, 1), F.adaptive_avg_pool2d(image, 1))
    # torch.nn.init asks torch.overrides itself.
    parameter = nn.Parameter(laid_out(whole, mesh, S0))
    assert nn.init.uniform_(parameter, 2.0, 3.0) is parameter
    assert float(full(parameter).min()) >= 2.0
    # Modules with large Python forwards.
    attention = nn.MultiheadAttention(4, 2, dtype=torch.float64, batch_first=True)
    sequence = numbers(2, 3, 4)
    expected, _ = attention(sequence, sequence, sequence, need_weights=False)
    for module in attention.modules():
        for name, value in list(module._parameters.items()):
            if value is not None:
                setattr(module, name, nn.Parameter(laid_out(value.detach(), mesh, R)))
    dsequence = laid_out(sequence, mesh, R)
    assert_equal(attention(dsequence, dsequence, dsequence, need_weights=False)[0], expected)


def test_bodies_run_on_dtensors(ranks2: RankPool) -> None:
    ranks2.run(bodies)
