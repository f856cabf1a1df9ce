"""Design section 3 on PyTorch's own engine: the rules that a simulated tape cannot show."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import torch
from torch import nn

from hyper_dtensor import CommDebugMode, DTensor, implicit_replication
from tests.platform_torch.helpers import S0, S1, P, R, assert_equal, laid_out, line, numbers, raised, square
from tests.support.ranks import RankPool


def freed_inputs() -> None:
    """A plain input that carries shared varying views goes with its last user; the collector is off."""
    mesh = line()
    weight = laid_out(numbers(4, 4, seed=1), mesh, S1).requires_grad_()
    gc.collect()
    gc.disable()
    try:
        for keep_graph in (False, True):
            leaf = numbers(4, 4).requires_grad_()
            activation = leaf * 2  # a non-leaf: it carries the views
            first = DTensor.from_local(activation, mesh, [R]) @ weight
            second = DTensor.from_local(activation, mesh, [R]) @ weight
            (first.sin().sum() + second.cos().sum()).backward(retain_graph=keep_graph)
            references = [weakref.ref(t) for t in (activation, first, second)]
            del activation, first, second
            assert [r() for r in references] == [None] * 3, keep_graph
            # A leaf keeps no views.
            DTensor.from_local(leaf, mesh, [R]) @ weight
            reference = weakref.ref(leaf)
            leaf.grad = None
            del leaf
            assert reference() is None
        # DTensors themselves: results, gathered tensors and views of them.
        x = laid_out(numbers(4, 4), mesh, S0).requires_grad_()
        gathered = (x * 2).redistribute([R])
        view = gathered.t()
        out = view @ weight
        out.sum().backward()
        references = [weakref.ref(t) for t in (gathered, view, out)]
        del gathered, view, out
        assert [r() for r in references] == [None] * 3
    finally:
        gc.enable()


def test_inputs_are_freed_without_the_garbage_collector(ranks2: RankPool) -> None:
    ranks2.run(freed_inputs)


def shared_views() -> None:
    """Several from_local calls on one plain activation share its varying view: one backward all-reduce."""
    mesh = line()
    weights = [numbers(4, 4, seed=seed) for seed in (1, 2, 3)]
    leaf, dleaf = (numbers(4, 4).requires_grad_() for _ in range(2))
    plain, activation = leaf * 2, dleaf * 2
    expected = sum((plain @ w).sin().sum() for w in weights)
    expected.backward()
    loss = sum(
        (DTensor.from_local(activation, mesh, [R]) @ laid_out(w, mesh, S1)).sin().sum() for w in weights
    )
    with CommDebugMode() as comm:
        loss.backward()
    assert comm.counts == {"all_reduce": 1}
    assert_equal(dleaf.grad, leaf.grad)
    # Changed in place, it has another view.
    with torch.no_grad():
        plain += 1
        activation += 1
    for parameter in (leaf, dleaf):
        parameter.grad = None
    plain, activation = leaf * 2, dleaf * 2
    plain.mul_(3)
    DTensor.from_local(activation, mesh, [R]) @ laid_out(weights[0], mesh, S1)
    activation.mul_(3)
    (plain @ weights[0]).sin().sum().backward()
    (DTensor.from_local(activation, mesh, [R]) @ laid_out(weights[0], mesh, S1)).sin().sum().backward()
    assert_equal(dleaf.grad, leaf.grad, "after an in-place operation")


def test_plain_activations_share_their_view(ranks2: RankPool) -> None:
    ranks2.run(shared_views)


def scalars() -> None:
    """0-d plain parameters: Replicate, and they enter a varying operation through a varying view."""
    mesh = line()
    whole = numbers(4, 4)
    for placement in (S0, S1, R):
        scale, dscale = (nn.Parameter(torch.tensor(1.5, dtype=torch.float64)) for _ in range(2))
        x, dx = whole.clone().requires_grad_(), laid_out(whole, mesh, placement).requires_grad_()
        for factor, value in ((scale, x), (dscale, dx)):
            y = (value * factor).sin() + factor
            (y.sum() * factor).backward()
        assert_equal(dscale.grad, scale.grad, f"of the scale, {placement}")
        assert_equal(dx.grad, x.grad)
    # Two uses share one view, on a non-leaf as well.
    base, dbase = (nn.Parameter(torch.tensor(0.5, dtype=torch.float64)) for _ in range(2))
    scale, dscale = base.exp(), dbase.exp()
    ((whole * scale).sin() + whole / scale).sum().backward()
    dx = laid_out(whole, mesh, S0)
    loss = ((dx * dscale).sin() + dx / dscale).sum()
    with CommDebugMode() as comm:
        loss.backward()
    assert_equal(dbase.grad, base.grad)
    assert comm.counts == {"all_reduce": 1}


def test_scalar_parameters(ranks2: RankPool) -> None:
    ranks2.run(scalars)


def shared_gradients() -> None:
    """A backward collective never writes into the gradient it is given: another branch may hold it."""
    mesh = line()
    whole = numbers(4, 4)
    x, dx = whole.clone().requires_grad_(), laid_out(whole, mesh, R).requires_grad_()
    other = numbers(4, 4, seed=1)
    y, dy = x * 1, dx * 1
    seen: list[Any] = []
    # Both operands of the sum get the very same gradient tensor.
    z, dz = y + y.detach(), dy + dy.detach()
    (z * other).sum().backward()
    do = laid_out(other, mesh, S0).redistribute([R])
    dz.register_hook(lambda g: seen.append(g.to_local().clone()))
    (dz * do).sum().backward()
    assert_equal(dx.grad, x.grad)
    assert_equal(seen[0], other)
    for source, target in ((S0, R), (R, S0), (S0, S1), (P, R), (P, S0)):
        x, dx = whole.clone().requires_grad_(), laid_out(whole, mesh, source).requires_grad_()
        moved = dx.redistribute([target])
        given = laid_out(other, mesh, target)
        known = given.to_local().clone()
        moved.backward(given)
        assert torch.equal(given.to_local(), known), f"{source} -> {target} wrote into the gradient"
        assert_equal(dx.grad, other, f"{source} -> {target}")
        # Forward: the source may be used again.
        before = dx.to_local().detach().clone()
        dx.redistribute([target])
        assert torch.equal(dx.to_local().detach(), before)


def test_collectives_do_not_write_into_shared_tensors(ranks2: RankPool) -> None:
    ranks2.run(shared_gradients)


def gathered_then_written() -> None:
    """Gather, then in place: the varying view is the plain one again (rule 4)."""
    mesh = line()
    whole, other = numbers(4, 4), numbers(4, 4, seed=1)
    do = laid_out(other, mesh, S1)
    for write in (lambda t: t.mul_(2), lambda t: t.add_(1), lambda t: t[0].zero_(), lambda t: t.t().mul_(3)):
        x, dx = whole.clone().requires_grad_(), laid_out(whole, mesh, S0).requires_grad_()
        y, dy = x * 1, (dx * 1).redistribute([R])
        write(y)
        write(dy)
        (y @ other).sin().sum().backward()
        (dy @ do).sin().sum().backward()
        assert_equal(dx.grad, x.grad)
        # Used before the write, too: as on one device, both uses count.
        x.grad = dx.grad = None
        y, dy = x * 1, (dx * 1).redistribute([R])
        before, dbefore = (y @ other).sum(), (dy @ do).sum()
        write(y)
        write(dy)
        ((y @ other).sin().sum() + before).backward()
        ((dy @ do).sin().sum() + dbefore).backward()
        assert_equal(dx.grad, x.grad)


def test_in_place_on_a_gathered_tensor(ranks2: RankPool) -> None:
    ranks2.run(gathered_then_written)


def aliased() -> None:
    """An alias sees what is written into the tensor, and the other way round."""
    mesh = line()
    whole, other = numbers(4, 4), numbers(4, 4, seed=1)
    for placement in (S0, R):
        results = []
        for x, o in (
            (whole.clone().requires_grad_(), other),
            (laid_out(whole, mesh, placement).requires_grad_(), laid_out(other, mesh, placement)),
        ):
            y = x * 1
            view = y.t()
            y.mul_(o)
            assert_equal(view, (whole * other).t())
            view.add_(1)
            assert_equal(y, whole * other + 1)
            (y.sin().sum() + view.square().sum()).backward()
            results.append(x.grad)
        assert_equal(results[1], results[0], f"{placement}")
    # What would change the layout or the gradient state of the target is refused (rule 9).
    x = laid_out(whole, mesh, R).requires_grad_() * 1
    sharded = laid_out(other, mesh, S0).requires_grad_()
    for write in (lambda: x.add_(sharded), lambda: x.mul_(sharded)):
        assert "add_" in raised(write, ValueError) or "mul_" in raised(write, ValueError)
    varying = laid_out(other, mesh, R).requires_grad_().type_as(sharded)
    message = raised(lambda: x.add_(varying), ValueError)
    assert "gradient state" in message
    assert "out-of-place" in message


def test_in_place_with_aliases(ranks2: RankPool) -> None:
    ranks2.run(aliased)


def made_without_gradients() -> None:
    """Views made under no_grad are neither kept nor used later on."""
    mesh = line()
    whole, other = numbers(4, 4), numbers(4, 4, seed=1)
    do = laid_out(other, mesh, S1)
    w, dw = nn.Parameter(whole.clone()), nn.Parameter(laid_out(whole, mesh, R))
    with torch.no_grad():
        dw @ do
        dy = dw * 2
        view = dy.t()
    (w @ other).sin().sum().backward()
    (dw @ do).sin().sum().backward()
    assert_equal(dw.grad, w.grad)
    # A view taken under no_grad of a tensor with a history.
    y, dy = w * 2, dw * 2
    with torch.no_grad():
        view = dy.t()
    w.grad = dw.grad = None
    ((y @ other) + y.detach()).sin().sum().backward()
    ((dy @ do) + view.t().redistribute([S1])).sin().sum().backward()
    assert_equal(dw.grad, w.grad)


def test_views_made_without_gradients(ranks2: RankPool) -> None:
    ranks2.run(made_without_gradients)


def metadata_operands() -> None:
    """An operand whose values do not matter makes the operation vary all the same (rule 2)."""
    mesh = line()
    whole, other = numbers(4, 4), numbers(4, 4, seed=1)
    part, columns = laid_out(other, mesh, S0), laid_out(other, mesh, S1)
    x, dx = whole.clone().requires_grad_(), laid_out(whole, mesh, R).requires_grad_()
    (x.type_as(other) @ other).sin().sum().backward()
    (dx.type_as(part) @ columns).sin().sum().backward()
    assert_equal(dx.grad, x.grad)
    row, drow = whole[0].clone().requires_grad_(), laid_out(whole[0], mesh, R).requires_grad_()
    for expand in (lambda t, like: t.expand_as(like), lambda t, like: torch.where(like > 0, t, 0.0)):
        row.grad = drow.grad = None
        expand(row, other).sin().sum().backward()
        expand(drow, part).sin().sum().backward()
        assert_equal(drow.grad, row.grad)


def test_metadata_operands(ranks2: RankPool) -> None:
    ranks2.run(metadata_operands)


def two_axes() -> None:
    """On a 2-D mesh an operation may vary on one axis only; the parameters' gradients follow."""
    mesh = square()
    whole, weight, bias = numbers(4, 4), numbers(4, 4, seed=1), numbers(4, seed=2)
    for x_layout, w_layout, b_layout in (
        ((S0, R), (R, R), (R, R)),
        ((S0, R), (R, S1), (R, S0)),
        ((R, R), (R, S1), (R, S0)),
        ((S0, S1), (R, S0), (R, R)),
        ((R, S1), (R, S0), (R, R)),
    ):
        x, w, b = (t.clone().requires_grad_() for t in (whole, weight, bias))
        dx = laid_out(whole, mesh, *x_layout).requires_grad_()
        dw = laid_out(weight, mesh, *w_layout).requires_grad_()
        db = laid_out(bias, mesh, *b_layout).requires_grad_()
        y, dy = torch.addmm(b, x, w), torch.addmm(db, dx, dw)
        y.sin().square().mean().backward()
        if any(p.is_partial() for p in dy.placements):
            dy = dy.redistribute([R if p.is_partial() else p for p in dy.placements])
        dy.sin().square().mean().backward()
        for ours, theirs in ((dx, x), (dw, w), (db, b)):
            assert_equal(ours.grad, theirs.grad, f"{x_layout} {w_layout}")
            assert ours.grad.placements == ours.placements


def test_two_axes(ranks4: RankPool) -> None:
    ranks4.run(two_axes)


def varying_redistributed() -> None:
    """A varying tensor (a local slice by hand) cut and summed: the plain derivative, nothing is sent."""
    mesh = line()
    whole = numbers(4, 4)
    for target in (S0, S1, P):
        leaf = whole.clone().requires_grad_()
        dleaf = laid_out(whole, mesh, R).requires_grad_()
        part = laid_out(torch.ones(4, 4, dtype=torch.float64), mesh, S0)
        varying = dleaf.type_as(part)
        with CommDebugMode() as comm:
            moved = varying.redistribute([target])
        assert comm.total == 0
        loss = moved.square().sum() if target is not P else (moved * 3).redistribute([R]).square().sum()
        (leaf.square().sum() if target is not P else (leaf * 3).square().sum()).backward()
        loss.backward()
        assert_equal(dleaf.grad, leaf.grad, f"{target}")


def test_varying_tensors_are_redistributed(ranks2: RankPool) -> None:
    ranks2.run(varying_redistributed)


def implicit() -> None:
    """Plain tensors inside implicit_replication, parameters among them."""
    mesh = line()
    whole, table = numbers(4, 4), numbers(4, seed=1)
    x, dx = whole.clone().requires_grad_(), laid_out(whole, mesh, S0).requires_grad_()
    p, dp = (nn.Parameter(numbers(4, seed=2)) for _ in range(2))
    ((x * table + p).sin().sum()).backward()
    with implicit_replication():
        loss = (dx * table + dp).sin().sum()
    loss.backward()
    assert_equal(dx.grad, x.grad)
    assert_equal(dp.grad, p.grad)
    assert isinstance(dp.grad, torch.Tensor)
    assert not isinstance(dp.grad, DTensor)


def test_implicit_replication(ranks2: RankPool) -> None:
    ranks2.run(implicit)


def ties() -> None:
    """Ties in a maximum over a split dim share the gradient by their global number."""
    mesh = line()
    whole = torch.tensor([[1.0, 5.0], [5.0, 5.0], [5.0, 2.0], [0.0, 5.0]], dtype=torch.float64)
    for reduce in (
        lambda t: t.amax(),
        lambda t: t.amax(0),
        lambda t: t.amin(0),
        lambda t: t.max(),
        lambda t: t.max(0)[0],
    ):
        for placement in (S0, S1, R):
            x, dx = whole.clone().requires_grad_(), laid_out(whole, mesh, placement).requires_grad_()
            y, dy = reduce(x), reduce(dx)
            (y * 2).sum().backward()
            (dy * 2).sum().backward()
            assert_equal(dx.grad, x.grad, f"{placement}")


def test_ties(ranks2: RankPool) -> None:
    ranks2.run(ties)
