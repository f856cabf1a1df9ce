"""The benchmark runs, and what it compares with computes the same. How fast anything is, is not asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # each kind of rank finds one framework imported
    from tests.support.ms_ranks import MindSporeRankPool
    from tests.support.ranks import RankPool

ROOT = Path(__file__).parents[2]


def run(*arguments: str, module: str = "benchmarks.dispatch") -> str:
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_prints_a_table_writes_json_and_compares_with_it(tmp_path: Path) -> None:
    written = tmp_path / "first.json"
    shown = run("--quick", "--only", "operator/add*", "--json", str(written))
    assert "add, no grad" in shown
    assert "operator: overhead, geometric mean" in shown

    content = json.loads(written.read_text())
    assert {result["name"] for result in content["results"]} == {"add", "add, no grad"}
    for result in content["results"]:
        assert result["samples"].keys() == {"plain", "torch DTensor", "ours"}
        for sample in result["samples"].values():
            assert 0 < sample["p10"] <= sample["median"] <= sample["p90"]
    assert {target["most"] for target in content["targets"]} == {0.5, 0.8}

    assert "now / then" in run("--quick", "--only", "operator/add", "--compare", str(written))


def test_the_same_under_mindspore(tmp_path: Path) -> None:
    written = tmp_path / "first.json"
    module = "benchmarks.on_mindspore"
    shown = run("--quick", "--only", "[ob]*/[ap]*[ds]", "--json", str(written), module=module)
    assert "ours/plain" in shown and "value_and_grad of the sum" in shown

    content = json.loads(written.read_text())
    assert "mindspore" in content["versions"]
    sides = {result["name"]: set(result["samples"]) for result in content["results"]}
    assert sides == {
        "add": {"plain", "intercepted", "ours"},
        "add, no grad": {"plain", "intercepted", "ours"},
        "plain styles": {"plain", "ours"},
    }

    assert "now / then" in run("--quick", "--only", "operator/add", "--compare", str(written), module=module)


def compare_blocks(sequence: bool) -> None:
    """The hand-written block and the parallelized one: outputs and all gradients."""
    import torch

    import hyper_parallel
    from benchmarks import blocks, hand_written, plans
    from tests.support.on_ranks import mesh_of_all

    mesh = mesh_of_all(torch.distributed.get_world_size())
    torch.manual_seed(0)
    plan = plans.plan(hyper_parallel, hyper_parallel, sequence=sequence)
    ours = hyper_parallel.parallelize_module(blocks.Block().double(), mesh, dict(plan))
    by_hand = hand_written.Block(plans.HIDDEN, plans.HEADS, plans.FEATURES, sequence=sequence).double()

    def local(value: Any) -> torch.Tensor:
        return value.to_local() if isinstance(value, hyper_parallel.DTensor) else value

    def short(name: str) -> str:
        return ".".join(name.split(".")[-2:])

    parameters = {short(name): parameter for name, parameter in ours.named_parameters()}
    by_hand.load_state_dict({name: local(parameter).detach() for name, parameter in parameters.items()})

    shape = plans.BATCH, plans.SEQUENCE, plans.HIDDEN
    x, gradient = (torch.randn(shape, dtype=torch.float64) for _ in range(2))
    if sequence:
        x, gradient = (
            hyper_parallel.distribute_tensor(t, mesh, [hyper_parallel.Shard(1)]) for t in (x, gradient)
        )
    theirs = local(x).detach().clone().requires_grad_()
    x = x.detach().requires_grad_()
    expected, output = by_hand(theirs), ours(x)
    torch.testing.assert_close(local(output), expected)
    expected.backward(local(gradient))
    by_hand.finish()
    output.backward(gradient)

    torch.testing.assert_close(local(x.grad), theirs.grad)
    for name, parameter in by_hand.named_parameters():
        whole = parameters[name].grad
        if isinstance(whole, hyper_parallel.DTensor) and short(name).startswith("norm"):
            whole = whole.full_tensor()
        torch.testing.assert_close(
            local(whole), parameter.grad, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("sequence", [False, True])
def test_hand_written_block_is_the_parallelized_one(ranks2: RankPool, sequence: bool) -> None:
    ranks2.run(compare_blocks, sequence)


def compare_blocks_under_mindspore(sequence: bool) -> None:
    import mindspore
    import numpy as np
    from mindspore import Parameter, Tensor

    import hyper_parallel
    from benchmarks import plans
    from benchmarks.on_mindspore import cells, hand_written
    from benchmarks.on_mindspore.blocks import step_of
    from hyper_dtensor import get_platform
    from tests.platform_ms.helpers import close, mesh_of_all
    from tests.platform_ms.tensor_parallel.common import filled

    mesh, platform = mesh_of_all(), get_platform()
    plan = plans.plan(hyper_parallel, hyper_parallel, sequence=sequence)
    ours = hyper_parallel.parallelize_module(filled(cells.Block()), mesh, dict(plan))
    by_hand = hand_written.Block(
        platform, platform.world_size(), plans.HIDDEN, plans.HEADS, plans.FEATURES, sequence=sequence
    )

    def short(name: str) -> str:
        return ".".join(name.split(".")[-2:])

    def part(value: Any) -> Tensor:
        return value.to_local() if isinstance(value, hyper_parallel.DTensor) else value

    by_name = {short(name): parameter for name, parameter in ours.parameters_and_names()}
    for name, parameter in by_hand.parameters_and_names():
        parameter.set_data(Parameter(part(by_name[name]).copy(), name=parameter.name))

    x = Tensor(
        np.random.default_rng(1).standard_normal((plans.BATCH, plans.SEQUENCE, plans.HIDDEN)),
        mindspore.float32,
    )
    if sequence:
        x = hyper_parallel.distribute_tensor(x, mesh, [hyper_parallel.Shard(1)])
    close(part(ours(x)), by_hand(part(x)), "output", 1e-4)
    _, expected = step_of(by_hand, by_hand.finish)(part(x))
    _, found = step_of(ours)(x)
    got = {short(p.name): gradient for p, gradient in zip(ours.trainable_params(), found, strict=True)}
    for parameter, gradient in zip(by_hand.trainable_params(), expected, strict=True):
        close(got[parameter.name], gradient, parameter.name, 1e-4)


@pytest.mark.parametrize("sequence", [False, True])
def test_hand_written_block_under_mindspore_is_the_parallelized_one(
    ms_ranks2: MindSporeRankPool, sequence: bool
) -> None:
    ms_ranks2.run(compare_blocks_under_mindspore, sequence)
