"""Design section 6: what enters a styled module, and what it costs."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import torch
from torch import nn

from hyper_dtensor import CommDebugMode
from hyper_parallel import (
    ColwiseParallel,
    DTensor,
    NoParallel,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    Replicate,
    RowwiseParallel,
    SequenceParallel,
    Shard,
    parallelize_module,
)
from tests.platform_torch.tensor_parallel.common import (
    close,
    line,
    on_ranks,
    piece,
    refused,
    same_gradients,
    values,
    world,
)

R = Replicate()
HIDDEN = 8


class Seen(nn.Linear):
    """Remembers how it was called."""

    def forward(self, x: Any, *others: Any, **named: Any) -> Any:  # type: ignore[override]
        self.others, self.named = others, named
        return super().forward(x)


class GatedNorm(nn.Module):
    """Two positional tensors, as Qwen3.5's ``RMSNormGated``; both are sharded alike by the caller."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(values(HIDDEN, seed=3))

    def forward(self, x: Any, gate: Any, scale: float = 1.0) -> Any:
        self.gate = gate
        return self.weight * x * scale


class Projections(nn.Module):
    """q, k and v of one input."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(HIDDEN, HIDDEN) for _ in range(3))

    def forward(self, x: Any) -> Any:
        return self.q(x) + self.k(x) * self.v(x)


class KeywordAttention(nn.Module):
    """Called as Hugging Face does: keywords only, with values of all kinds, and a tuple as the result."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.o_proj = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, HIDDEN)

    def forward(
        self,
        hidden_states: Any = None,
        attention_mask: Any = None,
        position_embeddings: Any = None,
        use_cache: bool = False,
        **kwargs: Any,
    ) -> tuple[Any, None]:
        cos, sin = position_embeddings
        assert type(cos) is type(sin) is torch.Tensor
        assert attention_mask is None
        assert use_cache is False
        assert tuple(hidden_states.shape) == (2, 8, HIDDEN), "the whole sequence"
        return self.o_proj(torch.relu(self.q_proj(hidden_states))), None


class Caller(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.self_attn = KeywordAttention()

    def forward(self, x: Any) -> Any:
        table = torch.zeros(8)
        attended, weights = self.self_attn(
            hidden_states=x,
            attention_mask=None,
            position_embeddings=(table, table),
            use_cache=False,
            cache=None,
        )
        assert weights is None
        return attended


@on_ranks(2)
def test_only_the_first_positional_input_is_prepared() -> None:
    """The others and all keywords are the very objects that were given."""
    x, other, named = values(2, 8, HIDDEN), values(3), values(4)
    for style in (
        ColwiseParallel(),
        RowwiseParallel(input_layouts=R),
        NoParallel(),
        SequenceParallel(),
    ):
        module = parallelize_module(Seen(HIDDEN, HIDDEN).double(), line(), style)
        module(x, other, None, mask=named, flag=True)
        assert module.others[0] is other
        assert module.others[1] is None
        assert module.named["mask"] is named
        assert module.named["flag"] is True
    norm = parallelize_module(GatedNorm(), line(), SequenceParallel())
    norm(x, other, scale=2.0)
    assert norm.gate is other


@on_ranks(2, 4)
def test_one_style_object_for_embeddings_and_linear_layers() -> None:
    """Its hooks close over the layouts of their own module."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.x_embedding = nn.Embedding(16, HIDDEN)
            self.x_linear = nn.Linear(HIDDEN, HIDDEN)
            self.x_other = nn.Embedding(8, HIDDEN)

        def forward(self, ids: Any) -> Any:
            return self.x_embedding(ids), self.x_linear, self.x_other(ids)

    torch.manual_seed(0)
    single = Model().double()
    ids, x = torch.arange(8).reshape(2, 4), values(2, 4, HIDDEN)
    for style, in_dim, out_dim in ((RowwiseParallel(), -1, None), (ColwiseParallel(), None, -1)):
        parallel = parallelize_module(copy.deepcopy(single), line(), {"x_*": style})
        for name in ("x_embedding", "x_other"):
            close(getattr(parallel, name)(ids), piece(getattr(single, name)(ids).detach(), out_dim))
        close(parallel.x_linear(piece(x, in_dim)), piece(single.x_linear(x).detach(), out_dim))


def split_projections() -> tuple[Projections, Projections]:
    torch.manual_seed(0)
    single = Projections().double()
    return single, parallelize_module(copy.deepcopy(single), line(), {"[qkv]": ColwiseParallel()})


@on_ranks(2, 4)
def test_q_k_and_v_share_one_backward_reduction() -> None:
    """All three wrap the same plain input; their gradients are added locally and reduced once."""
    single, parallel = split_projections()
    leaves = [values(2, 4, HIDDEN).requires_grad_() for _ in range(2)]
    expected = single(leaves[0] * 2)
    sensitivity = values(*expected.shape, seed=9)
    expected.backward(sensitivity)
    with CommDebugMode() as comm:
        output = parallel(leaves[1] * 2)
        assert comm.total == 0
        output.backward(piece(sensitivity, -1))
    assert comm.counts == {"all_reduce": 1}
    assert leaves[0].grad is not None
    close(leaves[1].grad, leaves[0].grad)
    same_gradients(single, parallel)


@on_ranks(2, 4)
def test_q_k_and_v_share_one_backward_reduction_of_a_distributed_input() -> None:
    """The same where the input is a DTensor, gathered once: one gather forward, one reduce-scatter backward."""
    single, _ = split_projections()
    model = nn.Sequential(copy.deepcopy(single))
    entrance = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(R,))
    parallelize_module(model, line(), {"0": entrance, "0.[qkv]": ColwiseParallel()})
    leaves = [values(2, 4, HIDDEN).requires_grad_() for _ in range(2)]
    expected = single(leaves[0])
    sensitivity = values(*expected.shape, seed=9)
    expected.backward(sensitivity)
    mine = piece(leaves[1].detach(), 1).clone().requires_grad_()
    with CommDebugMode() as comm:
        model(mine).backward(piece(sensitivity, -1))
    assert comm.forward_counts == {"all_gather": 1}
    assert comm.backward_counts == {"reduce_scatter": 1}
    assert leaves[0].grad is not None
    close(mine.grad, piece(leaves[0].grad, 1))


@on_ranks(2)
def test_an_input_is_freed_with_its_last_user() -> None:
    """The shared view must not keep its source alive in a cycle that only the collector finds."""
    _, parallel = split_projections()
    leaf = values(2, 4, HIDDEN).requires_grad_()
    gc.collect()
    gc.disable()
    try:
        for backward in (True, False):
            x = leaf * 2
            alive = weakref.ref(x)
            output = parallel(x)
            del x
            if backward:
                output.sum().backward()
            del output
            assert alive() is None
    finally:
        gc.enable()


@on_ranks(2)
def test_a_shared_view_does_not_outlive_a_write() -> None:
    """The view is keyed by the version of its source: what was written in place is seen."""
    single, parallel = split_projections()
    outputs = []
    for model in (single, parallel):
        leaf = values(2, 4, HIDDEN).requires_grad_()
        x = leaf * 2
        first = model.q(x)
        first_sum = first.sum()
        x = x.clone()
        x.mul_(3.0)
        second = model.k(x)
        (first_sum + second.sum()).backward()
        outputs.append((leaf.grad, second))
    close(outputs[1][0], outputs[0][0])
    close(outputs[1][1], piece(outputs[0][1].detach(), -1))
    for model, kind in ((single, 0), (parallel, 1)):
        x = values(2, 4, HIDDEN).requires_grad_() * 2
        model.q(x)
        with torch.no_grad():
            x.mul_(3.0)
        outputs[kind] = model.q(x)
    close(outputs[1], piece(outputs[0].detach(), -1))


@on_ranks(2, 4)
def test_a_call_with_keywords_only() -> None:
    """``input_kwarg_layouts`` prepares the named tensor; everything else passes through untouched."""
    torch.manual_seed(0)
    single = Caller().double()
    named = {"hidden_states": Shard(1)}, {"hidden_states": R}
    plan: dict[str, Any] = {
        "self_attn": PrepareModuleInput(input_kwarg_layouts=named[0], desired_input_kwarg_layouts=named[1]),
        "self_attn.q_proj": ColwiseParallel(),
        "self_attn.o_proj": RowwiseParallel(output_layouts=Shard(1)),
    }
    parallel = parallelize_module(copy.deepcopy(single), line(), plan)
    x = values(2, 8, HIDDEN).requires_grad_()
    mine = piece(x.detach(), 1).clone().requires_grad_()
    expected, output = single(x), parallel(mine)
    close(output, piece(expected.detach(), 1))
    sensitivity = values(*expected.shape, seed=9)
    expected.backward(sensitivity)
    output.backward(piece(sensitivity, 1))
    assert x.grad is not None
    close(mine.grad, piece(x.grad, 1))
    same_gradients(single, parallel)


@on_ranks(2)
def test_positional_inputs_stay_alone_beside_keyword_layouts() -> None:
    style = PrepareModuleInput(
        input_kwarg_layouts={"gate": R}, desired_input_kwarg_layouts={"gate": Shard(1)}
    )
    module = parallelize_module(GatedNorm(), line(), style)
    x, gate = values(2, 4, HIDDEN), values(2, 4, HIDDEN, seed=1)
    close(module(x, gate=gate), module.weight * x)
    assert isinstance(module.gate, DTensor)
    assert module.gate.placements == (Shard(1),)


@on_ranks(2, 4)
def test_slots_without_a_layout_pass_through() -> None:
    """``None`` slots of inputs and of several outputs are the very objects."""

    class Three(nn.Module):
        def forward(self, x: Any, y: Any, z: Any) -> Any:
            self.inputs = x, y, z
            return x * 2, y, z

    plain, size = values(3), world()
    style = PrepareModuleInputOutput(
        input_layouts=(Shard(0), None, R),
        desired_input_layouts=(R, None, None),
        output_layouts=(R, None, R),
        desired_output_layouts=(Shard(1), None, Shard(0)),
        use_local_output=False,
    )
    module = parallelize_module(Three(), line(), style)
    x, z = values(2, 4), values(8)
    first, second, third = module(x, plain, z)
    assert module.inputs[0].shape == (2 * size, 4)
    assert module.inputs[1] is plain
    assert isinstance(module.inputs[2], DTensor)
    assert second is plain
    assert first.placements == (Shard(1),)
    close(first, torch.cat([x * 2] * size))
    assert third.placements == (Shard(0),)
    close(third, z)
    local = PrepareModuleOutput(output_layouts=(R, None, R), desired_output_layouts=(R, None, Shard(0)))
    first, second, third = parallelize_module(Three(), line(), local)(x, plain, z)
    close(first, x * 2)
    assert second is plain
    close(third, piece(z, 0))


@on_ranks(2)
def test_use_local_input_gives_the_forward_plain_tensors() -> None:
    class Plain(nn.Module):
        def forward(self, x: Any) -> Any:
            assert type(x) is torch.Tensor
            return x * 2

    style = PrepareModuleInputOutput(
        input_layouts=Shard(0),
        desired_input_layouts=R,
        use_local_input=True,
        output_layouts=R,
        desired_output_layouts=Shard(0),
    )
    module = parallelize_module(Plain(), line(), style)
    x = values(2, 4).requires_grad_()
    output = module(x)
    close(output, x.detach() * 2)
    output.backward(values(2, 4, seed=2))
    close(x.grad, 2 * values(2, 4, seed=2))


@on_ranks(4)
def test_an_input_on_another_mesh() -> None:
    from hyper_parallel import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    module = parallelize_module(nn.Linear(HIDDEN, HIDDEN).double(), mesh["tp"], ColwiseParallel())
    x = DTensor.from_local(values(2, HIDDEN), mesh, [R, R])
    refused(ValueError, "the module was parallelized on", lambda: module(x))
