"""Gradients that are reduced together: hooks, threads, errors, and other ways to use the engine."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from hyper_dtensor import DTensor, local_map
from hyper_platform_torch import second_leaves
from tests.platform_torch.coalescing import (
    ON_AND_OFF,
    Side,
    Twins,
    coalescing,
    full_copy,
    record_hooks,
)
from tests.platform_torch.helpers import S0, R, assert_equal, laid_out, line, numbers, raised
from tests.platform_torch.tensor_parallel.common import on_ranks


@on_ranks(2, 4)
@ON_AND_OFF
@pytest.mark.parametrize("kinds", ["t", "p", "tp", "tpT"])
@pytest.mark.parametrize("loss", ["varying", "mixed", "alike"])
def test_hooks_see_the_whole_gradient_once(on: bool, kinds: str, loss: str) -> None:
    with coalescing(on):
        for when in ("before the forward", "between", "after a step"):
            twins = Twins()
            seen: list[list[Any]] = [[], []]
            handles = []
            for side, found in zip(twins.each(), seen, strict=True):
                if when == "before the forward":
                    handles += record_hooks(side, found, kinds)
                if when == "after a step":
                    side.mixed().backward()
                value = getattr(side, loss)()
                if when != "before the forward":
                    handles += record_hooks(side, found, kinds)
                value.backward(retain_graph=True)
                getattr(side, loss)().backward()
                value.backward()
            what = f"{kinds} {loss} {when}"
            twins.check(what)
            assert len(seen[0]) == len(seen[1])
            # The order between the parameters is free; each one's own is not.
            for ours in seen[1]:
                assert any(torch.allclose(ours, theirs, rtol=1e-11) for theirs in seen[0]), what
            for handle in handles:
                handle.remove()
            for side in twins.each():
                getattr(side, loss)().backward()
            twins.check(f"{what}, hooks removed")
            assert len(seen[0]) == len(seen[1])


@on_ranks(2, 4)
@ON_AND_OFF
def test_an_optimizer_step_in_the_hook(on: bool) -> None:
    with coalescing(on):
        for loss in ("varying", "mixed"):
            twins = Twins()

            def step(p: Any) -> None:
                with torch.no_grad():
                    p.sub_(p.grad, alpha=0.1)
                p.grad = None

            for side in twins.each():
                for p in side.params:
                    p.register_post_accumulate_grad_hook(step)
            for turn in range(3):
                for side in twins.each():
                    getattr(side, loss)().backward()
                for ours, theirs in zip(twins.ours.params, twins.single.params, strict=True):
                    assert ours.grad is None
                    assert_equal(ours, theirs, f"{loss} turn {turn}")


@on_ranks(2, 4)
@ON_AND_OFF
def test_checkpoint(on: bool) -> None:
    mesh = line()
    with coalescing(on):
        for kind in ("dtensors", "plain", "reentrant"):
            twins = Twins()
            for turn in range(2):
                for side in twins.each():
                    a, b = side.params

                    def region(x: Any, a: Any = a, b: Any = b) -> Any:
                        if isinstance(a, DTensor) and not isinstance(x, DTensor):
                            return ((DTensor.from_local(x, mesh, [S0]) * a).sin() * b).to_local()
                        return (x * a).sin() * b

                    if side is twins.single:
                        out = region(side.x * 1.0)
                        (out * side.params[0]).square().sum().backward()
                        continue
                    if kind == "dtensors":
                        out = checkpoint(region, side.x, use_reentrant=False)
                    else:
                        x = side.x.to_local().clone().requires_grad_()
                        local = checkpoint(region, x, use_reentrant=kind == "reentrant")
                        out = DTensor.from_local(local, mesh, [S0])
                    (out * side.params[0]).square().sum().backward()
                twins.check(f"{kind} turn {turn}")
                for side in twins.each():
                    with torch.no_grad():
                        side.params[1].mul_(1.5)


def go_backward(side: Side) -> None:
    with torch.enable_grad():
        loss = side.mixed()
    loss.backward()


@on_ranks(2, 4)
@ON_AND_OFF
def test_backward_inside_of_a_backward(on: bool) -> None:
    with coalescing(on):
        # In a hook, on the same parameters.
        twins = Twins()
        for side in twins.each():
            y = side.x * side.params[0]
            y.register_hook(lambda g, side=side: go_backward(side))
            (y.sin() * side.params[1]).sum().backward()
        twins.check("in a tensor hook")
        # In a hook of a parameter: at the end.
        for side in twins.each():
            done: list[int] = []

            def once(g: Any, side: Side = side, done: list[int] = done) -> None:
                if not done:
                    done.append(1)
                    go_backward(side)

            side.params[1].register_hook(once)
            side.varying().backward()
        twins.check("in a parameter's hook")

        # In a function of local tensors, deeper than the engine's own recursion limit.
        class Inner(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor, run: Callable[[int], None], depth: int) -> torch.Tensor:
                ctx.run, ctx.depth = run, depth
                return x.clone()

            @staticmethod
            def backward(ctx: Any, g: torch.Tensor) -> Any:
                with torch.enable_grad():
                    ctx.run(ctx.depth - 1)
                return g, None, None

        twins = Twins()
        for side in twins.each():

            def run(depth: int, side: Side = side) -> None:
                loss = side.mixed() * 0.1
                if isinstance(loss, DTensor):
                    loss = loss.full_tensor()
                if depth:
                    loss = Inner.apply(loss, run, depth)
                loss.backward()

            run(70)
        twins.check("deep")


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        raise ValueError("in the middle")


@on_ranks(2, 4)
@ON_AND_OFF
def test_an_error_in_the_middle(on: bool) -> None:
    """Nothing is left of a backward that failed; the next one is right."""
    with coalescing(on):
        twins = Twins()
        mesh = line()
        for side in twins.each():
            side.varying().backward()
        ours = twins.ours
        a, b = ours.params
        failing = local_map(Fails.apply, [S0])(ours.x * a) * b
        before = [full_copy(p.grad) for p in ours.params]
        message = raised(lambda: failing.sin().sum().backward(), ValueError)
        assert message == "in the middle"
        assert not second_leaves._tasks
        # b was reached before the failure, as on one device: on one it would have been accumulated.
        assert torch.equal(full_copy(a.grad), before[0])
        for p, old in zip(ours.params, before, strict=True):
            p.grad = laid_out(old, mesh, R)
        twins.check("gradients are as before")
        for side in twins.each():
            side.mixed().backward()
        twins.check("the next one")
        # A hook that raises, of the parameter and in the graph.
        for register in (
            lambda: a.register_hook(fail),
            lambda: b.register_post_accumulate_grad_hook(fail),
        ):
            for side in twins.each():
                side.clear()
            handle = register()
            for loss in ("varying", "mixed", "alike"):
                assert "hook" in raised(lambda loss=loss: getattr(ours, loss)().backward(), ValueError)
            handle.remove()
            assert not second_leaves._tasks
            ours.clear()
            for side in twins.each():
                side.mixed().backward()
            twins.check("after a hook that raised")


def fail(_: Any) -> None:
    raise ValueError("hook")


@on_ranks(2)
@ON_AND_OFF
def test_who_asks_the_engine_about_a_parameter(on: bool) -> None:
    """Its gradient is then reduced in the graph; and who asks too late is told."""
    graph = torch.autograd.graph
    mesh = line()
    with coalescing(on):
        for mode in ("all", "any"):
            twins = Twins()
            split = (
                nn.Parameter(laid_out(numbers(8, 4, seed=3), mesh, S0)),
                nn.Parameter(numbers(8, 4, seed=3)),
            )
            seen: list[list[Any]] = [[], []]
            for side, more, found in zip(twins.each(), split[::-1], seen, strict=True):
                params = (*side.params, more)

                def record(gradients: Any, found: list[Any] = found) -> None:
                    found.append([full_copy(g) for g in gradients] if isinstance(gradients, list) else 1)

                graph.register_multi_grad_hook(params, record, mode=mode)
                (side.mixed() + more.sin().sum()).backward()
            twins.check(mode)
            assert len(seen[0]) == len(seen[1]) == 1
            if mode == "all":
                for ours, theirs in zip(seen[1][0], seen[0][0], strict=True):
                    assert_equal(ours, theirs)
        twins = Twins()
        edges = [graph.get_gradient_edge(side.params[0]) for side in twins.each()]
        theirs = torch.autograd.grad(twins.single.mixed(), edges[0])[0]
        assert_equal(torch.autograd.grad(twins.ours.mixed().full_tensor(), edges[1])[0], theirs)
        assert_equal(torch.autograd.grad(twins.ours.mixed(), [edges[1]])[0], theirs)
        # Hooks on the local tensor itself.
        twins = Twins()
        local = twins.ours.params[0].to_local()
        found: list[Any] = []
        local.register_hook(lambda g: found.append(full_copy(g)))
        local.register_post_accumulate_grad_hook(lambda p: found.append(full_copy(p.grad)))
        for side in twins.each():
            side.mixed().backward()
        twins.check("hooks on the local tensor")
        assert len(found) == 2
        for value in found:
            assert_equal(value, twins.single.params[0].grad)
        if on:
            twins = Twins()
            loss = twins.ours.mixed()
            late = raised(lambda: graph.get_gradient_edge(twins.ours.params[0]))
            assert "before its first use" in late
            assert "HYPER_PARALLEL_COALESCE=0" in late
            assert late == raised(
                lambda: graph.register_multi_grad_hook(twins.ours.params, print, mode="any")
            )
            loss.backward()


@on_ranks(2)
def test_parameters_are_freed_without_the_garbage_collector() -> None:
    mesh = line()
    x = laid_out(numbers(8, 4), mesh, S0)
    gc.collect()
    gc.disable()
    try:
        for hooked in (False, True):
            p = nn.Parameter(laid_out(numbers(4), mesh, R))
            if hooked:
                p.register_hook(lambda g: g * 2)
            loss = (x * p).sin().sum() + p.sum()
            loss.backward()
            ((_, second),) = second_leaves.parts_of(p.to_local())
            references = [weakref.ref(t) for t in (p, p.to_local(), second)]
            del p, second, loss
            assert [r() for r in references] == [None] * 3, hooked
            # A graph alone keeps a parameter's data, not its wrapper; it goes with the graph.
            p = nn.Parameter(laid_out(numbers(4), mesh, R))
            loss = (x * p).sin().sum()
            local = weakref.ref(p.to_local())
            del p
            assert local() is not None
            loss.backward()
            del loss
            assert local() is None
            # A second leaf that another one replaced goes with its graph.
            p = nn.Parameter(laid_out(numbers(4), mesh, R))
            for _ in range(5):
                loss = (x * p).sin().sum()
                loss.backward()
                with torch.no_grad():
                    p.add_(1)
            loss = (x * p).sum()
            assert len(second_leaves.of(p.to_local()).alive()) == 1
            assert len(second_leaves.of(p.to_local())._references) <= 2
    finally:
        gc.enable()


@on_ranks(2)
def test_a_graph_outlives_its_parameter() -> None:
    """As on one device: the graph keeps what the gradient is for, hooks included."""
    mesh = line()
    seen: list[Any] = []

    def loss_of_temporary() -> Any:
        p = nn.Parameter(laid_out(numbers(4), mesh, R))
        p.register_hook(lambda g: seen.append(full_copy(g)))
        p.register_post_accumulate_grad_hook(lambda p: seen.append(full_copy(p.grad)))
        return (laid_out(numbers(8, 4), mesh, S0) * p).sum() + p.sum()

    loss_of_temporary().backward()
    expected = numbers(8, 4).sum(0) + 1
    assert len(seen) == 2
    for value in seen:
        assert_equal(value, expected)


@on_ranks(2)
@ON_AND_OFF
def test_in_other_threads(on: bool) -> None:
    """Backward under no_grad, from a thread, and from several one after the other."""
    with coalescing(on):
        twins = Twins()
        for side in twins.each():
            loss = side.mixed()
            with torch.no_grad():
                loss.backward()
        twins.check("under no_grad")
        for side in twins.each():
            losses = [side.mixed(), side.varying(), side.varying()]
            for loss in losses:
                thread = threading.Thread(target=loss.backward)
                thread.start()
                thread.join()
        twins.check("in threads")


@on_ranks(2)
@ON_AND_OFF
def test_a_gradient_that_never_comes(on: bool) -> None:
    """A function that returns no gradient for what the second leaf went through: the hooks run all the same."""

    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> Any:
            return None

    with coalescing(on):
        for kinds in ("t", "p", "tp"):
            twins = Twins()
            seen: list[list[Any]] = [[], []]
            for side, found in zip(twins.each(), seen, strict=True):
                a, _ = side.params
                record_hooks(side, found, kinds)
                product = side.x * a
                nothing = (
                    local_map(Nothing.apply, [S0])(product) if side is twins.ours else Nothing.apply(product)
                )
                (nothing.sum() + a.sin().sum()).backward()
            twins.check(kinds)
            assert len(seen[0]) == len(seen[1]) == len(kinds)
