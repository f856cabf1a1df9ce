"""Constructors: the defaults of RFC section 5.2, and what they refuse."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from hyper_layout import Partial, Replicate, Shard
from hyper_tensor_parallel import (
    ColwiseParallel,
    NoParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
)

R, S0, S1, LAST = Replicate(), Shard(0), Shard(1), Shard(-1)
BOUNDARY = {
    "input_layouts": None,
    "desired_input_layouts": None,
    "input_kwarg_layouts": None,
    "desired_input_kwarg_layouts": None,
}
REQUIRED = inspect.Parameter.empty
# RFC 5.2; the last table of each is what this library adds.
ARGUMENTS: list[tuple[type[ParallelStyle], dict[str, Any], set[str]]] = [
    (
        ColwiseParallel,
        {"input_layouts": None, "output_layouts": None, "use_local_output": True},
        {"local_grad_placements"},
    ),
    (
        RowwiseParallel,
        {"input_layouts": None, "output_layouts": None, "reduce_dtype": None, "use_local_output": True},
        {"local_grad_placements"},
    ),
    (SequenceParallel, {"sequence_dim": 1, "use_local_output": False}, {"local_grad_placements"}),
    (PrepareModuleInput, {**BOUNDARY, "use_local_output": False}, {"local_grad_placements"}),
    (
        PrepareModuleOutput,
        {
            "output_layouts": REQUIRED,
            "desired_output_layouts": REQUIRED,
            "reduce_dtype": None,
            "use_local_output": True,
        },
        {"local_grad_placements"},
    ),
    (
        PrepareModuleInputOutput,
        {
            **BOUNDARY,
            "use_local_input": False,
            "output_layouts": REQUIRED,
            "desired_output_layouts": REQUIRED,
            "reduce_dtype": None,
            "use_local_output": True,
        },
        set(),
    ),
    (
        NoParallel,
        {"input_layout": None, "desired_input_layout": None, "output_layout": None, "use_local_output": True},
        {"local_grad_placements"},
    ),
]


@pytest.mark.parametrize(("style", "expected", "added"), ARGUMENTS, ids=lambda v: getattr(v, "__name__", ""))
def test_arguments(style: type[ParallelStyle], expected: dict[str, Any], added: set[str]) -> None:
    """By keyword only, as in PyTorch; what is added is off by default."""
    parameters = inspect.signature(style).parameters
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in parameters.values())
    assert {name: p.default for name, p in parameters.items()} == {**expected, **dict.fromkeys(added)}
    assert issubclass(style, ParallelStyle)
    assert style.src_data_rank == 0


def test_layouts_that_are_not_given() -> None:
    colwise, rowwise, sequence, no = ColwiseParallel(), RowwiseParallel(), SequenceParallel(), NoParallel()
    assert (colwise.input_layouts, colwise.output_layouts) == ((R,), (LAST,))
    assert colwise.desired_input_layouts == (R,)
    assert (rowwise.input_layouts, rowwise.output_layouts) == ((LAST,), (R,))
    assert rowwise.embedding_input_layouts == (R,)
    assert sequence.sequence_sharding == (S1,)
    assert SequenceParallel(sequence_dim=2).sequence_sharding == (Shard(2),)
    assert (no.input_layout, no.desired_input_layout, no.output_layout) == ((R,), (R,), (R,))


def test_layouts_that_are_given() -> None:
    assert ColwiseParallel(input_layouts=S1, output_layouts=R).input_layouts == (S1,)
    assert RowwiseParallel(input_layouts=S0).embedding_input_layouts == (S0,)
    assert ColwiseParallel(local_grad_placements=Partial()).local_grad_placements == (Partial(),)
    prepare = PrepareModuleInput(input_layouts=(S1, None), desired_input_layouts=[R, None])
    assert prepare.input_layouts == ((S1,), None)
    assert prepare.desired_input_layouts == ((R,), None)
    assert PrepareModuleInput(input_layouts=S1, desired_input_layouts=R).input_layouts == ((S1,),)
    both = PrepareModuleInputOutput(
        input_layouts=S1,
        desired_input_layouts=R,
        output_layouts=R,
        desired_output_layouts=S1,
        use_local_input=True,
        use_local_output=False,
    )
    assert both.prepare_module_input.use_local_output is True
    assert both.prepare_module_output.use_local_output is False


def test_the_base_class_is_abstract() -> None:
    with pytest.raises(TypeError, match="abstract"):
        ParallelStyle()  # type: ignore[abstract]


@pytest.mark.parametrize("layouts", ["S(0)", 3, (), (R, R), [None]])
def test_what_is_no_placement(layouts: Any) -> None:
    for style, name in (
        (ColwiseParallel, "input_layouts"),
        (RowwiseParallel, "output_layouts"),
        (NoParallel, "desired_input_layout"),
        (SequenceParallel, "local_grad_placements"),
    ):
        with pytest.raises(TypeError, match="a style's layout is one Placement"):
            style(**{name: layouts})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments",
    [
        {"input_layouts": (R, R), "desired_input_layouts": (R,)},
        {"input_layouts": (R,)},
        {"desired_input_layouts": (R,)},
        {"input_kwarg_layouts": {"x": R}},
        {"desired_input_kwarg_layouts": {"x": R}},
        {"input_kwarg_layouts": {"x": R}, "desired_input_kwarg_layouts": {"y": R}},
    ],
)
def test_layouts_that_do_not_pair_up(arguments: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match=r"should have same length|must be too"):
        PrepareModuleInput(**arguments)
    with pytest.raises(AssertionError, match=r"should have same length|must be too"):
        PrepareModuleInputOutput(output_layouts=R, desired_output_layouts=R, **arguments)


def test_output_layouts_that_do_not_pair_up() -> None:
    with pytest.raises(AssertionError, match=r"output_layouts \(1\) and desired_output_layouts \(2\)"):
        PrepareModuleOutput(output_layouts=R, desired_output_layouts=(R, None))


def test_loss_parallel_is_a_context() -> None:
    with loss_parallel():
        pass
