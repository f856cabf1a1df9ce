"""autograd.grad, backward, hooks, retain_grad and the attributes of a tensor that autograd has."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch import nn

from hyper_dtensor import CommDebugMode, DTensor
from hyper_layout import Partial
from tests.platform_torch.helpers import S0, S1, P, R, assert_equal, laid_out, line, numbers, raised
from tests.support.ranks import RankPool


def leaves(*placements: object) -> tuple[torch.Tensor, DTensor]:
    """A plain leaf and a distributed one of the same numbers."""
    whole = numbers(4, 4)
    return whole.clone().requires_grad_(), laid_out(whole, line(), *placements).requires_grad_()


def grad_of_leaves() -> None:
    for placement in (S0, S1, R):
        x, dx = leaves(placement)
        weight = numbers(4, 4, seed=1)
        other = S0 if placement is S1 else R
        w, dw = weight.clone().requires_grad_(), laid_out(weight, line(), other).requires_grad_()
        expected = torch.autograd.grad((x @ w).square().sum(), [x, w])
        product = dx @ dw
        got = torch.autograd.grad(product.redistribute([S0]).square().sum(), [dx, dw])
        for ours, theirs, leaf in zip(got, expected, (dx, dw), strict=True):
            assert_equal(ours, theirs)
            assert ours.placements == leaf.placements
        assert dx.grad is None  # autograd.grad accumulates nowhere
        # A given gradient: plain, and as a DTensor.
        given = numbers(4, 4, seed=2)
        (theirs,) = torch.autograd.grad(x * 2, x, given)
        for gradient in (given, laid_out(given, line(), R), laid_out(given, line(), placement)):
            (ours,) = torch.autograd.grad(dx * 2, dx, gradient)
            assert_equal(ours, theirs)


def test_grad_of_leaves(ranks2: RankPool) -> None:
    ranks2.run(grad_of_leaves)


def grad_of_gathered() -> None:
    """Rule 4: what reached a gathered tensor whole, and what reached its varying view, add up."""
    x, dx = leaves(S0)
    other = numbers(4, 4, seed=1)
    do = laid_out(other, line(), S1)
    y, dy = x * 2, (dx * 2).redistribute([R])
    expected = torch.autograd.grad((y @ other).sum() + y.square().sum(), [y, x], retain_graph=True)
    got = torch.autograd.grad((dy @ do).sum() + dy.square().sum(), [dy, dx], retain_graph=True)
    for ours, theirs in zip(got, expected, strict=True):
        assert_equal(ours, theirs)
    assert got[0].placements == (R,)
    # A view of the gathered tensor.
    z, dz = y.t(), dy.t()
    expected = torch.autograd.grad((z @ other).sum() + z.square().sum(), [z, y, x])
    got = torch.autograd.grad((dz @ do).sum() + dz.square().sum(), [dz, dy, dx])
    for ours, theirs in zip(got, expected, strict=True):
        assert_equal(ours, theirs)


def test_grad_of_a_gathered_tensor_and_its_views(ranks2: RankPool) -> None:
    ranks2.run(grad_of_gathered)


def grad_of_unused() -> list[str]:
    x, dx = leaves(S0)
    unused = laid_out(numbers(4), line(), R).requires_grad_()
    loss = dx.square().sum()
    message = raised(lambda: torch.autograd.grad(loss, [dx, unused], retain_graph=True))
    used, nothing = torch.autograd.grad(loss, [dx, unused], retain_graph=True, allow_unused=True)
    assert nothing is None
    assert_equal(used, 2 * x)
    used, zero = torch.autograd.grad(loss, [dx, unused], retain_graph=True, materialize_grads=True)
    assert_equal(zero, torch.zeros(4, dtype=torch.float64))
    batched = raised(lambda: torch.autograd.grad(dx * 2, dx, torch.ones(3, 4, 4), is_grads_batched=True))
    return [message, batched]


def test_grad_of_an_unused_input(ranks2: RankPool) -> None:
    for unused, batched in ranks2.run(grad_of_unused):
        assert "allow_unused" in unused
        assert "is_grads_batched" in batched


def double_backward() -> None:
    """Every step of a layout change is differentiable twice."""
    weight = numbers(4, 4, seed=5)
    for source, target in ((S0, R), (S0, S1), (R, S0), (P, R), (P, S0), (R, P), (S1, P)):
        x, dx = leaves(source)
        moved = dx.redistribute([target])
        if target is P:  # linear up to the sum
            y = (x * weight).exp()
            dy = (moved * laid_out(weight, line(), R)).redistribute([R]).exp()
        else:
            y = x.exp() * weight
            dy = moved.exp() * laid_out(weight, line(), target)
        (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (dfirst,) = torch.autograd.grad(dy.sum(), dx, create_graph=True)
        assert_equal(dfirst, first, f"first derivative, {source} -> {target}")
        (second,) = torch.autograd.grad(first.square().sum(), x)
        (dsecond,) = torch.autograd.grad(dfirst.square().sum(), dx)
        assert_equal(dsecond, second, f"second derivative, {source} -> {target}")


def test_create_graph_is_exact(ranks2: RankPool) -> None:
    ranks2.run(double_backward)


def penalty() -> None:
    """A gradient penalty through a matrix product accumulates into the parameters."""
    weight = numbers(4, 4, seed=3)
    x, dx = leaves(S0)
    w, dw = nn.Parameter(weight.clone()), nn.Parameter(laid_out(weight, line(), R))
    for value, parameter in ((x, w), (dx, dw)):
        loss = torch.tanh(value @ parameter).square().sum()
        (g,) = torch.autograd.grad(loss, value, create_graph=True)
        g.square().sum().backward()
    assert_equal(dw.grad, w.grad, "gradient of the penalty")
    assert_equal(dx.grad, x.grad)


def test_gradient_penalty(ranks2: RankPool) -> None:
    ranks2.run(penalty)


def backward_calls() -> None:
    x, dx = leaves(S0)
    w, dw = leaves(R)
    # torch.autograd.backward, several roots, plain ones among them.
    plain, dplain = (numbers(3, seed=4).requires_grad_() for _ in range(2))
    torch.autograd.backward([(x @ w).sum(), plain.square().sum()])
    torch.autograd.backward([(dx @ dw).sum(), dplain.square().sum()])
    for ours, theirs in ((dx, x), (dw, w), (dplain, plain)):
        assert_equal(ours.grad, theirs.grad)
    # backward(inputs=): only these.
    for t in (x, w, dx, dw):
        t.grad = None
    (x @ w).sum().backward(inputs=[w])
    (dx @ dw).sum().backward(inputs=[dw])
    assert dx.grad is None
    assert_equal(dw.grad, w.grad)
    # A sensitivity, positional arguments, and a Partial root.
    given = numbers(4, 4, seed=6)
    (x @ w).backward(given, True)
    (dx.redistribute([S1]) @ dw.redistribute([S0])).backward(given, True)
    assert_equal(dx.grad, x.grad)
    assert_equal(dw.grad, w.grad)
    assert "one element" in raised(lambda: (dx * 2).backward())
    assert "shape" in raised(lambda: (dx * 2).backward(numbers(4)), ValueError)
    # A function of the tensor class finds the same.
    torch.Tensor.backward((dx * 3).sum())


def test_backward_in_all_its_forms(ranks2: RankPool) -> None:
    ranks2.run(backward_calls)


def hooks() -> None:
    for placement, shown in ((S0, (S0,)), (R, (R,)), (P, (R,))):
        x, dx = leaves(placement)
        seen: list[DTensor] = []

        def double(gradient: DTensor, seen: list[DTensor] = seen) -> DTensor:
            seen.append(gradient)
            return gradient * 2

        doubled = [t.register_hook(double) for t in (x, dx)]
        y, dy = x * 3, dx * 3
        y.register_hook(lambda g: g + 1)
        dy.register_hook(lambda g: g + 1)
        (y * y).sum().backward()
        if placement is P:
            (dy.redistribute([R]) * dy.redistribute([R])).sum().backward()
        else:
            (dy * dy).sum().backward()
        assert seen[-1].placements == shown
        assert_equal(seen[-1], seen[0], "what the hook saw")
        assert_equal(dx.grad, x.grad, f"after the hooks, {placement}")
        for handle in doubled:
            handle.remove()
        bad = dx * 1
        bad.register_hook(lambda g: g.to_local())
        assert "DTensor" in raised(lambda b=bad: b.redistribute([R]).sum().backward(), ValueError)


def test_tensor_hooks_get_dtensors(ranks2: RankPool) -> None:
    ranks2.run(hooks)


def late_hook() -> list[str]:
    """Rule 4: a hook on a gathered tensor that was used already would miss a part."""
    _, dx = leaves(S0)
    other = laid_out(numbers(4, 4, seed=1), line(), S1)
    messages = []
    for register in ("register_hook", "retain_grad"):
        gathered = (dx * 2).redistribute([R])
        loss = (gathered @ other).sum()
        arguments = [lambda g: g] if register == "register_hook" else []
        messages.append(raised(lambda g=gathered, r=register, a=arguments: getattr(g, r)(*a)))
        loss.backward()
    # Registered before the first use, both see the whole.
    _, dx = leaves(S0)
    seen: list[DTensor] = []
    gathered = (dx * 2).redistribute([R])
    gathered.register_hook(seen.append)
    gathered.retain_grad()
    ((gathered @ other).sum() + gathered.sum()).backward()
    whole = numbers(4, 4, seed=1).sum(1).expand(4, 4) + 1
    assert_equal(seen[0], whole)
    assert_equal(gathered.grad, whole)
    assert gathered.retains_grad
    return messages


def test_a_hook_on_a_gathered_tensor_comes_before_its_first_use(ranks2: RankPool) -> None:
    for messages in ranks2.run(late_hook):
        assert all("before the first use" in message for message in messages)


def post_accumulate_hooks() -> None:
    """An optimizer step in the hook, as is done to save memory; the model changes its dtype later on."""
    whole = numbers(4, 4)
    w, dw = nn.Parameter(whole.clone()), nn.Parameter(laid_out(whole, line(), S0))
    calls: list[object] = []

    def step(p: torch.Tensor) -> None:
        calls.append(p)
        with torch.no_grad():
            p.sub_(p.grad, alpha=0.1)
        p.grad = None

    for p in (w, dw):
        p.register_post_accumulate_grad_hook(step)
        p.square().sum().backward()
    assert calls[1] is dw
    assert dw.grad is None
    assert_equal(dw, w)
    dw.data = dw.data.float()
    dw.square().sum().backward()
    assert calls[2] is dw
    assert dw.dtype == torch.float32


def test_post_accumulate_grad_hooks(ranks2: RankPool) -> None:
    ranks2.run(post_accumulate_hooks)


def retained() -> None:
    for placement in (S0, R):
        x, dx = leaves(placement)
        y, dy = x.sin(), dx.sin()
        y.retain_grad()
        dy.retain_grad()
        (y * y).sum().backward()
        (dy * dy).sum().backward()
        assert_equal(dy.grad, y.grad)
        assert_equal(dx.grad, x.grad)


def test_retain_grad(ranks2: RankPool) -> None:
    ranks2.run(retained)


def attributes() -> None:
    mesh = line()
    _, dx = leaves(S0)
    assert dx.requires_grad
    assert dx.is_leaf
    assert dx.grad_fn is None
    y = dx * 2
    assert y.requires_grad
    assert not y.is_leaf
    assert y.grad_fn is not None
    assert y.grad_fn == y.grad_fn
    assert "Mul" in y.grad_fn.name()
    assert not y.detach().requires_grad
    assert not y.data.requires_grad
    # grad =
    dx.grad = laid_out(numbers(4, 4, seed=1), mesh, S0)
    assert_equal(dx.grad, numbers(4, 4, seed=1))
    dx.grad += 1
    assert_equal(dx.grad, numbers(4, 4, seed=1) + 1)
    assert dx.grad is dx.grad
    for wrong in (laid_out(numbers(4, 4), mesh, R), numbers(4, 4), 1.0):
        assert "tp:S(0)" in raised(lambda w=wrong: setattr(dx, "grad", w), ValueError)
    del dx.grad
    assert dx.grad is None
    # requires_grad_
    dx.requires_grad_(False)
    assert not (dx * 2).requires_grad
    dx.requires_grad = True
    assert (dx * 2).requires_grad
    with pytest.raises(RuntimeError):
        (dx * 2).requires_grad_(False)
    most = DTensor.from_local(numbers(4), mesh, [Partial("max")])
    assert "carries no gradient" in raised(most.requires_grad_, ValueError)
    # An in-place operation makes a tensor part of the graph, and the wrapper says so.
    z = laid_out(numbers(4, 4), mesh, S0)
    z.add_(dx)
    assert z.requires_grad
    z.sum().backward()
    assert_equal(dx.grad, torch.ones(4, 4, dtype=torch.float64))
    for write in (
        lambda t: t.__setitem__((slice(None), 0), dx[:, 0]),
        lambda t: torch._foreach_add_([t], [dx]),
    ):
        written = laid_out(numbers(4, 4), mesh, S0)
        write(written)
        assert torch.Tensor.requires_grad.__get__(written)
        with torch._C.DisableTorchFunctionSubclass():
            assert torch.Tensor.requires_grad.__get__(written)
    # detach_
    z.detach_()
    assert not z.requires_grad
    assert z.is_leaf


def test_attributes(ranks2: RankPool) -> None:
    ranks2.run(attributes)


def exchanged_data() -> None:
    """`.data =` drops the views (rule 3): the next use reads the new numbers, and so does its gradient."""
    mesh = line()
    w, dw = leaves(R)
    other = numbers(4, 4, seed=1)
    do = laid_out(other, mesh, S1)
    for step in range(3):
        (w @ other).sin().sum().backward()
        (dw @ do).sin().sum().backward()
        assert_equal(dw.grad, w.grad, f"step {step}")
        new = numbers(4, 4, seed=10 + step)
        w.data = new.clone()
        dw.data = laid_out(new, mesh, R)
        w.grad = dw.grad = None
        assert_equal(dw, new)
    # Another layout and another dtype, in the same object.
    known = dw
    dw.sum().backward()
    assert "gradient" in raised(lambda: setattr(dw, "data", laid_out(other, mesh, S0)), ValueError)
    dw.grad = None
    dw.data = laid_out(other, mesh, S0)
    assert dw.placements == (S0,)
    dw.data = dw.data.float()
    assert dw.dtype == torch.float32
    assert dw is known
    assert dw.requires_grad
    assert torch.Tensor.dtype.__get__(dw) == torch.float32
    (dw * 2).sum().backward()
    assert_equal(dw.grad, torch.full((4, 4), 2.0))
    # Another shape.
    dw.grad = None
    dw.data = laid_out(numbers(6, 2), mesh, S0)
    assert tuple(dw.shape) == (6, 2)
    assert tuple(torch.Tensor.size(dw)) == (6, 2)
    assert "from_local" in raised(lambda: setattr(dw, "data", numbers(4, 4)), TypeError)


def test_data_is_exchanged(ranks2: RankPool) -> None:
    ranks2.run(exchanged_data)


def exchanged_locals() -> None:
    """`.data =` of the local tensor itself: no version says so, the remembered view must not be taken."""
    other = numbers(4, 4, seed=1)
    split = laid_out(other, line(), S0)
    for made in (leaves(R)[1], nn.Parameter(laid_out(numbers(4, 4), line(), R))):
        (split @ made).sum().backward()
        made.grad = None
        kept = made.t()
        new, old = numbers(4, 4, seed=9).requires_grad_(), numbers(4, 4)
        made.to_local().data = new.detach().clone()
        got, expected = (split @ made).sin(), (other @ new).sin()
        assert_equal(got, expected)
        assert_equal(split @ kept, other @ old.t())  # a view of the data that was there
        got.sum().backward()
        expected.sum().backward()
        assert_equal(made.grad, new.grad)


def test_data_of_the_local_tensor_is_exchanged(ranks2: RankPool) -> None:
    ranks2.run(exchanged_locals)


def detached_locals() -> None:
    """`detach_` of the local tensor: the remembered view would lead to the history that was cut off."""
    base = numbers(4, 4).requires_grad_()
    h = base * 2
    t = DTensor.from_local(h, line(), [R])
    split = laid_out(numbers(4, 4, seed=1), line(), S0)
    (split @ t).sum().backward()
    assert base.grad is not None
    before = base.grad.clone()
    h.detach_().requires_grad_()
    (split @ t).sum().backward()
    assert torch.equal(base.grad, before)
    assert_equal(h.grad, before / 2)
    # And of a gathered tensor, whose view is made from what was gathered.
    shard = laid_out(numbers(4, 4), line(), S0).requires_grad_()
    gathered = shard.redistribute([R])
    cut = gathered.to_local().detach_().requires_grad_()
    (split @ gathered).sum().backward()
    assert shard.grad is None
    assert_equal(cut.grad, before / 2)


def test_a_local_tensor_is_detached(ranks2: RankPool) -> None:
    ranks2.run(detached_locals)


def exchanged_gradients() -> None:
    """`.grad.data =` keeps the layout, which the next backward counts on, and gradients are let go at once."""
    mesh = line()
    w, dw = leaves(R)
    new = numbers(4, 4, seed=1)
    for x, value in ((w, new.clone()), (dw, laid_out(new, mesh, R))):
        x.square().sum().backward()
        x.grad.data = value
        x.square().sum().backward()
    assert_equal(dw.grad, w.grad)
    for other in (laid_out(new, mesh, S0), laid_out(new, mesh, P), laid_out(new[:2], mesh, R)):
        assert "it is a gradient" in raised(lambda t=other: setattr(dw.grad, "data", t), ValueError)
    assert_equal(dw.grad, w.grad)

    def by_attribute() -> None:
        dw.grad = None

    def by_deletion() -> None:
        del dw.grad

    optimizer = torch.optim.SGD([dw], lr=0.1)
    for drop in (by_attribute, by_deletion, optimizer.zero_grad):
        dw.square().sum().backward()
        shown = weakref.ref(dw.grad.to_local())
        drop()
        assert shown() is None
        assert dw.grad is None


def test_gradients_are_exchanged(ranks2: RankPool) -> None:
    ranks2.run(exchanged_gradients)


def counted() -> None:
    """q, k and v of one input share its varying view, so that they cost one backward all-reduce (rule 3)."""
    mesh = line()
    x, dx = leaves(R)
    weights = [numbers(4, 4, seed=seed) for seed in range(3)]
    y, dy = x * 2, dx * 2
    expected = sum((y @ w).sin().sum() for w in weights)
    got = sum((dy @ laid_out(w, mesh, S1)).sin().sum() for w in weights)
    expected.backward()
    with CommDebugMode() as comm:
        got.backward()
    assert comm.counts == {"all_reduce": 1}
    assert_equal(dx.grad, x.grad)


def test_consumers_share_one_backward_reduction(ranks2: RankPool) -> None:
    ranks2.run(counted)
