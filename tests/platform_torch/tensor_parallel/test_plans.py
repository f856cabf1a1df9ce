"""Design section 6 and RFC 8.2 D1-D5: plans, and what is reported when one is applied."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hyper_layout import current_mesh
from hyper_parallel import (
    ColwiseParallel,
    DTensor,
    NoParallel,
    PrepareModuleInput,
    Replicate,
    RowwiseParallel,
    SequenceParallel,
    Shard,
    init_device_mesh,
    loss_parallel,
    parallelize_module,
)
from tests.platform_torch.tensor_parallel.common import (
    check,
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
HIDDEN, FEATURES, HEAD, VOCABULARY = 8, 12, 2, 16


class Attention(nn.Module):
    """Grouped-query attention with norms of q and k, as far as a plan sees it."""

    def __init__(self, heads: int = 4, kv_heads: int = 4) -> None:
        super().__init__()
        self.head_dim = HEAD
        self.q_proj = nn.Linear(HIDDEN, heads * HEAD)
        self.k_proj = nn.Linear(HIDDEN, kv_heads * HEAD)
        self.v_proj = nn.Linear(HIDDEN, kv_heads * HEAD)
        self.q_norm, self.k_norm = nn.RMSNorm(HEAD, eps=1e-6), nn.RMSNorm(HEAD, eps=1e-6)
        self.o_proj = nn.Linear(heads * HEAD, HIDDEN)

    def forward(self, x: Any) -> Any:
        shape = (*x.shape[:-1], -1, self.head_dim)
        q, k, v = (projection(x).view(shape) for projection in (self.q_proj, self.k_proj, self.v_proj))
        q, k, v = (t.transpose(1, 2) for t in (self.q_norm(q), self.k_norm(k), v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(attended.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.self_attn = Attention()

    def forward(self, x: Any) -> Any:
        return x + self.self_attn(self.norm(x))


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))
        self.head = nn.Linear(HIDDEN, VOCABULARY)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def randomised(module: nn.Module) -> nn.Module:
    """In float64, with norms that do not start at one."""
    torch.manual_seed(1)
    module = module.double()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    return module


def attention_plan(prefix: str = "") -> dict[str, Any]:
    heads = SequenceParallel(sequence_dim=2, use_local_output=True)
    return {
        f"{prefix}[qkv]_proj": ColwiseParallel(),
        f"{prefix}[qk]_norm": heads,
        f"{prefix}o_proj": RowwiseParallel(),
    }


@on_ranks(2, 4)
def test_d1_globs_reach_all_layers() -> None:
    model = randomised(Stack())
    parallel = parallelize_module(copy.deepcopy(model), line(), attention_plan("layers.*.self_attn."))
    for layer in parallel.layers:
        assert layer.self_attn.q_proj.weight.placements == (Shard(0),)
        assert layer.self_attn.o_proj.weight.placements == (Shard(1),)
        assert layer.self_attn.q_norm.weight.placements == (R,)
        assert not isinstance(layer.norm.weight, DTensor)
    check(model, attention_plan("layers.*.self_attn."), values(2, 4, HIDDEN))
    only = parallelize_module(randomised(Stack()), line(), {"layers.[02].self_attn.[ov]_proj": NoParallel()})
    assert [isinstance(layer.self_attn.o_proj.weight, DTensor) for layer in only.layers] == [
        True,
        False,
        True,
    ]


@on_ranks(2, 4)
def test_d2_one_style_for_the_root() -> None:
    check(nn.Linear(HIDDEN, FEATURES).double(), ColwiseParallel(), values(3, HIDDEN), out_dim=-1)
    style = ColwiseParallel()
    module = nn.Linear(HIDDEN, FEATURES)
    assert parallelize_module(module, line(), style, src_data_rank=None) is module
    assert style.src_data_rank is None


@on_ranks(2, 4)
def test_d3_the_smallest_qwen_block() -> None:
    """Sequence shards in and out; the attention sees the whole sequence and its own heads."""
    plan: dict[str, Any] = {
        "norm": SequenceParallel(),
        "self_attn": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(R,)),
        **attention_plan("self_attn."),
        "self_attn.o_proj": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    }

    class Block(Layer):
        def forward(self, x: Any) -> Any:
            return self.self_attn(self.norm(x))

    output = check(randomised(Block()), plan, values(2, 8, HIDDEN), in_dim=1)
    assert isinstance(output, DTensor)
    assert output.placements == (Shard(1),)


@on_ranks(2, 4)
@pytest.mark.parametrize("context", [False, True])
def test_d4_vocabulary_parallel_head_and_loss(context: bool) -> None:
    """The logits stay split over the vocabulary; the loss needs no switch, and takes the context for one."""
    torch.manual_seed(0)
    head = nn.Linear(HIDDEN, VOCABULARY).double()
    style = ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False)
    parallel = parallelize_module(copy.deepcopy(head), line(), style)
    x = values(2, 8, HIDDEN).requires_grad_()
    mine = piece(x.detach(), 1).clone().requires_grad_()
    targets = torch.randint(0, VOCABULARY, (16,), generator=torch.Generator().manual_seed(3))
    targets[::5] = -100
    logits = parallel(mine)
    assert isinstance(logits, DTensor)
    assert logits.placements == (Shard(2),)
    assert logits.to_local().shape == (2, 8, VOCABULARY // world())
    expected = F.cross_entropy(head(x).view(-1, VOCABULARY), targets)
    if context:
        with loss_parallel():
            loss = F.cross_entropy(logits.view(-1, VOCABULARY), targets)
            loss.backward()
    else:
        loss = F.cross_entropy(logits.view(-1, VOCABULARY), targets)
        loss.backward()
    expected.backward()
    close(loss, expected)
    assert x.grad is not None
    close(mine.grad, piece(x.grad, 1))
    same_gradients(head, parallel)


@on_ranks(2, 4)
def test_d5_norms_without_sequence_parallelism() -> None:
    """``NoParallel`` in place of ``SequenceParallel``: whole activations, whole norms."""
    plan: dict[str, Any] = {
        "norm": NoParallel(use_local_output=False),
        "self_attn": PrepareModuleInput(input_layouts=(R,), desired_input_layouts=(R,)),
        **attention_plan("self_attn."),
    }
    check(randomised(Layer()), plan, values(2, 8, HIDDEN))


@on_ranks(2, 4)
def test_the_current_mesh() -> None:
    module = nn.Linear(HIDDEN, FEATURES)
    mesh = init_device_mesh("cpu", (world(),), mesh_dim_names=("tp",))
    with mesh:
        parallelize_module(module, parallelize_plan=ColwiseParallel())
    assert current_mesh() is None
    assert module.weight.device_mesh is mesh


@on_ranks(4)
def test_one_axis_of_two() -> None:
    """Weights are cut over ``tp`` and equal over ``dp``; ranks of one ``dp`` group see their own batch."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    single = nn.Linear(HIDDEN, FEATURES).double()
    parallel = parallelize_module(copy.deepcopy(single), mesh["tp"], ColwiseParallel())
    assert parallel.weight.device_mesh.mesh_dim_names == ("tp",)
    x = values(4, HIDDEN)
    mine = x.chunk(2)[mesh.get_local_rank("dp")]
    close(parallel(mine), single(mine).detach().chunk(2, -1)[mesh.get_local_rank("tp")])


@on_ranks(2)
def test_names_that_match_nothing_have_near_ones() -> None:
    model = Stack()
    with pytest.warns(
        UserWarning, match="no module matches 'layers.1.self_attn.qproj'.*did you mean '.*q_proj'"
    ):
        parallelize_module(model, line(), {"layers.1.self_attn.qproj": ColwiseParallel()})
    with pytest.warns(UserWarning, match="no module matches 'tail', it is skipped$"):
        parallelize_module(model, line(), {"tail": ColwiseParallel(), "head": NoParallel()})
    assert isinstance(model.head.weight, DTensor), "the rest of the plan is applied"


@on_ranks(2)
def test_heads_that_do_not_divide() -> None:
    """Three heads on two ranks: said when the plan is applied, with the module's full name."""
    model = nn.Sequential(Attention(heads=3, kv_heads=3))
    refused(
        ValueError,
        r"^0\.q_proj: its 3 heads of 2 features do not divide by the 2 ranks",
        lambda: parallelize_module(model, line(), attention_plan("0.")),
    )
    assert not any(isinstance(parameter, DTensor) for parameter in model.parameters())
    grouped = nn.Sequential(Attention(heads=4, kv_heads=1))
    refused(
        ValueError,
        r"^0\.k_proj: its 1 heads .*NoParallel\(local_grad_placements=Partial\(\)\)",
        lambda: parallelize_module(grouped, line(), attention_plan("0.")),
    )
    refused(
        ValueError,
        r"^0\.o_proj: its 3 heads",
        lambda: parallelize_module(model, line(), {"0.o_proj": RowwiseParallel()}),
    )


@on_ranks(2)
def test_features_that_do_not_divide() -> None:
    for style, module, dim in (
        (ColwiseParallel(), nn.Linear(HIDDEN, 129), 0),
        (RowwiseParallel(), nn.Linear(129, HIDDEN), 1),
        (ColwiseParallel(), nn.Embedding(VOCABULARY, 129), 1),
        (RowwiseParallel(), nn.Embedding(129, HIDDEN), 0),
    ):
        model = nn.ModuleDict({"mlp": nn.ModuleDict({"up": module})})
        refused(
            ValueError,
            rf"^mlp\.up: parameter 'weight' of {type(module).__name__}: dim {dim} of size 129 .*'tp' \(size 2\).*"
            "128 and 130",
            lambda model=model, style=style: parallelize_module(model, line(), {"mlp.up": style}),
        )


@on_ranks(2)
def test_parameters_left_plain_beside_split_siblings() -> None:
    """One warning for the whole plan, with what to add."""
    plan: dict[str, Any] = {
        f"layers.*.self_attn.{name}": style
        for name, style in (("[qkv]_proj", ColwiseParallel()), ("o_proj", RowwiseParallel()))
    }
    with pytest.warns(UserWarning) as caught:
        parallelize_module(Stack(), line(), plan)
    (warning,) = caught
    message = str(warning.message)
    assert "layers.0.self_attn.q_norm.weight, layers.0.self_attn.k_norm.weight, layers.1" in message
    assert "SequenceParallel(sequence_dim=2, use_local_output=True)" in message
    assert "layers.0.norm" not in message, "its siblings are whole: the norm sees what every rank sees"
    assert warning.filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallelize_module(
            Stack(), line(), {**attention_plan("layers.*.self_attn."), "head": ColwiseParallel()}
        )


@on_ranks(2)
def test_parameters_left_plain_would_be_wrong() -> None:
    """What the warning is about: right outputs, and silently another gradient of q_norm and k_norm."""
    single = randomised(nn.Sequential(Attention()))
    plan = attention_plan("0.")
    del plan["0.[qk]_norm"]
    with pytest.warns(UserWarning, match="left these parameters plain"):
        parallel = parallelize_module(copy.deepcopy(single), line(), plan)
    x = values(2, 4, HIDDEN)
    expected, found = single(x), parallel(x)
    close(found, expected)
    expected.sum().backward()
    found.sum().backward()
    error = (parallel[0].q_norm.weight.grad - single[0].q_norm.weight.grad).norm()
    assert error > 0.1 * single[0].q_norm.weight.grad.norm()


@on_ranks(2)
def test_a_module_held_twice_is_styled_once() -> None:
    layer = nn.Linear(HIDDEN, HIDDEN).double()
    model = nn.Sequential(layer, nn.ReLU(), layer)
    check(model, {"[02]": ColwiseParallel(output_layouts=R)}, values(3, HIDDEN))
