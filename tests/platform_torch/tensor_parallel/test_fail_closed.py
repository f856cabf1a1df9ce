"""RFC 8.2 A1-A12 and the table 9.3: what is refused, with its exact exception, on every rank alike."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from hyper_parallel import (
    ColwiseParallel,
    DTensor,
    NoParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    Replicate,
    RowwiseParallel,
    SequenceParallel,
    Shard,
    distribute_module,
    init_device_mesh,
    parallelize_module,
)
from tests.platform_torch.tensor_parallel.common import line, on_ranks, refused, values, world

R = Replicate()


class TwoInputs(nn.Module):
    def forward(self, x: Any, y: Any = None) -> Any:
        return x


class Leaves(nn.Linear):
    """A linear layer that leaves the world of DTensors on its own."""

    def forward(self, x: Any) -> Any:
        output = super().forward(x)
        return output.to_local() if isinstance(output, DTensor) else output


class Custom(nn.Module):
    """A linear layer of somebody's own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8, 8))


@on_ranks(2)
def test_a1_the_base_class_is_abstract() -> None:
    refused(TypeError, "abstract", lambda: ParallelStyle())  # type: ignore[abstract]


@on_ranks(2, 4)
def test_a2_a_mesh_of_two_axes() -> None:
    mesh = init_device_mesh("cpu", (world() // 2, 2), mesh_dim_names=("dp", "tp"))
    model = nn.Sequential(nn.Linear(8, 8))
    for plan in (ColwiseParallel(), {"0": ColwiseParallel()}):
        refused(
            ValueError,
            r'Tensor Parallel only accepts a 1D DeviceMesh.*device_mesh\["tp"\]',
            lambda plan=plan: parallelize_module(model, mesh, plan),
        )
    assert not isinstance(model[0].weight, DTensor)
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel()})


@on_ranks(2)
def test_a3_what_is_no_plan() -> None:
    model = nn.Sequential(nn.Linear(8, 8))
    plans: list[tuple[Any, str]] = [
        ([ColwiseParallel()], "must be a ParallelStyle or a dict.*got list"),
        (ColwiseParallel, "got the class ColwiseParallel: write ColwiseParallel"),
        ({"0": "colwise"}, r"parallelize_plan\['0'\] must be a ParallelStyle, got str"),
        ({"0": ColwiseParallel(), "1": None}, r"parallelize_plan\['1'\].*NoneType"),
    ]
    for plan, message in plans:
        refused(TypeError, message, lambda plan=plan: parallelize_module(model, line(), plan))
    assert not isinstance(model[0].weight, DTensor)


@on_ranks(2)
def test_a4_names_with_an_empty_part() -> None:
    model = nn.Sequential(nn.Linear(8, 8))
    for name in ("", "a..b", ".0", "0."):
        plan = {"0": ColwiseParallel(), name: ColwiseParallel()}
        refused(ValueError, "empty part", lambda plan=plan: parallelize_module(model, line(), plan))
    assert not isinstance(model[0].weight, DTensor)


@on_ranks(2)
def test_a5_a_name_that_matches_nothing() -> None:
    model = nn.Sequential(nn.Linear(8, 8))
    with pytest.warns(UserWarning, match="no module matches 'head', it is skipped"):
        assert parallelize_module(model, line(), {"head": ColwiseParallel()}) is model
    assert not isinstance(model[0].weight, DTensor)
    assert not model[0]._forward_pre_hooks


@on_ranks(2)
@pytest.mark.parametrize("style", [ColwiseParallel, RowwiseParallel])
def test_a6_modules_that_cannot_be_split(style: Any) -> None:
    for module in (nn.LayerNorm(8), nn.ReLU(), nn.Conv1d(8, 8, 1), Custom()):
        name = type(module).__name__
        model = nn.Sequential(nn.Sequential(module))
        refused(
            NotImplementedError,
            f"0.0: .*supports Linear and Embedding modules, got {name}",
            lambda model=model: parallelize_module(model, line(), {"0.0": style()}),
        )
        refused(
            NotImplementedError,
            "Linear and Embedding",
            lambda module=module: style().apply(module, line()),
        )
        assert not any(isinstance(p, DTensor) for p in module.parameters())


@on_ranks(2)
def test_a7_layouts_that_do_not_pair_up() -> None:
    cases: list[dict[str, Any]] = [
        {"input_layouts": (R, R), "desired_input_layouts": (R,)},
        {"input_layouts": (R,)},
        {"desired_input_layouts": (R,)},
        {"input_kwarg_layouts": {"x": R}},
        {"input_kwarg_layouts": {"x": R}, "desired_input_kwarg_layouts": {"y": R}},
    ]
    for case in cases:
        refused(
            AssertionError,
            "should have same length|must be too",
            lambda case=case: PrepareModuleInput(**case),
        )
        refused(
            AssertionError,
            "should have same length|must be too",
            lambda case=case: PrepareModuleInputOutput(output_layouts=R, desired_output_layouts=R, **case),
        )
    refused(
        AssertionError,
        r"output_layouts \(2\) and desired_output_layouts \(1\) should have same length",
        lambda: PrepareModuleOutput(output_layouts=(R, R), desired_output_layouts=R),
    )


@on_ranks(2, 4)
def test_a8_another_number_of_inputs_or_outputs() -> None:
    style: ParallelStyle = PrepareModuleInput(input_layouts=R, desired_input_layouts=R)
    module = parallelize_module(TwoInputs(), line(), style)
    refused(ValueError, "got 2 positional inputs.*same length", lambda: module(values(8), values(8)))
    refused(ValueError, "got 0 positional inputs.*same length", lambda: module(x=values(8)))
    style = PrepareModuleOutput(output_layouts=(R, R), desired_output_layouts=(R, R))
    module = parallelize_module(TwoInputs(), line(), style)
    refused(ValueError, "returned 1 outputs.*same length", lambda: module(values(8)))


@on_ranks(2, 4)
def test_a9_a_first_input_that_is_no_tensor() -> None:
    module = parallelize_module(nn.LayerNorm(8), line(), SequenceParallel())
    for value in ([1.0], 3, None):
        refused(ValueError, "expects a tensor or DTensor", lambda value=value: module(value))
    refused(ValueError, "called with keywords only", lambda: module(input=values(2, 4, 8)))


@on_ranks(2, 4)
@pytest.mark.parametrize("style", [RowwiseParallel, ColwiseParallel])
def test_a10_a_linear_layer_that_returns_a_plain_tensor(style: Any) -> None:
    module = parallelize_module(Leaves(8, 8).double(), line(), style(input_layouts=R))
    refused(TypeError, "expects Leaves to return a DTensor, got Tensor", lambda: module(values(2, 8)))


@on_ranks(2, 4)
def test_a11_a_second_style_on_one_module() -> None:
    module = nn.Linear(8, 8)
    ColwiseParallel().apply(module, line())
    for style in (ColwiseParallel(), RowwiseParallel(), NoParallel(), SequenceParallel()):
        message = "distribute_module was applied to this Linear before"
        refused(RuntimeError, message, lambda style=style: style.apply(module, line()))
    refused(RuntimeError, "applied", lambda: distribute_module(module, line()))
    # The boundary styles touch no parameter and go around one that does.
    PrepareModuleInput(input_layouts=R, desired_input_layouts=R).apply(module, line())


@on_ranks(2)
def test_a12_no_plan() -> None:
    model = nn.Sequential(nn.Linear(8, 8))
    with pytest.warns(UserWarning, match="got no parallelize_plan"):
        assert parallelize_module(model, line()) is model
    assert not isinstance(model[0].weight, DTensor)


@on_ranks(2, 4)
def test_prepare_module_input_converts_only_tensors() -> None:
    """The last row of 9.3; the other rows are A1-A4 and A6-A11."""
    positional = PrepareModuleInput(input_layouts=(R, Shard(0)), desired_input_layouts=(R, R))
    module = parallelize_module(TwoInputs(), line(), positional)
    for value in (3, None, [1.0], "text"):
        message = f"input 1 of TwoInputs has a layout but is a {type(value).__name__}, expecting a tensor"
        refused(AssertionError, message, lambda value=value: module(values(8), value))
    named = PrepareModuleInput(input_kwarg_layouts={"y": R}, desired_input_kwarg_layouts={"y": R})
    module = parallelize_module(TwoInputs(), line(), named)
    refused(AssertionError, "y of TwoInputs has a layout but is a list", lambda: module(values(8), y=[1.0]))


@on_ranks(2)
def test_without_a_mesh() -> None:
    refused(
        ValueError, "needs device_mesh=", lambda: parallelize_module(nn.Linear(8, 8), None, ColwiseParallel())
    )
    refused(
        TypeError,
        "takes a DeviceMesh, got int",
        lambda: parallelize_module(nn.Linear(8, 8), 2, ColwiseParallel()),
    )


@on_ranks(2)
def test_layouts_that_are_no_placements() -> None:
    for layouts in ("S(0)", 3, (R, R), ()):
        refused(
            TypeError, "a style's layout is one Placement", lambda v=layouts: ColwiseParallel(input_layouts=v)
        )
