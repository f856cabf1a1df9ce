"""Modules for these tests. They compute on local tensors by hand: the package is tested without operators."""

from __future__ import annotations

from typing import Any

from hyper_dtensor import DTensor
from hyper_layout import Partial, Replicate, Shard
from tests.support import simulated as sim
from tests.support.simulated import ops

__all__ = ["Attention", "Embedding", "Linear", "Mlp", "Norm", "Recorder", "Tied", "model"]


class Linear(sim.SimLinear):
    """The rule of a linear layer on locals, plain where the input is plain."""

    def forward(self, x: Any, *others: Any, **named: Any) -> Any:
        """``[..., in_features] -> [..., out_features]``."""
        self.input, self.others, self.named = x, others, named
        if not isinstance(x, DTensor):
            return ops.linear(x, self.weight, self.bias)
        mesh, (cut,) = x.device_mesh, self.weight.placements
        weight = self.weight.to_local()
        if cut == Shard(1):
            return DTensor.from_local(ops.linear(x.to_local(), weight), mesh, [Partial()])
        if cut == Replicate():
            return DTensor.from_local(ops.linear(x.to_local(), weight), mesh, x.placements)
        local = ops.linear(x.to_local(grad_placements=[Partial()]), weight, self.bias.to_local())
        return DTensor.from_local(local, mesh, [Shard(x.ndim - 1)])


class Embedding(sim.SimEmbedding):
    """The rule of an embedding whose rows or columns are split."""

    def forward(self, ids: Any) -> Any:
        """``[...] -> [..., embedding_dim]``."""
        self.input = ids
        weight = self.weight.to_local()
        if self.weight.placements == (Shard(1),):
            local = ops.embedding(ids.to_local(), weight)
            return DTensor.from_local(local, ids.device_mesh, [Shard(ids.ndim)])
        rows = weight.shape[0]
        first = ids.device_mesh.get_local_rank() * rows
        index = ids.to_local().array - first
        mine = (index >= 0) & (index < rows)
        picked = ops.embedding(sim.tensor(index * mine), weight)
        return picked * sim.tensor(mine[..., None].astype(float))  # plain: the style says what it is


class Norm(sim.SimModule):
    """Anything with a weight that is neither a linear layer nor an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = sim.SimParameter([1.0, 2.0, 3.0, 4.0])

    def forward(self, x: Any) -> Any:
        """The input itself."""
        self.input = x
        return x


class Recorder(sim.SimModule):
    """Remembers its arguments and returns what it was told to."""

    def __init__(self, answer: Any = None) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The answer, or the first argument."""
        self.args, self.kwargs = args, kwargs
        return args[0] if self.answer is None else self.answer


class Mlp(sim.SimModule):
    """Two linear layers."""

    def __init__(self, hidden: int = 4, features: int = 8) -> None:
        super().__init__()
        self.up, self.down = Linear(hidden, features, seed=1), Linear(features, hidden, bias=False, seed=2)

    def forward(self, x: Any) -> Any:
        """``[..., hidden] -> [..., hidden]``."""
        return self.down(self.up(x))


class Attention(sim.SimModule):
    """Projections and a norm, as a plan sees them."""

    def __init__(self, heads: int = 4, head_dim: int | None = 2, num_heads: int | None = None) -> None:
        super().__init__()
        if head_dim is not None:
            self.head_dim = head_dim
        if num_heads is not None:
            self.num_heads = num_heads
        features = heads * (head_dim or 2)
        self.q_proj, self.o_proj = Linear(4, features), Linear(features, 4)
        self.q_norm = Norm()


class Tied(sim.SimModule):
    """An embedding and a head with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = Embedding(8, 4), Linear(4, 8, bias=False)
        self.head.weight = self.embedding.weight


class Layer(sim.SimModule):
    """A norm, an attention and an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attn, self.mlp = Norm(), Attention(), Mlp()


def model(layers: int = 3) -> sim.SimModule:
    """Numbered layers and a head."""
    root = sim.SimModule()
    root.layers = sim.SimSequential(*(Layer() for _ in range(layers)))
    root.head = Linear(4, 8)
    return root
