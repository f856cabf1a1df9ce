"""The seven tensor-parallel styles on the framework's modules."""

from __future__ import annotations

from typing import Any

import numpy as np

from hyper_conformance.case import case
from hyper_conformance.cases.modules import numbers
from hyper_conformance.here import Here
from hyper_dtensor import CommDebugMode, DTensor
from hyper_layout import Partial, Replicate, Shard
from hyper_tensor_parallel import (
    ColwiseParallel,
    NoParallel,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

R, S0, S1, P = Replicate(), Shard(0), Shard(1), Partial()


def _mine(here: Here, array: Any, dim: int) -> Any:
    """This rank's shard of an array."""
    return np.split(array, here.size, dim)[here.rank]


@case(3)
def column_then_row(here: Here) -> None:
    """Megatron's pair: one all_reduce forward and one backward; value and all gradients of one device."""
    mesh, f = here.line(), here.platform.ops
    up, up_bias, down, down_bias = (
        numbers(here, *shape, seed=seed) for seed, shape in enumerate([(8, 4), (8,), (4, 8), (4,)])
    )
    x, weight = numbers(here, 3, 4, seed=5), numbers(here, 3, 4, seed=6)
    first, second = here.harness.linear(up, up_bias), here.harness.linear(down, down_bias)
    model = here.harness.sequence({"up": first, "down": second})
    parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    w = here.tensor(weight)
    hidden = x @ up.T + up_bias
    expected = {
        "up": {"weight": (weight @ down).T @ x, "bias": (weight @ down).sum(0)},
        "down": {"weight": weight.T @ hidden, "bias": weight.sum(0)},
    }

    def of_input(a: Any) -> Any:
        out = model(a)
        assert here.platform.is_tensor(out)
        here.close(out, hidden @ down.T + down_bias)
        return f.sum(out * w)

    with CommDebugMode() as comm:
        _, (gradient,) = here.harness.gradients(of_input, here.tensor(x))
    here.close(gradient, weight @ down @ up)
    assert comm.forward_counts == comm.backward_counts == {"all_reduce": 1}
    pairs = [
        (name, key, p)
        for name, m in (("up", first), ("down", second))
        for key, p in here.platform.parameters(m).items()
    ]
    _, gradients = here.harness.parameter_gradients(
        lambda: of_input(here.tensor(x)), [p for _, _, p in pairs]
    )
    for (name, key, p), g in zip(pairs, gradients, strict=True):
        parameter: Any = p
        here.close(
            here.whole_gradient(parameter._spec, tuple(parameter.shape), g),
            expected[name][key],
            f"{name}.{key}",
        )


@case(3)
def between_sequence_shards(here: Here) -> None:
    """all_gather before and reduce_scatter behind, and the same backward."""
    mesh, f = here.line(), here.platform.ops
    up, down, x = numbers(here, 8, 4), numbers(here, 4, 8, seed=1), numbers(here, 4, 4, seed=2)
    model = here.harness.sequence(
        {"up": here.harness.linear(up, None), "down": here.harness.linear(down, None)}
    )
    plan: Any = {"up": ColwiseParallel(input_layouts=S0), "down": RowwiseParallel(output_layouts=S0)}
    parallelize_module(model, mesh, plan)
    weight = numbers(here, 4, 4, seed=3)
    w = here.tensor(_mine(here, weight, 0))

    def loss(a: Any) -> Any:
        out = model(a)
        here.close(out, _mine(here, x @ up.T @ down.T, 0))
        return f.sum(out * w)

    with CommDebugMode() as comm:
        _, (gradient,) = here.harness.gradients(loss, here.tensor(_mine(here, x, 0)))
    here.close(gradient, _mine(here, weight @ down @ up, 0))
    assert comm.forward_counts == comm.backward_counts == {"all_gather": 1, "reduce_scatter": 1}


@case(3)
def embeddings(here: Here) -> None:
    """Split by columns and by rows (the vocabulary): values, and the gradient of the table."""
    mesh, f, table = here.line(), here.platform.ops, numbers(here, 8, 4)
    ids = np.asarray([[0, 7, 3], [3, 4, 7]])
    expected = np.zeros_like(table)
    np.add.at(expected, ids, 1.0)
    for style in (ColwiseParallel(output_layouts=R), RowwiseParallel()):
        module = parallelize_module(here.harness.embedding(table), mesh, style)
        (parameter,) = here.platform.parameters(module).values()
        held: Any = parameter

        def loss(module: Any = module) -> Any:
            out = module(here.tensor(ids))
            here.close(out, table[ids])
            return f.sum(out)

        _, (gradient,) = here.harness.parameter_gradients(loss, [held])
        here.close(here.whole_gradient(held._spec, table.shape, gradient), expected, type(style).__name__)


@case(3)
def sequence_parallel(here: Here) -> None:
    """``SequenceParallel``: a shard of the sequence in and out; the gradient of the whole parameter."""
    mesh, f = here.line(), here.platform.ops
    weight, x = numbers(here, 6, 4), numbers(here, 2, 4, 4, seed=1)
    module = parallelize_module(here.harness.linear(weight, None), mesh, SequenceParallel())
    parameter: Any = here.platform.parameters(module)["weight"]

    def loss() -> Any:
        out = module(here.tensor(_mine(here, x, 1)))
        assert isinstance(out, DTensor)
        here.equal(out.placements, (S1,))
        here.close(out, x @ weight.T)
        return f.sum(out.full_tensor())

    _, (gradient,) = here.harness.parameter_gradients(loss, [parameter])
    here.close(here.whole_gradient(parameter._spec, weight.shape, gradient), np.tile(x.sum((0, 1)), (6, 1)))


@case(3)
def no_parallel(here: Here) -> None:
    """``NoParallel``: whole parameters as DTensors, the single-device result."""
    mesh, weight, x = here.line(), numbers(here, 6, 4), numbers(here, 3, 4, seed=1)
    module = parallelize_module(here.harness.linear(weight, None), mesh, NoParallel())
    held: Any = here.platform.parameters(module)["weight"]
    here.equal(held.placements, (R,))
    here.close(module(here.tensor(x)), x @ weight.T)


@case(3)
def prepared_inputs(here: Here) -> None:
    """``PrepareModuleInput``: positional and keyword inputs, each in its layout; others pass through."""
    mesh, x, shift = here.line(), numbers(here, 4, 4), numbers(here, 4, 4, seed=1)
    module: Any = parallelize_module(
        here.harness.two_outputs(numbers(here, 4, seed=2)),
        mesh,
        PrepareModuleInput(
            input_layouts=(S0,),
            desired_input_layouts=(R,),
            input_kwarg_layouts={"shift": S0},
            desired_input_kwarg_layouts={"shift": R},
            use_local_output=True,
        ),
    )
    first, second = module(
        here.tensor(_mine(here, x, 0)), shift=here.tensor(_mine(here, shift, 0)), scale=2.0
    )
    here.close(first, x * numbers(here, 4, seed=2) * 2)
    here.close(second, x + shift)
    here.refused(lambda: module(here.tensor(x), here.tensor(x)), ValueError, says="same length")


@case(3)
def prepared_outputs(here: Here) -> None:
    """``PrepareModuleOutput``: several outputs, each in its layout; ``None`` passes one through."""
    mesh, x, gain = here.line(), numbers(here, 4, 4), numbers(here, 4, seed=1)
    module: Any = parallelize_module(
        here.harness.two_outputs(gain),
        mesh,
        PrepareModuleOutput(output_layouts=(P, None), desired_output_layouts=(S0, None)),
    )
    first, second = module(here.tensor(x * here.share()))
    here.close(first, _mine(here, x * gain, 0))
    here.close(second, x * here.share())


@case(3)
def prepared_on_both_sides(here: Here) -> None:
    """``PrepareModuleInputOutput``: split before, whole behind, and the gradient of the input."""
    mesh, f = here.line(), here.platform.ops
    x, gain = numbers(here, 4, 4), numbers(here, 4, seed=1)
    module: Any = parallelize_module(
        here.harness.two_outputs(gain),
        mesh,
        PrepareModuleInputOutput(
            input_layouts=(R,),
            desired_input_layouts=(S0,),
            use_local_input=True,
            output_layouts=(S0, None),
            desired_output_layouts=(R, None),
        ),
    )
    weight = here.tensor(x)

    def loss(a: Any) -> Any:
        first, _ = module(a)
        here.close(first, x * gain)
        return f.sum(first * weight)

    _, (gradient,) = here.harness.gradients(loss, here.tensor(x))
    here.close(gradient, x * gain)


@case(3)
def only_the_first_input_is_prepared(here: Here) -> None:
    """A style touches the first positional input alone; keywords pass through as the objects they are."""
    mesh, x = here.line(), numbers(here, 3, 4)
    module = here.harness.two_outputs(numbers(here, 4, seed=1))
    parallelize_module(module, mesh, NoParallel(use_local_output=False))
    seen: list[Any] = []

    def look(module: Any, args: Any, kwargs: Any) -> Any:
        seen.append((isinstance(args[0], DTensor), kwargs["shift"] is shift))
        return args, kwargs

    shift = here.tensor(np.asarray(1.0))
    here.platform.before_forward(module, look)
    module(here.tensor(x), shift=shift)
    here.equal(seen, [(True, True)])


@case(3)
def shared_inputs_cost_one_reduction(here: Here) -> None:
    """Column-wise layers that wrap the same plain input share its backward all_reduce."""
    mesh, f, x = here.line(), here.platform.ops, numbers(here, 3, 4)
    weights = [numbers(here, 8, 4, seed=seed) for seed in (1, 2, 3)]
    layers: list[Any] = [
        parallelize_module(here.harness.linear(w, None), mesh, ColwiseParallel(use_local_output=True))
        for w in weights
    ]

    def loss(a: Any) -> Any:
        hidden = a * 1.0
        first, second, third = (f.sum(layer(hidden)) for layer in layers)
        return first + second + third

    with CommDebugMode() as comm:
        _, (gradient,) = here.harness.gradients(loss, here.tensor(x))
    here.equal(comm.backward_counts, {"all_reduce": 1})
    here.close(gradient, np.tile(sum(weights).sum(0), (3, 1)))


@case(3)
def what_a_style_refuses(here: Here) -> None:
    """Modules and sizes that a style cannot split, on every rank alike."""
    mesh, harness = here.line(), here.harness
    other = harness.two_outputs(numbers(here, 4))
    here.refused(
        lambda: parallelize_module(other, mesh, ColwiseParallel()), NotImplementedError, says="supports"
    )
    here.refused(
        lambda: parallelize_module(other, mesh, RowwiseParallel()), NotImplementedError, says="supports"
    )
    uneven = harness.linear(numbers(here, 7, 4), None)
    here.refused(lambda: parallelize_module(uneven, mesh, ColwiseParallel()), ValueError, says="7")
    even: Any = parallelize_module(harness.linear(numbers(here, 8, 4), None), mesh, ColwiseParallel())
    here.refused(lambda: even("no tensor"), ValueError, says="expects a tensor")
