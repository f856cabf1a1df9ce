"""What the collectives are handed: lazy conjugates and signs, tangents, and transforms of torch.func."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd import forward_ad
from torch.nn.functional import softmax

from hyper_dtensor import DTensor, distribute_tensor, get_platform
from tests.platform_torch.helpers import S0, S1, P, R, line, numbers, raised
from tests.support.ranks import RankPool


def lazy_numbers() -> None:
    """A conjugate or a negative that is only marked as such on the tensor is sent as what it is."""
    mesh = line()
    whole = torch.complex(numbers(4, 6), numbers(4, 6, seed=1))
    rank = mesh.get_local_rank("tp")
    mine = slice(2 * rank, 2 * rank + 2)
    for lazy, expected in (
        (whole.conj(), whole.conj().resolve_conj()),
        (torch._neg_view(whole.real.contiguous()), -whole.real),
    ):
        assert lazy.is_conj() or lazy.is_neg()
        split = DTensor.from_local(lazy[mine], mesh, [S0])
        assert torch.allclose(split.full_tensor(), expected), "all_gather"
        assert torch.allclose(split.redistribute([S1]).full_tensor(), expected), "all_to_all"
        summands = DTensor.from_local(lazy, mesh, [P])
        assert torch.allclose(summands.full_tensor(), expected * 2), "all_reduce"
        assert torch.allclose(summands.redistribute([S1]).full_tensor(), expected * 2), "reduce_scatter"


def test_lazy_conjugates_and_signs(ranks2: RankPool) -> None:
    ranks2.run(lazy_numbers)


def gathered_in_every_way() -> None:
    """One buffer for all pieces: every dim, dtypes that travel as bytes, nothing at all."""
    mesh = line()
    for dtype in (torch.float64, torch.bfloat16, torch.int16, torch.bool, torch.complex64):
        for shape in ((4, 6, 2), (4, 0, 2), (0, 2, 4), (2,)):
            whole = (numbers(*shape) * 3).to(dtype)
            for dim in range(len(shape)):
                for source in (whole, whole.mT.contiguous().mT if whole.ndim > 1 else whole):
                    layout = [S0, S1, type(S0)(2)][dim]
                    local = source.chunk(2, dim)[mesh.get_local_rank("tp")]
                    if local.shape[dim] * 2 != shape[dim]:
                        local = local[(slice(None),) * dim + (slice(0, 0),)]
                    got = DTensor.from_local(local, mesh, [layout]).full_tensor()
                    assert got.is_contiguous()
                    assert torch.equal(got, whole), (dtype, shape, dim)


def test_gathering_into_one_buffer(ranks2: RankPool) -> None:
    ranks2.run(gathered_in_every_way)


def counted_from_the_right() -> None:
    """A dim may be negative, also of what travels as bytes, which have a dim more."""
    group = get_platform().group(tuple(range(dist.get_world_size())))
    verbs = get_platform()
    for dtype in (torch.float64, torch.int16, torch.complex64):
        x = (numbers(4, 2, 6, seed=dist.get_rank()) * 3).to(dtype)
        for dim in range(3):
            for call in (
                lambda x, d: verbs.all_gather(x, d, group),
                lambda x, d: verbs.reduce_scatter(x, d, "sum", group),
                lambda x, d: verbs.all_to_all(x, d, d - 1, group),
                lambda x, d: verbs.all_to_all(x, 0, d, group),
                lambda x, d: verbs.scatter(x, d, 1, group),
            ):
                assert torch.equal(call(x, dim - 3), call(x, dim)), (dtype, dim)


def test_dims_are_counted_from_the_right(ranks2: RankPool) -> None:
    ranks2.run(counted_from_the_right)


def written_in_place() -> None:
    """What a collective returned may be written in place, also where it is no tensor of its own to the backend."""
    mesh = line()
    for whole in (numbers(4, 6), torch.complex(numbers(4, 6), numbers(4, 6, seed=1))):
        for before, after in ((S0, R), (S1, R), (S0, S1), (P, R), (P, S0), (P, S1)):
            leaf = whole.clone().requires_grad_()
            (leaf * 3).mul_(2).abs().sum().backward()
            x = distribute_tensor(whole, mesh, [before], src_data_rank=None).requires_grad_()
            moved = (x * 3).redistribute([after])
            moved.mul_(2).abs().sum().backward()
            assert torch.allclose(moved.detach().full_tensor(), whole * 6), (before, after)
            assert torch.allclose(x.grad.full_tensor(), leaf.grad), (before, after)
            assert torch.allclose(x.detach().full_tensor(), whole), (before, after)


def test_results_are_written_in_place(ranks2: RankPool) -> None:
    ranks2.run(written_in_place)


def with_tangents() -> list[str]:
    """Forward mode: local functions carry tangents on, collectives refuse to lose them."""
    mesh = line()
    x, tangent = numbers(4, 2), numbers(4, 2, seed=1)

    def derivative(f: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.func's own, at its first use
            return torch.func.jvp(f, (x,), (tangent,))[1]

    def laid_out(t: torch.Tensor, placement: Any) -> DTensor:
        return DTensor.from_local(t, mesh, [placement])

    own = derivative(lambda t: (laid_out(t, S0).exp() * 2).to_local())
    assert torch.allclose(own, tangent * x.exp() * 2)
    messages = [
        raised(lambda: derivative(lambda t: laid_out(t, P).full_tensor())),
        raised(lambda: derivative(lambda t: laid_out(t, S0).full_tensor())),
        raised(lambda: derivative(lambda t: laid_out(t, S0).redistribute([S1]).to_local())),
        raised(lambda: derivative(lambda t: laid_out(t, P).redistribute([S0]).to_local())),
        raised(lambda: derivative(lambda t: softmax(laid_out(t, S0), 0).to_local())),
        raised(lambda: derivative(lambda t: torch.linalg.vector_norm(laid_out(t, S0), torch.inf).to_local())),
    ]
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, tangent)
        messages.append(raised(lambda: laid_out(dual, P).redistribute([R])))
        laid_out(x, P).redistribute([R])  # has none
    return messages


def test_tangents_are_not_lost_in_a_collective(ranks2: RankPool) -> None:
    for messages in ranks2.run(with_tangents):
        for message in messages:
            assert "forward-mode tangent" in message and "torch.autograd.grad" in message


def transformed() -> list[str]:
    mesh = line()
    x = numbers(4, 2)

    def total(t: torch.Tensor) -> torch.Tensor:
        return DTensor.from_local(t, mesh, [S0]).square().sum().redistribute([R]).to_local()

    return [
        raised(lambda: torch.func.grad(total)(x)),
        raised(lambda: torch.func.vjp(total, x)),
        raised(lambda: torch.func.grad(lambda t: torch.func.grad(total)(t).sum())(x)),
    ]


def test_transforms_of_torch_func_are_refused(ranks2: RankPool) -> None:
    for messages in ranks2.run(transformed):
        assert all("torch.func (grad, vjp, vmap)" in message for message in messages)
