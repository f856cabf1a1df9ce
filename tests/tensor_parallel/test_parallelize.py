"""``parallelize_module``: parameters, checks, and what is refused before anything is changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hyper_dtensor import CommDebugMode, DTensor
from hyper_layout import current_rank
from hyper_tensor_parallel import (
    ColwiseParallel,
    NoParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from tests.dtensor.helpers import S0, S1, R, equal, line, on_ranks, part, square
from tests.support import simulated as sim
from tests.tensor_parallel.modules import Attention, Embedding, Linear, Mlp, Norm, Recorder, Tied, model

GEOMETRY: dict[str, tuple[Callable[[], ParallelStyle], Callable[[], Any], dict[str, Any]]] = {
    "colwise linear": (ColwiseParallel, lambda: Linear(8, 4), {"weight": S0, "bias": S0}),
    "rowwise linear": (RowwiseParallel, lambda: Linear(8, 4), {"weight": S1, "bias": R}),
    "colwise embedding": (ColwiseParallel, lambda: Embedding(8, 4), {"weight": S1}),
    "rowwise embedding": (RowwiseParallel, lambda: Embedding(8, 4), {"weight": S0}),
    "sequence": (SequenceParallel, Norm, {"weight": R}),
    "no parallel": (NoParallel, lambda: Linear(8, 4), {"weight": R, "bias": R}),
}


# -- parameters -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("source", [0, 1, None])
@pytest.mark.parametrize("name", list(GEOMETRY))
@on_ranks(2, 4)
def test_how_parameters_are_cut(name: str, source: int | None) -> None:
    """B1-B8: the source's data, or this rank's own without any communication."""
    style, build, placements = GEOMETRY[name]
    module, original = build(), dict(build().named_parameters())
    before = dict(module.named_parameters())
    if source is not None and current_rank() != source:
        for parameter in module.parameters():
            parameter.array = parameter.array * np.nan
    with CommDebugMode() as comm:
        assert parallelize_module(module, line(), style(), src_data_rank=source) is module
    assert comm.total == (0 if source is None else len(placements))
    for key, parameter in module.named_parameters():
        assert parameter is before[key], "converted in place"
        assert isinstance(parameter, DTensor)
        assert parameter.placements == (placements[key],)
        assert parameter.requires_grad
        equal(parameter._local.detach(), part(original[key].array, parameter.layout))


@on_ranks(2)
def test_ties_and_frozen_parameters_stay() -> None:
    module = Tied()
    module.head.weight.requires_grad = False
    weight = module.head.weight
    parallelize_module(module, line(), {"embedding": RowwiseParallel(), "head": ColwiseParallel()})
    assert module.head.weight is module.embedding.weight is weight
    assert weight.placements == (S0,)
    assert not weight.requires_grad


@on_ranks(2)
def test_a_second_style_is_refused() -> None:
    module = Linear(4, 4)
    parallelize_module(module, line(), ColwiseParallel())
    for style in (ColwiseParallel(), NoParallel()):
        with pytest.raises(RuntimeError, match="applied to this Linear before"):
            parallelize_module(module, line(), style)
    parallelize_module(module, line(), PrepareModuleInput(input_layouts=R, desired_input_layouts=R))
    root = sim.SimSequential(Linear(4, 4), sim.SimSequential(Linear(4, 4)))
    plan = {"1.0": ColwiseParallel()}
    parallelize_module(root, line(), plan)
    with pytest.raises(RuntimeError, match=r"^1\.0: distribute_module was applied to this Linear before"):
        parallelize_module(root, line(), plan)


def test_a_style_may_return_another_module() -> None:
    class Wrapping(ParallelStyle):
        def apply(self, module: Any, device_mesh: Any) -> Any:
            return sim.SimSequential(module)

    root = sim.SimSequential(Linear(4, 4))
    inner = root.own_children["0"]
    style = Wrapping()
    assert parallelize_module(root, line(), {"0": style}, src_data_rank=None) is root
    assert root.own_children["0"].own_children["0"] is inner
    assert style.src_data_rank is None
    assert isinstance(parallelize_module(inner, line(), Wrapping()), sim.SimSequential)


# -- meshes and plans -----------------------------------------------------------------------------------------
def test_the_current_mesh() -> None:
    module = Linear(4, 4)
    with line() as mesh:
        parallelize_module(module, parallelize_plan=ColwiseParallel())
    assert module.weight.device_mesh is mesh
    with pytest.raises(ValueError, match="needs device_mesh=, or a current mesh"):
        parallelize_module(Linear(4, 4), parallelize_plan=ColwiseParallel())
    with pytest.raises(TypeError, match="takes a DeviceMesh, got str"):
        parallelize_module(Linear(4, 4), "tp", ColwiseParallel())  # type: ignore[arg-type]


@on_ranks(4)
def test_a_mesh_of_two_axes() -> None:
    with pytest.raises(ValueError, match=r'only accepts a 1D DeviceMesh, got 2 axes.*device_mesh\["tp"\]'):
        parallelize_module(Linear(4, 4), square(), ColwiseParallel())
    module = parallelize_module(Linear(4, 4), square()["tp"], ColwiseParallel())
    assert module.weight._local.shape == (2, 4)


@pytest.mark.parametrize(
    "plan", [[ColwiseParallel()], "colwise", {"up": "colwise"}, {"up": None}, ColwiseParallel]
)
def test_what_is_no_plan(plan: Any) -> None:
    module = Mlp()
    with pytest.raises(TypeError, match="must be a ParallelStyle"):
        parallelize_module(module, line(), plan)
    assert not isinstance(module.up.weight, DTensor)


def test_no_plan_and_names_without_a_match() -> None:
    module = Mlp()
    with pytest.warns(UserWarning, match="got no parallelize_plan"):
        assert parallelize_module(module, line()) is module
    with pytest.warns(UserWarning, match="no module matches 'sideways'"):
        assert parallelize_module(module, line(), {"sideways": ColwiseParallel()}) is module
    with pytest.raises(ValueError, match="empty part"):
        parallelize_module(module, line(), {"up": ColwiseParallel(), "": ColwiseParallel()})
    assert not isinstance(module.up.weight, DTensor)
    assert not module.up.before_hooks


# -- checks ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("style", [ColwiseParallel, RowwiseParallel])
@pytest.mark.parametrize("module", [Norm, Mlp, Recorder])
def test_modules_that_cannot_be_split(style: Any, module: Any) -> None:
    root = sim.SimSequential(sim.SimSequential(module()))
    message = rf"^0\.0: {style.__name__} supports Linear and Embedding modules, got {module.__name__}"
    with pytest.raises(NotImplementedError, match=message):
        parallelize_module(root, line(), {"0.0": style()})
    assert not any(isinstance(parameter, DTensor) for parameter in root.parameters())


@on_ranks(2)
def test_features_that_do_not_divide() -> None:
    root = sim.SimSequential(Mlp(4, 129))
    with pytest.raises(
        ValueError, match=r"^0\.up: parameter 'weight' of Linear: dim 0 of size 129.*128 and 130"
    ):
        parallelize_module(root, line(), {"0.up": ColwiseParallel()})
    with pytest.raises(ValueError, match=r"^the root module: parameter 'weight'"):
        parallelize_module(Linear(4, 3), line(), ColwiseParallel())


@on_ranks(2)
def test_heads_that_do_not_divide() -> None:
    for attention in (Attention(3), Attention(3, None, num_heads=3)):
        root = sim.SimSequential(attention)
        plan: dict[str, ParallelStyle] = {"0.q_proj": ColwiseParallel(), "0.o_proj": RowwiseParallel()}
        for name in plan:
            with pytest.raises(
                ValueError, match=rf"^{name}: its 3 heads of 2 features do not divide by the 2"
            ):
                parallelize_module(root, line(), {name: plan[name]})
        assert not any(isinstance(parameter, DTensor) for parameter in root.parameters())
    for style in (ColwiseParallel(output_layouts=R), NoParallel()):
        parallelize_module(
            Attention(3), line(), {"q_proj": style, "q_norm": NoParallel(), "o_proj": NoParallel()}
        )


def test_a_parameter_shared_with_a_plain_module() -> None:
    module = Tied()
    message = "parameter 'weight' of 'head' is shared with 'embedding', which the plan leaves plain"
    with pytest.raises(ValueError, match=message):
        parallelize_module(module, line(), {"head": ColwiseParallel()})
    message = "parameter 'weight' of 'embedding' is shared with 'head', which"
    boundary = PrepareModuleInput(input_layouts=R, desired_input_layouts=R)
    with pytest.raises(ValueError, match=message):
        parallelize_module(module, line(), {"embedding": NoParallel(), "head": boundary})
    assert not isinstance(module.head.weight, DTensor)
    own = sim.SimSequential(Linear(4, 4))
    own.weight = own.own_children["0"].weight
    with pytest.raises(ValueError, match="shared with 'the root module'"):
        parallelize_module(own, line(), {"0": ColwiseParallel()})


def test_parameters_left_plain_beside_split_siblings() -> None:
    """One warning names them all; a module with its own split modules is judged by those."""
    with pytest.warns(UserWarning) as caught:
        parallelize_module(model(), line(), {"layers.*.attn.?_proj": ColwiseParallel()})
    (warning,) = caught
    text = str(warning.message)
    assert "layers.0.attn.q_norm.weight, layers.1.attn.q_norm.weight, layers.2.attn.q_norm.weight. If" in text
    assert "SequenceParallel(sequence_dim=2, use_local_output=True)" in text
    assert warning.filename == __file__
    many = sim.SimSequential(Linear(4, 4), *(Norm() for _ in range(11)))
    with pytest.warns(UserWarning, match=r"8\.weight and 3 more\. If"):
        parallelize_module(many, line(), {"0": ColwiseParallel()})


@pytest.mark.filterwarnings("error")
def test_no_warning_where_siblings_are_whole_or_planned() -> None:
    parallelize_module(sim.SimSequential(Linear(4, 4), Norm()), line(), {"0": NoParallel()})
    parallelize_module(
        sim.SimSequential(Linear(4, 4), Norm()), line(), {"0": RowwiseParallel(), "1": NoParallel()}
    )
    parallelize_module(Linear(4, 4), line(), ColwiseParallel())
