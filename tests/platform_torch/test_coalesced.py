"""One collective for the gradients of all replicated parameters, against one device."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from hyper_dtensor import CommDebugMode, Communication, DTensor, rank_check
from hyper_platform_torch import second_leaves
from tests.platform_torch.coalescing import (
    COUNT,
    ON_AND_OFF,
    Twins,
    coalescing,
    counted,
    record_hooks,
)
from tests.platform_torch.helpers import S0, P, R, assert_equal, laid_out, line, numbers, raised, square
from tests.platform_torch.tensor_parallel.common import on_ranks, rank


@on_ranks(2, 4)
@ON_AND_OFF
def test_one_collective_per_backward(on: bool) -> None:
    with coalescing(on):
        twins = Twins()
        twins.single.varying().backward()
        loss = twins.ours.varying()
        assert counted(loss.backward) == {"all_reduce": COUNT[on]}
        twins.check()


@on_ranks(2, 4)
@ON_AND_OFF
def test_accumulation_over_several_backwards(on: bool) -> None:
    with coalescing(on):
        twins = Twins()
        for loss in ("varying", "mixed", "alike", "varying"):
            for side in twins.each():
                getattr(side, loss)().backward()
            twins.check(loss)
        for side in twins.each():  # the gradients go, also while a graph is alive
            kept = side.mixed()
            side.clear()
            kept.backward()
        twins.check("after zero_grad")
        before = [p.grad for p in twins.ours.params]
        for side in twins.each():
            side.varying().backward()
        assert all(p.grad is old for p, old in zip(twins.ours.params, before, strict=True))
        twins.check("in place")


@on_ranks(2, 4)
@ON_AND_OFF
def test_two_forwards_then_one_backward_and_the_other_way_round(on: bool) -> None:
    with coalescing(on):
        twins = Twins()
        for side in twins.each():
            first, second = side.mixed(), side.varying() * 3
            (first + second).backward()
        twins.check("two forwards, one backward")
        for side in twins.each():
            first, second = side.mixed(), side.varying()
            second.backward()
            first.backward()
        twins.check("two losses")
        for side in twins.each():
            side.clear()
            loss = side.mixed()
            for _ in range(3):
                loss.backward(retain_graph=True)
        twins.check("retain_graph")
        for side in twins.each():
            torch.autograd.backward([side.varying(), side.alike()])
        twins.check("two roots")


@on_ranks(4)
@ON_AND_OFF
def test_two_axes(on: bool) -> None:
    """Used through views on one axis, on the other, on both, and directly, in one graph."""
    mesh = square()
    layouts = ((S0, R), (R, S0), (R, R), (S0, S0))
    whole = numbers(4, 4)
    with coalescing(on):
        single = [nn.Parameter(numbers(4, seed=seed)) for seed in (1, 2)]
        ours = [nn.Parameter(laid_out(p.detach(), mesh, R, R)) for p in single]
        order: list[str] = []
        for p, name in zip(ours, "ab", strict=True):
            p.register_post_accumulate_grad_hook(lambda _, name=name: order.append(name))
        for turn in range(2):
            for params, place in (
                (single, lambda layout: whole),
                (ours, lambda layout: laid_out(whole, mesh, *layout)),
            ):
                loss = sum(
                    (
                        ((place(layout) * params[0]).sin() * params[1]).square().sum().redistribute([R, R])
                        if params is ours
                        else ((whole * params[0]).sin() * params[1]).square().sum()
                    )
                    for layout in layouts
                )
                counts = counted(loss.backward)
            for index, (mine, theirs) in enumerate(zip(ours, single, strict=True)):
                assert_equal(mine.grad, theirs.grad, f"parameter {index}, turn {turn}")
            if on:
                assert counts == {"all_reduce": 2}  # one per axis
            assert sorted(order) == sorted(["a", "b"] * (turn + 1))


@on_ranks(2, 4)
@ON_AND_OFF
def test_autograd_grad(on: bool) -> None:
    with coalescing(on):
        for loss in ("varying", "mixed", "alike"):
            for hooked in (False, True):
                twins = Twins()
                calls: list[list[Any]] = [[], []]
                if hooked:
                    for side, found in zip(twins.each(), calls, strict=True):
                        record_hooks(side, found, "tT")
                value = [getattr(side, loss)() for side in twins.each()]
                for inputs in ([0, 1], [1], [0], [1, 0]):
                    theirs, ours = (
                        torch.autograd.grad(v, [side.params[i] for i in inputs], retain_graph=True)
                        for v, side in zip(value, twins.each(), strict=True)
                    )
                    for mine, other in zip(ours, theirs, strict=True):
                        assert_equal(mine, other, f"{loss} {inputs} {hooked}")
                        assert mine.placements == (R,)
                twins.check("nothing is accumulated")
                assert twins.ours.params[0].grad is None
                assert len(calls[0]) == len(calls[1])
                # A plain root, and a parameter that is not used.
                unused = nn.Parameter(laid_out(numbers(4), line(), R))
                got, nothing = torch.autograd.grad(
                    value[1].full_tensor(),
                    [twins.ours.params[0], unused],
                    retain_graph=True,
                    allow_unused=True,
                )
                (expected,) = torch.autograd.grad(value[0], twins.single.params[0], retain_graph=True)
                assert_equal(got, expected)
                assert nothing is None
                zero = torch.autograd.grad(value[1], unused, retain_graph=True, materialize_grads=True)[0]
                assert_equal(zero, torch.zeros(4, dtype=torch.float64))
                message = raised(lambda v=value, u=unused: torch.autograd.grad(v[1], u, retain_graph=True))
                assert "allow_unused" in message
                # The local tensor of a parameter, asked of a DTensor.
                (local,) = torch.autograd.grad(value[1], twins.ours.params[0].to_local(), retain_graph=True)
                assert_equal(local, expected)
                for v in value:
                    v.backward()
                twins.check(f"{loss}: backward after grad")
        twins = Twins()
        loss_value = twins.ours.varying()
        params = twins.ours.params
        with CommDebugMode() as comm:
            grads = torch.autograd.grad(loss_value, params)
        assert comm.counts == {"all_reduce": COUNT[on]}
        assert [g.to_local().untyped_storage().nbytes() for g in grads] == [4 * 8] * 2


@on_ranks(2, 4)
@ON_AND_OFF
def test_grad_finds_every_graph_that_is_alive(on: bool) -> None:
    """Also one that was made before the parameter was written, or its data exchanged."""
    with coalescing(on):
        twins = Twins()
        before = [(side.x + side.params[0]).sum() for side in twins.each()]  # saves no value
        for side in twins.each():
            with torch.no_grad():
                side.params[0].add_(1)
        after = [(side.x * side.params[0]).sin().sum() for side in twins.each()]
        for side, new in zip(
            twins.each(), (numbers(4, seed=5), laid_out(numbers(4, seed=5), line(), R)), strict=True
        ):
            side.params[0].data = new
        last = [(side.x * side.params[0]).sin().sum() for side in twins.each()]
        for losses in (before, after, last):
            theirs, ours = (
                torch.autograd.grad(loss, side.params[0], retain_graph=True)[0]
                for loss, side in zip(losses, twins.each(), strict=True)
            )
            assert_equal(ours, theirs)
        for loss in (before[0] + last[0], before[1] + last[1]):
            loss.backward()
        twins.check()


@on_ranks(2, 4)
@ON_AND_OFF
def test_backward_inputs(on: bool) -> None:
    with coalescing(on):
        for loss in ("varying", "mixed", "alike"):
            for hooked in ("", "tp"):
                twins = Twins()
                seen: list[list[Any]] = [[], []]
                for side, found in zip(twins.each(), seen, strict=True):
                    record_hooks(side, found, hooked)
                    getattr(side, loss)().backward(inputs=[side.params[1]])
                assert twins.ours.params[0].grad is None
                twins.check(f"{loss}: one input")
                for side in twins.each():
                    value = getattr(side, loss)()
                    if side is twins.ours:
                        value = value.full_tensor()  # the parameters are given to a plain tensor's backward
                    value.backward(inputs=side.params)
                    # An input that another graph used, and this one does not.
                    side.params[0].square().sum().backward(inputs=side.params)
                twins.check(f"{loss}: all inputs")
                assert len(seen[0]) == len(seen[1]), (loss, hooked)


@on_ranks(2, 4)
@ON_AND_OFF
def test_second_derivatives(on: bool) -> None:
    with coalescing(on):
        for loss in ("varying", "mixed", "alike"):
            # A penalty on the gradient.
            twins = Twins()
            for side in twins.each():
                first = torch.autograd.grad(getattr(side, loss)(), side.params, create_graph=True)
                penalty = sum(g.square().sum() for g in first)
                (penalty + getattr(side, loss)()).backward()
            twins.check(f"{loss}: penalty")
            # Three times.
            for side in twins.each():
                value = getattr(side, loss)()
                for _ in range(3):
                    value = sum(
                        g.sin().sum() for g in torch.autograd.grad(value, side.params, create_graph=True)
                    )
                side.clear()
                value.backward()
            twins.check(f"{loss}: third derivative", 1e-10)
            # backward(create_graph=True): .grad has a history.
            results = []
            for side in twins.each():
                side.clear()
                record_hooks(side, [], "T")
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", "Using backward")
                    getattr(side, loss)().backward(create_graph=True)
                grads = [p.grad for p in side.params]
                assert all(g.requires_grad for g in grads)
                side.clear()
                sum((g * p).cos().sum() for g, p in zip(grads, side.params, strict=True)).backward()
                results.append(grads)
            twins.check(f"{loss}: backward(create_graph=True)")
            for side in twins.each():
                side.clear()  # ends the cycle of a gradient with its parameter


@on_ranks(2, 4)
@ON_AND_OFF
def test_parameters_that_are_written_exchanged_and_frozen(on: bool) -> None:
    mesh = line()
    with coalescing(on):
        twins = Twins()
        optimizers = [torch.optim.AdamW(side.params, lr=0.1) for side in twins.each()]
        for turn in range(3):
            for side, optimizer in zip(twins.each(), optimizers, strict=True):
                optimizer.zero_grad(set_to_none=turn != 1)
                side.mixed().backward()
                nn.utils.clip_grad_norm_(side.params, 0.5, foreach=True)
                optimizer.step()
            twins.check(f"turn {turn}")
            for ours, theirs in zip(twins.ours.params, twins.single.params, strict=True):
                assert_equal(ours, theirs)
        # A write between forward and backward is noticed, as on one device.
        for side in twins.each():
            loss = side.varying()
            with torch.no_grad():
                side.params[1].mul_(2)
            assert "modified by an inplace operation" in raised(loss.backward)
            side.clear()
        # Frozen between forward and backward, before the forward, and thawed again.
        for side in twins.each():
            loss = side.mixed()
            side.params[0].requires_grad_(False)
            loss.backward()
            side.mixed().backward()
        assert twins.ours.params[0].grad is None
        twins.check("frozen")
        for side in twins.each():
            side.params[0].requires_grad_(True)
            side.mixed().backward()
        twins.check("thawed")
        for side in twins.each():
            side.clear()
            handles = record_hooks(side, [], "t")
            loss = side.mixed()
            side.params[0].requires_grad_(False)
            loss.backward()
            side.params[0].requires_grad_(True)
            for handle in handles:
                handle.remove()
        assert twins.ours.params[0].grad is None
        twins.check("frozen, with hooks")
        # New data: the views of the old one go.
        new = numbers(4, seed=7)
        twins.single.params[0].data = new.clone()
        twins.ours.params[0].data = laid_out(new, mesh, R)
        for side in twins.each():
            side.clear()
            side.mixed().backward()
        twins.check("exchanged")


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(4, dtype=torch.float64), nn.LayerNorm(4, dtype=torch.float64)
        self.second.weight = self.first.weight

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x).sin())


@on_ranks(2, 4)
@ON_AND_OFF
def test_tied_weights(on: bool) -> None:
    from hyper_dtensor import distribute_module

    with coalescing(on):
        single, ours = Tied(), distribute_module(Tied(), line())
        x = numbers(8, 4)
        for turn in range(2):
            single(x).square().sum().backward()
            loss = ours(laid_out(x, line(), S0)).square().sum()
            assert counted(loss.backward) == {"all_reduce": 1 if on else 3}
            for name, p in single.named_parameters():
                assert_equal(ours.get_parameter(name).grad, p.grad, f"{name} turn {turn}")


@on_ranks(2, 4)
def test_one_collective_per_dtype() -> None:
    """Mixed dtypes; each gradient has its parameter's dtype and memory order, and its own memory."""
    mesh = line()
    wide = numbers(3, 4)
    params = [
        nn.Parameter(laid_out(numbers(4, seed=1), mesh, R)),
        nn.Parameter(laid_out(numbers(4, seed=2).bfloat16(), mesh, R)),
        nn.Parameter(laid_out(wide, mesh, R).t()),
        nn.Parameter(laid_out(numbers(4, seed=3).bfloat16(), mesh, R)),
        nn.Parameter(laid_out(numbers(seed=4), mesh, R)),
    ]
    x = laid_out(numbers(8, 4), mesh, S0)
    whole = [p.detach().full_tensor().requires_grad_() for p in params]

    def loss_of(params: Sequence[Any], x: Any) -> Any:
        a, b, c, d, e = params
        return ((x * a * b) @ c * e).sum() + (x * d).sum()

    for turn in range(2):
        loss = loss_of(params, x)
        assert counted(loss.backward) == {"all_reduce": 2}
        loss_of(whole, numbers(8, 4)).backward()
        for p, w in zip(params, whole, strict=True):
            assert p.grad.dtype == p.dtype
            assert p.grad.stride() == p.stride()
            assert_equal(p.grad, w.grad, f"{p} turn {turn}", 1e-12 if p.dtype == torch.float64 else 3e-2)
        storages = [p.grad.to_local().untyped_storage() for p in params]
        assert len({s.data_ptr() for s in storages}) == len(params)
        assert [s.nbytes() for s in storages] == [p.to_local().nbytes for p in params]


@on_ranks(2)
def test_a_second_leaf_has_no_memory_of_its_own() -> None:
    twins = Twins()
    loss = twins.ours.varying()
    for p in twins.ours.params:
        ((_, second),) = second_leaves.parts_of(p.to_local())
        assert second.data_ptr() == p.to_local().data_ptr()
        assert second.is_leaf
        assert second.grad is None
    loss.backward()
    assert all(
        second.grad is None for p in twins.ours.params for second in second_leaves.of(p.to_local()).alive()
    )
    # A local tensor that is handed out is no leaf: it can be kept, hooked and asked as any other.
    local = twins.ours.params[0].to_local(grad_placements=[P])
    assert not local.is_leaf
    local.retain_grad()
    (local * rank()).sum().backward()
    assert_equal(local.grad, torch.full((4,), float(rank()), dtype=torch.float64))


@on_ranks(2)
def test_who_gets_no_second_leaf() -> None:
    """A leaf that others hold, or that is no parameter: its gradient is asked for behind our back."""
    mesh = line()
    x = laid_out(numbers(8, 4), mesh, S0)
    plain = nn.Parameter(numbers(4))
    loss = (x * DTensor.from_local(plain, mesh, [R])).sin().sum().full_tensor()
    theirs = nn.Parameter(numbers(4))
    expected = torch.autograd.grad((numbers(8, 4) * theirs).sin().sum(), theirs)[0]
    assert_equal(torch.autograd.grad(loss, plain)[0], expected)
    p = nn.Parameter(laid_out(numbers(4), mesh, R))
    same = p.contiguous()  # shares the local tensor
    (x * same).sin().sum().backward()
    assert_equal(p.grad, expected)
    (grad,) = torch.autograd.grad((x * same).sin().sum(), p)
    assert_equal(grad, expected)


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.LayerNorm(4, dtype=torch.float64) for _ in range(2))
        self.last = nn.LayerNorm(4, dtype=torch.float64)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x).sin()
        return self.last(x)


@on_ranks(2, 4)
def test_what_is_counted() -> None:
    from hyper_dtensor import distribute_module

    x = laid_out(numbers(8, 4), line(), S0)
    model = distribute_module(Norms(), line())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        with CommDebugMode(model) as comm:
            model(x).square().sum().backward()
        optimizer.step()
        assert comm.forward_counts == {}
        assert dict(comm.records) == {Communication("all_reduce", "tp", "", backward=True): 1}
        assert comm.total_bytes == 6 * 4 * 8
    # The module that all of them have in common; a mode around the backward alone counts as well.
    with CommDebugMode(model) as comm:
        y = model.layers[1](model.layers[0](x).sin()).square().sum()
        with CommDebugMode() as inner:
            y.backward()
    assert comm.by_module == {("layers", "all_reduce"): 1}
    assert inner.backward_counts == {"all_reduce": 1}
    optimizer.step()
    with CommDebugMode(model) as comm:
        y = model.layers[1](x).sum()
    y.backward()
    assert comm.total == 0


@on_ranks(2)
def test_the_rank_check_names_the_rank_that_went_another_way() -> None:
    os.environ["HYPER_PARALLEL_DEBUG"] = "1"
    rank_check.enabled.cache_clear()
    try:
        twins = Twins()
        for side in twins.each():
            side.mixed().backward()
        twins.check()
        a, b = twins.ours.params
        loss = (twins.ours.x * a).sum() if rank() else (twins.ours.x * a * b).sum()
        message = raised(loss.backward)
        assert "all_reduce on axis 'tp' of f64[4] at" in message
        assert "all_reduce on axis 'tp' of f64[8] at" in message
    finally:
        del os.environ["HYPER_PARALLEL_DEBUG"]
        rank_check.enabled.cache_clear()


@on_ranks(4)
def test_one_group_on_two_meshes() -> None:
    """A mesh and its submesh share the group of an axis, and so the collective."""
    mesh = square()
    whole = numbers(4, 4)
    wide = nn.Parameter(laid_out(numbers(4, seed=1), mesh, R, R))
    narrow = nn.Parameter(laid_out(numbers(4, seed=2), mesh["tp"], R))
    theirs = [nn.Parameter(numbers(4, seed=seed)) for seed in (1, 2)]
    for _ in range(2):
        first = (laid_out(whole, mesh, R, S0) * wide).sin().sum().full_tensor()
        second = (laid_out(whole, mesh["tp"], S0) * narrow).sin().sum().full_tensor()
        assert counted((first + second).backward) == {"all_reduce": 1}
        ((whole * theirs[0]).sin().sum() + (whole * theirs[1]).sin().sum()).backward()
        for ours, expected in zip((wide, narrow), theirs, strict=True):
            assert_equal(ours.grad, expected.grad)
