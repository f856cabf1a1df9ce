"""One collective for the gradients of all replicated parameters, against one device and in every way to go backward."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from hyper_dtensor import CommDebugMode, Communication, DTensor, local_map, rank_check
from hyper_platform_torch import second_leaves
from tests.platform_torch.helpers import S0, P, R, assert_equal, laid_out, line, numbers, raised, square
from tests.platform_torch.tensor_parallel.common import on_ranks, rank

ON_AND_OFF = pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
COUNT = {True: 1, False: 2}
"""All-reduces of the gradients of two parameters, with and without coalescing."""


@contextlib.contextmanager
def coalescing(on: bool) -> Iterator[None]:
    os.environ["HYPER_PARALLEL_COALESCE"] = str(int(on))
    try:
        yield
    finally:
        del os.environ["HYPER_PARALLEL_COALESCE"]


class Twins:
    """Two parameters and an input, on one device and distributed: the input by rows, the parameters whole."""

    def __init__(self, mesh: Any = None, *, dtype: torch.dtype = torch.float64) -> None:
        mesh = mesh or line()
        whole = [numbers(4, seed=seed).to(dtype) for seed in (1, 2)]
        x = numbers(8, 4).to(dtype)
        everywhere = [R] * mesh.ndim
        self.single = Side([nn.Parameter(w.clone()) for w in whole], x, x)
        self.ours = Side(
            [nn.Parameter(laid_out(w, mesh, *everywhere)) for w in whole],
            laid_out(x, mesh, *[S0] * mesh.ndim),
            laid_out(x, mesh, *everywhere),
        )

    def each(self) -> tuple[Side, Side]:
        return self.single, self.ours

    def check(self, what: str = "", tolerance: float = 1e-12) -> None:
        for index, (ours, theirs) in enumerate(zip(self.ours.params, self.single.params, strict=True)):
            assert (ours.grad is None) == (theirs.grad is None), f"{what}: parameter {index}"
            if theirs.grad is not None:
                assert_equal(ours.grad, theirs.grad, f"{what}: parameter {index}", tolerance)
                assert ours.grad.placements == ours.placements


class Side:
    def __init__(self, params: Sequence[Any], x: Any, whole: Any) -> None:
        self.params, self.x, self.whole = params, x, whole

    def varying(self) -> Any:
        """A loss in which every rank uses the parameters on its rows."""
        a, b = self.params
        return ((self.x * a).sin() * b + self.x * b).square().sum()

    def alike(self) -> Any:
        """A loss in which all ranks use the parameters alike."""
        a, b = self.params
        return (a * b).cos().sum() + (self.whole * a).sin().sum()

    def mixed(self) -> Any:
        return self.varying() + self.alike()

    def clear(self) -> None:
        for p in self.params:
            p.grad = None


def counted(run: Callable[[], Any]) -> dict[str, int]:
    with CommDebugMode() as comm:
        run()
    return comm.counts


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


def record_hooks(side: Side, seen: list[Any], kinds: str) -> list[Any]:
    handles = []
    for p in side.params:
        if "t" in kinds:
            handles.append(p.register_hook(lambda g: seen.append(full_copy(g))))
            handles.append(p.register_hook(lambda g: g * 2))
        if "p" in kinds:
            handles.append(p.register_post_accumulate_grad_hook(lambda p: seen.append(full_copy(p.grad))))
        if "T" in kinds:
            handles.append(p.register_hook(lambda g: g + 1))
    return handles


def full_copy(g: Any) -> torch.Tensor:
    return (g.full_tensor() if isinstance(g, DTensor) else g).detach().clone()


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
