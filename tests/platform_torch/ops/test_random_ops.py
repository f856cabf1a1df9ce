"""Random operations on real ranks: what the random path promises."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from hyper_layout import LayoutError, Partial, Replicate, Shard
from tests.support.on_ranks import distributed, mesh_of_all
from tests.support.ranks import RankPool

WHOLE = torch.ones(8, 8, dtype=torch.float64)


def pieces(x: torch.Tensor) -> list[torch.Tensor]:
    """The local tensors of all ranks."""
    gathered = [torch.empty_like(x._local) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(gathered, x._local.detach().contiguous())
    return gathered


def fillings() -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    """Everything that draws, by name."""
    return {
        "dropout": lambda x: F.dropout(x, 0.5),
        "alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, training=True),
        "attention": lambda x: F.scaled_dot_product_attention(*[x.unsqueeze(-1)] * 3, dropout_p=0.5).squeeze(
            -1
        ),
        "dropout of torch": lambda x: torch.dropout(x, 0.5, True),
        "bernoulli": lambda x: torch.bernoulli(x * 0.5),
        "bernoulli_": lambda x: x.bernoulli_(0.5),
        "normal_": lambda x: x.normal_(1.0, 2.0),
        "uniform_": lambda x: x.uniform_(-1, to=1),
        "random_": lambda x: x.random_(0, 1000),
        "exponential_": lambda x: x.exponential_(),
        "log_normal_": lambda x: x.log_normal_(),
        "cauchy_": lambda x: x.cauchy_(),
        "geometric_": lambda x: x.geometric_(0.1),
        "init.normal_": lambda x: torch.nn.init.normal_(x),
        "init.uniform_": lambda x: torch.nn.init.uniform_(x, 2.0, 3.0),
        "init.trunc_normal_": lambda x: torch.nn.init.trunc_normal_(x, std=2.0),
        "init.xavier_uniform_": lambda x: torch.nn.init.xavier_uniform_(x),
        "init.kaiming_normal_": lambda x: torch.nn.init.kaiming_normal_(x),
    }


def replicas_agree_and_shards_differ() -> None:
    mesh = mesh_of_all(2, 2)
    for name, fill in fillings().items():
        torch.manual_seed(3)
        x = fill(distributed(WHOLE, mesh, Replicate(), Shard(0)))
        assert tuple(x.placements) == (Replicate(), Shard(0)), name
        a, b, c, d = pieces(x)
        assert torch.equal(a, c) and torch.equal(b, d), f"{name}: replicas differ"
        assert not torch.equal(a, b), f"{name}: shards are equal"
        torch.manual_seed(3)
        again = fill(distributed(WHOLE, mesh, Replicate(), Shard(0)))
        assert torch.equal(again._local, x._local), f"{name}: it does not repeat"
        assert not torch.equal(fill(distributed(WHOLE, mesh, Replicate(), Shard(0)))._local, x._local), name


def dropout_is_recomputed() -> None:
    """The mask of the forward is that of the recomputation and of the gradient."""
    from torch.utils.checkpoint import checkpoint

    mesh = mesh_of_all(2, 2)
    torch.manual_seed(1)
    x = distributed(WHOLE, mesh, Shard(1), Shard(0), requires_grad=True)
    y = checkpoint(lambda t: F.dropout(t, 0.5) * 2, x, use_reentrant=False)
    y.sum().backward()
    # What came through was multiplied by 1 / (1 - p) and 2; so is its gradient.
    assert torch.equal(x.grad._local, y._local.detach())
    assert {0.0, 4.0} == set(y._local.detach().unique().tolist())


def identities() -> None:
    """p = 0 and training = False change nothing and draw nothing, whatever the layout."""
    mesh = mesh_of_all(2, 2)
    state = torch.get_rng_state()
    for placements in ((Shard(0), Shard(1)), (Partial(), Replicate()), (Partial("max"), Shard(0))):
        x = distributed(WHOLE, mesh, *placements)
        for y in (F.dropout(x, 0.0), F.dropout(x, 0.5, training=False), torch.nn.Dropout(0.3).eval()(x)):
            assert torch.equal(y._local, x._local) and y.placements == x.placements
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(LayoutError):
        F.dropout(distributed(WHOLE, mesh, Partial(), Replicate()), 0.5)


def dropout_in_place() -> None:
    mesh = mesh_of_all(2, 2)
    x = distributed(WHOLE, mesh, Shard(0), Replicate(), requires_grad=True)
    middle = x * 3
    y = F.dropout(middle, 0.5, inplace=True)
    assert y._local is middle._local
    assert set(y._local.detach().unique().tolist()) == {0.0, 6.0}
    y.sum().backward()
    assert torch.equal(x.grad._local, y._local.detach())


def a_generator_of_the_callers() -> None:
    mesh = mesh_of_all(2, 2)
    generator = torch.Generator().manual_seed(5)
    x = distributed(WHOLE, mesh, Replicate(), Replicate()).uniform_(generator=generator)
    assert torch.equal(x._local, torch.empty_like(WHOLE).uniform_(generator=torch.Generator().manual_seed(5)))
    with pytest.raises(LayoutError, match="generator"):
        distributed(WHOLE, mesh, Replicate(), Shard(0)).uniform_(generator=generator)


CASES = [
    replicas_agree_and_shards_differ,
    dropout_is_recomputed,
    identities,
    dropout_in_place,
    a_generator_of_the_callers,
]


@pytest.mark.parametrize("case", CASES)
def test_by_hand(case: Callable[[], None], ranks4: RankPool) -> None:
    ranks4.run(case)
