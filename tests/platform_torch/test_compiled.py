"""`torch.compile`: values and gradients as without it; graphs hold local tensors only."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hyper_dtensor import DTensor, distribute_tensor, local_map
from hyper_layout import Placement, Replicate, Shard
from hyper_platform_torch.compiled import PACKAGES
from hyper_tensor_parallel import ColwiseParallel, NoParallel, RowwiseParallel, parallelize_module
from tests.platform_torch.helpers import assert_equal, full, laid_out, line, numbers
from tests.support.ranks import RankPool

Compile = Callable[..., Any]


def model() -> nn.Module:
    """Square weights: what is taken for another parameter fits."""
    torch.manual_seed(3)
    layers = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8), nn.LayerNorm(8))
    return layers.double()


def trained(parallel: bool, compiled: str, kind: type[torch.optim.Optimizer], **options: Any) -> list[Any]:
    """Losses and parameters of three steps, with a part of the step compiled."""
    torch._dynamo.reset()
    warnings.simplefilter("ignore")  # the compiler's own: deprecations, and what it hides where it is shown

    def compiled_if(part: str, function: Compile) -> Compile:
        return torch.compile(function, backend="eager") if part == compiled else function

    module = model()
    if parallel:
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel(), "3": NoParallel()}
        parallelize_module(module, line(), plan)
    optimizer = kind(module.parameters(), lr=0.1, **options)  # type: ignore[call-arg]
    forward = compiled_if("module", module)
    update = compiled_if("optimizer", optimizer.step)
    x, target = torch.randn(2, 4, 8, dtype=torch.float64)

    def step() -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(forward(x), target)
        loss.backward()
        update()
        return loss.detach()

    step = compiled_if("step", step)
    losses = [step() for _ in range(3)]
    return [full(value).detach() for value in (*losses, *module.parameters())]


def trains_alike(compiled: str, kind: type[torch.optim.Optimizer], foreach: bool) -> None:
    # A compiled AdamW counts its steps in float32: what one device computes differs from eager mode as well.
    tolerance = 1e-6 if kind is torch.optim.AdamW else 1e-11
    wanted = trained(False, compiled, kind, foreach=foreach)
    for got, value in zip(trained(True, compiled, kind, foreach=foreach), wanted, strict=True):
        assert_equal(got, value, tolerance=tolerance)


@pytest.mark.parametrize(
    ("compiled", "kind", "foreach"),
    [
        ("module", torch.optim.SGD, True),
        ("optimizer", torch.optim.SGD, True),
        ("optimizer", torch.optim.AdamW, True),
        ("optimizer", torch.optim.AdamW, False),
        ("step", torch.optim.AdamW, True),
    ],
)
def test_training(compiled: str, kind: type[torch.optim.Optimizer], foreach: bool, ranks2: RankPool) -> None:
    ranks2.run(trains_alike, compiled, kind, foreach)


def of_metadata(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x = x.reshape(x.shape[0], -1) * x.numel() if x.dtype == torch.float64 else x
    return x * len(x) if x.requires_grad else x.relu() + y.size(1)


def of_local_numbers(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    number = (torch.arange(3.0, dtype=torch.float64) * 2).sum()
    for _ in range(2):
        x = x * number.item() + y
    return x


def in_place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = x * 1.0
    z.unsqueeze(0).mul_(2.0)
    z.add_(y)
    return z


def without_gradients(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        z = x * y
    return z + x.detach() * 2 + x


FUNCTIONS = [of_metadata, of_local_numbers, in_place, without_gradients]


def runs_alike(function: Callable[..., torch.Tensor], needs_grad: bool) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="eager")
    placements: tuple[Placement, ...] = (Shard(0), Shard(1), Replicate())
    for placement in placements * 2:  # one compiled function for all layouts, and again
        plain = [numbers(4, 6, seed=seed).requires_grad_(needs_grad) for seed in (1, 2)]
        given = [laid_out(each.detach(), line(), placement).requires_grad_(needs_grad) for each in plain]
        wanted, got = function(*plain), compiled(*given)
        assert isinstance(got, DTensor) and got.placements == (placement,)
        assert_equal(got, wanted)
        assert got.requires_grad == wanted.requires_grad
        if needs_grad:
            (wanted * wanted).sum().backward()
            (got * got).sum().backward()
            for one, other in zip(given, plain, strict=True):
                assert (one.grad is None) == (other.grad is None)
                if other.grad is not None:
                    assert_equal(one.grad, other.grad)


@pytest.mark.parametrize("needs_grad", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_of_dtensors(
    function: Callable[..., torch.Tensor], needs_grad: bool, ranks2: RankPool
) -> None:
    ranks2.run(runs_alike, function, needs_grad)


def graphs() -> None:
    """Graphs of local tensors alone; none of the library's own calls."""
    torch._dynamo.reset()
    seen: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Compile:
        assert not any(isinstance(value, DTensor) for value in inputs)
        seen.append(graph)
        return graph.forward

    mesh = line()
    local = local_map(
        lambda t: torch.sin(t) * 2, out_placements=[Shard(0)], in_placements=([Shard(0)],), device_mesh=mesh
    )
    x = distribute_tensor(torch.ones(4, 2), mesh, [Shard(0)])
    compiled = torch.compile(lambda t: local(t * 2) + 1, backend=backend)
    torch.testing.assert_close(compiled(x).full_tensor(), torch.sin(torch.ones(4, 2) * 2) * 2 + 1)
    called = [str(node.target) for graph in seen for node in graph.graph.nodes if node.op.startswith("call")]
    assert any("sin" in name for name in called)

    whole_graph = torch.compile(lambda t: t * 2, backend=backend, fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="DTensor"):
        whole_graph(x)


def test_graphs_hold_local_tensors(ranks2: RankPool) -> None:
    ranks2.run(graphs)


def test_no_package_is_traced() -> None:
    members = {source.name for source in (Path(__file__).parents[2] / "packages").glob("*/src/hyper_*")}
    # No part of a program that runs on PyTorch; the facade has names and the command line.
    assert set(PACKAGES) == members - {"hyper_platform_ms", "hyper_conformance", "hyper_parallel"}


def test_who_does_not_compile_does_not_import_the_compiler() -> None:
    code = "import sys, hyper_platform_torch; assert 'torch._dynamo' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
