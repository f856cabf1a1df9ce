"""Which modules the names of a plan mean."""

from __future__ import annotations

import warnings

import pytest

from hyper_tensor_parallel import ColwiseParallel, NoParallel, RowwiseParallel
from hyper_tensor_parallel.plan import match_plan
from hyper_tensor_parallel.style import ParallelStyle
from tests.support import simulated as sim
from tests.tensor_parallel.modules import Linear, model

STYLE = ColwiseParallel()


def names(*patterns: str) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return [match.name for match in match_plan(model(), dict.fromkeys(patterns, STYLE))]


def test_plain_names() -> None:
    assert names("head") == ["head"]
    assert names("layers") == ["layers"]
    assert names("layers.1.attn.q_proj") == ["layers.1.attn.q_proj"]


def test_globs_match_one_part_of_a_name() -> None:
    every = [f"layers.{i}.attn.q_proj" for i in range(3)]
    assert names("layers.*.attn.q_proj") == every
    assert names("layers.[02].attn.q_proj") == [every[0], every[2]]
    assert names("*.*.attn.[!o]_proj") == every
    assert names("layers.?.*.q_proj") == every
    assert names("layers.*") == ["layers.0", "layers.1", "layers.2"]
    assert names("*") == ["layers", "head"]


def test_a_star_does_not_cross_a_dot() -> None:
    with pytest.warns(UserWarning, match=r"no module matches 'layers\.\*\.q_proj'"):
        assert match_plan(model(), {"layers.*.q_proj": STYLE}) == []


def test_matches_are_in_the_order_of_the_plan() -> None:
    assert names("head", "layers.2.norm", "layers.0.norm") == ["head", "layers.2.norm", "layers.0.norm"]


def test_a_match_knows_its_parent() -> None:
    root = model()
    (match,) = match_plan(root, {"layers.1.mlp.up": STYLE})
    assert match.parent is root.layers.own_children["1"].mlp
    assert match.child_name == "up"
    assert match.module is match.parent.up
    assert match.style is STYLE


def test_case_matters() -> None:
    with pytest.warns(UserWarning, match="no module matches 'Head', it is skipped; did you mean 'head'"):
        assert match_plan(model(), {"Head": STYLE}) == []


@pytest.mark.parametrize("name", ["", ".", "a..b", ".head", "head."])
def test_an_empty_part_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="it has an empty part"):
        match_plan(model(), {"head": STYLE, name: STYLE})


def test_a_number_is_no_name() -> None:
    with pytest.raises(TypeError, match="names of modules: write '0', not 0"):
        match_plan(model(), {0: STYLE})  # type: ignore[dict-item]


def test_near_names_are_offered() -> None:
    with pytest.warns(UserWarning, match=r"did you mean 'layers\.1\.attn\.q_proj'"):
        match_plan(model(2), {"layers.1.attn.qproj": STYLE})
    with pytest.warns(UserWarning, match="it is skipped$"):
        match_plan(model(), {"something.else": STYLE})


def test_a_module_under_two_names_counts_once_per_style() -> None:
    shared = Linear(4, 4)
    root = sim.SimSequential(shared, shared)
    assert [match.name for match in match_plan(root, {"*": STYLE})] == ["0"]
    plan: dict[str, ParallelStyle] = {"0": NoParallel(), "1": RowwiseParallel()}
    assert [match.name for match in match_plan(root, plan)] == ["0", "1"]
