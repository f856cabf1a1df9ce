"""What a styled module gets and returns, and what that costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hyper_dtensor import CommDebugMode, DTensor
from hyper_layout import Partial, Shard
from hyper_tensor_parallel import (
    ColwiseParallel,
    NoParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from tests.dtensor.helpers import S0, S1, P, R, equal, line, on_ranks, part, square, values
from tests.support import simulated as sim
from tests.support.simulated import ops
from tests.tensor_parallel.modules import Embedding, Linear, Mlp, Norm, Recorder


def leaf(value: Any) -> Any:
    return sim.tensor(value, requires_grad=True)


def mine(value: Any, dim: int) -> Any:
    """This rank's shard of an array."""
    return np.split(value, sim.world_size(), dim)[sim.rank()]


# -- column and row -------------------------------------------------------------------------------------------
@on_ranks(2, 4)
def test_an_mlp_and_its_gradients() -> None:
    """Megatron's pair: one all_reduce forward, one backward, single-device values and gradients."""
    single, parallel = Mlp(), Mlp()
    parallelize_module(parallel, line(), {"up": ColwiseParallel(), "down": RowwiseParallel()})
    x, sensitivity = values(3, 4), values(3, 4, seed=1)
    inputs = [leaf(x), leaf(x)]
    expected = single(inputs[0])
    expected.backward(sim.tensor(sensitivity))
    with CommDebugMode() as comm:
        output = parallel(inputs[1])
        assert isinstance(output, sim.SimTensor)
        output.backward(sim.tensor(sensitivity))
    assert comm.forward_counts == comm.backward_counts == {"all_reduce": 1}
    equal(output.detach(), expected.detach())
    equal(inputs[1].grad, inputs[0].grad)
    for name, parameter in parallel.named_parameters():
        equal(parameter.grad, dict(single.named_parameters())[name].grad)


@on_ranks(2, 4)
def test_an_mlp_between_sequence_shards() -> None:
    """Gathered before, scattered behind; the row-wise output stays a DTensor."""
    single, parallel = Mlp(), Mlp()
    plan: dict[str, ParallelStyle] = {
        "up": ColwiseParallel(input_layouts=S0),
        "down": RowwiseParallel(output_layouts=S0, use_local_output=False),
    }
    parallelize_module(parallel, line(), plan)
    x = values(4, 4)
    with CommDebugMode() as comm:
        output = parallel(leaf(mine(x, 0)))
    assert comm.counts == {"all_gather": 1, "reduce_scatter": 1}
    assert isinstance(output, DTensor)
    assert output.placements == (S0,)
    equal(output, single(sim.tensor(x)))


@on_ranks(2)
def test_embeddings_and_linear_layers_under_one_style_object() -> None:
    """The row-wise input of an embedding is whole, that of a linear layer is split; nothing is kept on the style."""
    style = RowwiseParallel()
    embedding, linear = Embedding(8, 4, seed=3), Linear(4, 6, bias=False)
    table, weight = embedding.weight.array.copy(), linear.weight.array.copy()
    for module in (embedding, linear, Embedding(8, 4)):
        parallelize_module(module, line(), style)
    ids = np.arange(6).reshape(2, 3)
    equal(embedding(sim.tensor(ids)).detach(), table[ids])
    assert embedding.input.placements == (R,)
    x = values(3, 4)
    equal(linear(sim.tensor(mine(x, 1))).detach(), x @ weight.T)
    assert linear.input.placements == (Shard(1),)
    columns = parallelize_module(Embedding(8, 4, seed=3), line(), ColwiseParallel())
    equal(columns(sim.tensor(ids)).detach(), mine(table[ids], -1))


@on_ranks(2)
def test_only_the_first_positional_input_is_prepared() -> None:
    module = parallelize_module(Linear(4, 4), line(), ColwiseParallel())
    other, named = sim.tensor(values(2)), sim.tensor(values(3))
    module(sim.tensor(values(2, 4)), other, None, mask=named, flag=True)
    assert isinstance(module.input, DTensor)
    assert module.others == (other, None)
    assert module.others[0] is other
    assert module.named["mask"] is named
    assert module.named["flag"] is True


@on_ranks(2)
@pytest.mark.parametrize("style", [ColwiseParallel, RowwiseParallel])
def test_a_linear_layer_that_returns_a_plain_tensor(style: Any) -> None:
    class Leaves(Linear):
        def forward(self, x: Any) -> Any:
            return super().forward(x).to_local()

    module = parallelize_module(Leaves(4, 4), line(), style(input_layouts=R))
    with pytest.raises(TypeError, match="expects Leaves to return a DTensor, got SimTensor"):
        module(sim.tensor(values(2, 4)))


@on_ranks(2)
def test_shared_inputs_share_one_backward_reduction() -> None:
    """Two layers wrap the same plain input, which remembers its varying view, and no DTensor."""
    model = parallelize_module(
        sim.SimSequential(Linear(4, 4), Linear(4, 4)), line(), {"*": ColwiseParallel()}
    )
    x = leaf(values(2, 4)) * 2.0
    first, second = (layer(x) for layer in model.own_children.values())
    with CommDebugMode() as comm:
        (first + second).sum().backward()
    assert comm.counts == {"all_reduce": 1}
    assert x.memo
    assert not any(isinstance(part, DTensor) for entry in x.memo.values() for part in entry)


# -- whole parameters -----------------------------------------------------------------------------------------
@on_ranks(2, 4)
def test_sequence_parallel() -> None:
    x = values(2, 4, 4)
    module = parallelize_module(Norm(), line(), SequenceParallel())
    output = module(sim.tensor(mine(x, 1)))
    assert isinstance(output, DTensor)
    assert output.placements == (S1,)
    equal(output, x)
    heads = parallelize_module(Norm(), line(), SequenceParallel(sequence_dim=2, use_local_output=True))
    equal(heads(sim.tensor(mine(x, 2))), mine(x, 2))
    whole = DTensor.from_local(sim.tensor(x), line(), [R])
    with CommDebugMode() as comm:
        assert module(whole).placements == (S1,)
    assert comm.total == 0, "a slice"


@on_ranks(2)
def test_what_a_first_input_must_be() -> None:
    for style in (SequenceParallel(), NoParallel()):
        module = parallelize_module(Norm(), line(), style)
        for value in ([1.0], 3, None):
            with pytest.raises(ValueError, match="expects a tensor or DTensor as the first input of Norm"):
                module(value)
        with pytest.raises(ValueError, match=r"which was called with keywords only.*PrepareModuleInput"):
            module(x=sim.tensor(values(2, 4)))


@on_ranks(2)
def test_no_parallel_gathers_what_was_split() -> None:
    x = values(2, 4, 4)
    module = parallelize_module(Norm(), line(), NoParallel(input_layout=S1))
    with CommDebugMode() as comm:
        equal(module(sim.tensor(mine(x, 1))), x)
    assert comm.counts == {"all_gather": 1}
    assert module.input.placements == (R,)
    kept = parallelize_module(Norm(), line(), NoParallel(output_layout=S1, use_local_output=False))
    assert kept(sim.tensor(x)).placements == (S1,)
    several = Recorder((DTensor.from_local(sim.tensor(x), line(), [R]), None, "text"))
    first, none, text = parallelize_module(several, line(), NoParallel(output_layout=S1))(sim.tensor(x))
    equal(first, mine(x, 1))
    assert (none, text) == (None, "text")


@on_ranks(2)
def test_local_grad_placements() -> None:
    """The ranks use their own half of a whole output: with Partial its gradient is the sum of what they saw."""
    for style, exact in ((NoParallel(local_grad_placements=Partial()), True), (NoParallel(), False)):
        module = parallelize_module(Norm(), line(), style)
        x = leaf(values(4))
        half = ops.narrow(module(x), 0, 2 * sim.rank(), 2)
        (half * half).sum().backward()
        expected = 2 * values(4)
        if not exact:
            expected[2 * (1 - sim.rank()) :][:2] = 0
        equal(x.grad, expected)


# -- boundaries -----------------------------------------------------------------------------------------------
@on_ranks(2)
def test_prepare_module_input() -> None:
    style = PrepareModuleInput(
        input_layouts=(S0, None, R),
        desired_input_layouts=(R, None, None),
        input_kwarg_layouts={"named": S0, "kept": None},
        desired_input_kwarg_layouts={"named": S1, "kept": None},
    )
    module = parallelize_module(Recorder(), line(), style)
    x, plain, kept = values(4, 2), sim.tensor(values(3)), object()
    module(sim.tensor(mine(x, 0)), plain, sim.tensor(x), named=sim.tensor(mine(x, 0)), kept=kept, other=None)
    first, second, third = module.args
    assert first.placements == (R,)
    equal(first, x)
    assert second is plain
    assert third.placements == (R,)
    assert module.kwargs["named"].placements == (S1,)
    equal(module.kwargs["named"], x)
    assert module.kwargs["kept"] is kept
    assert module.kwargs["other"] is None
    local = PrepareModuleInput(input_layouts=S0, desired_input_layouts=R, use_local_output=True)
    module = parallelize_module(Recorder(), line(), local)
    equal(module(sim.tensor(mine(x, 0))), x)
    assert isinstance(module.args[0], sim.SimTensor)


@on_ranks(2)
def test_prepare_module_input_of_a_call_with_keywords_only() -> None:
    layouts = {"hidden_states": S1}, {"hidden_states": R}
    style = PrepareModuleInput(input_kwarg_layouts=layouts[0], desired_input_kwarg_layouts=layouts[1])
    module = parallelize_module(Recorder("answer"), line(), style)
    tables = sim.tensor(values(2)), sim.tensor(values(2))
    assert module(hidden_states=sim.tensor(mine(values(2, 4), 1)), tables=tables, cache=None) == "answer"
    assert module.args == ()
    equal(module.kwargs["hidden_states"], values(2, 4))
    assert module.kwargs["tables"] is tables


@on_ranks(2)
def test_prepare_module_input_refuses() -> None:
    style = PrepareModuleInput(
        input_layouts=(R, R),
        desired_input_layouts=(R, R),
        input_kwarg_layouts={"named": R},
        desired_input_kwarg_layouts={"named": R},
    )
    module, x = parallelize_module(Recorder(), line(), style), sim.tensor(values(2))
    with pytest.raises(ValueError, match=r"got 1 positional inputs and there are 2 .* same length"):
        module(x)
    with pytest.raises(AssertionError, match="input 1 of Recorder has a layout but is a list"):
        module(x, [1.0])
    with pytest.raises(AssertionError, match="named of Recorder has a layout but is a NoneType"):
        module(x, x, named=None)


@on_ranks(2)
def test_prepare_module_output() -> None:
    x, plain = values(4, 4), object()
    answer = (sim.tensor(x), plain, DTensor.from_local(sim.tensor(mine(x, 0)), line(), [S0]))
    layouts: dict[str, Any] = {"output_layouts": (R, None, S0), "desired_output_layouts": (S1, None, R)}
    local = parallelize_module(Recorder(answer), line(), PrepareModuleOutput(**layouts))
    first, second, third = local(sim.tensor(x))
    equal(first, mine(x, 1))
    assert second is plain
    equal(third, x)
    style = PrepareModuleOutput(**layouts, use_local_output=False)
    first, second, third = parallelize_module(Recorder(answer), line(), style)(sim.tensor(x))
    assert (first.placements, third.placements) == ((S1,), (R,))
    with pytest.raises(
        ValueError, match=r"returned 1 outputs and there are 3 output_layouts; .* same length"
    ):
        parallelize_module(Recorder(plain), line(), style)(sim.tensor(x))
    alone = PrepareModuleOutput(output_layouts=R, desired_output_layouts=R)
    with pytest.raises(ValueError, match="an output of Recorder has a layout but is a str"):
        parallelize_module(Recorder("text"), line(), alone)(sim.tensor(x))


@on_ranks(2)
def test_prepare_module_input_output() -> None:
    style = PrepareModuleInputOutput(
        input_layouts=S0,
        desired_input_layouts=R,
        use_local_input=True,
        output_layouts=P,
        desired_output_layouts=S0,
        use_local_output=False,
    )
    module, x = parallelize_module(Recorder(), line(), style), values(4, 2)
    output = module(sim.tensor(mine(x, 0)))
    assert isinstance(module.args[0], sim.SimTensor)
    assert output.placements == (S0,)
    equal(output, 2 * x)


@on_ranks(4)
def test_an_input_on_another_mesh() -> None:
    module = parallelize_module(Norm(), square()["tp"], NoParallel())
    x = DTensor.from_local(sim.tensor(values(2)), square(), [R, R])
    with pytest.raises(
        ValueError, match=r"the module was parallelized on .*redistribute cannot change the mesh"
    ):
        module(x)


@on_ranks(2)
def test_part_is_what_a_rank_holds() -> None:
    """The shards of these tests are those of the layout."""
    x = values(4, 2)
    t = DTensor.from_local(sim.tensor(mine(x, 0)), line(), [S0])
    equal(t._local, part(x, t.layout))
