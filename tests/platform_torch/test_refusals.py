"""What would silently see a shard is refused, on every rank, with what to use instead."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from hyper_dtensor import DTensor, init_device_mesh, local_map, set_platform
from hyper_layout import Shard
from tests.platform_torch.helpers import (
    S0,
    S1,
    Block,
    P,
    R,
    assert_equal,
    distribute,
    laid_out,
    line,
    numbers,
    raised,
)
from tests.support.ranks import RankPool

ANY = (ValueError, RuntimeError, NotImplementedError, TypeError)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 2


class DoubleLocal(Double):
    """It takes the local tensor and returns a plain one."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.to_local() * 2


class DoubleWrapped(Double):
    """It makes a DTensor of its own."""

    @staticmethod
    def forward(ctx: Any, x: Any, plain: Any) -> Any:
        return DTensor.from_local(plain.detach() * 2, x.device_mesh, x.placements)


class DoubleWithSetup(torch.autograd.Function):
    @staticmethod
    def forward(x: Any) -> Any:
        return x.redistribute([R]).to_local() * 2

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 2


def own_functions() -> list[str]:
    mesh = line()
    messages = []
    for placement in (S0, R):
        x = laid_out(numbers(4, 4), mesh, placement).requires_grad_()
        y = Double.apply(x)
        messages += [
            raised(lambda y=y: y + 1),
            raised(lambda y=y: y.sum()),
            raised(lambda y=y: y.to_local()),
            raised(lambda y=y: y.full_tensor()),
            raised(lambda y=y: y.backward(numbers(4, 4))),
            raised(lambda y=y, x=x: torch.autograd.grad(y, x, numbers(4, 4))),
            raised(lambda y=y: torch.autograd.backward(y, numbers(4, 4))),
            raised(lambda y=y: local_map(lambda t: t, [S0])(y)),
            raised(lambda x=x: DoubleLocal.apply(x)),
            raised(lambda x=x: DoubleWithSetup.apply(x)),
            raised(lambda x=x: DoubleLocal.apply(x * 2)),
        ]
        plain = x.to_local().detach().requires_grad_()
        z = DoubleWrapped.apply(x.detach(), plain)
        messages.append(raised(lambda z=z: z + 1))
        # An in-place operation made a plain constant need a gradient.
        w = laid_out(numbers(4, 4), mesh, placement)
        w += x
        messages.append(raised(lambda w=w: Double.apply(w) + 1))
        # Without gradients, there is nothing to lose.
        with torch.no_grad():
            assert_equal(Double.apply(x), 2 * numbers(4, 4))
        assert_equal(Double.apply(x.detach()) + 1, 2 * numbers(4, 4) + 1)
        # As it says: in local_map.
        apply = local_map(Double.apply, [placement])
        apply(x).square().sum().backward()
        assert_equal(x.grad, 8 * numbers(4, 4))
    return messages


def test_an_autograd_function_that_is_given_dtensors(ranks2: RankPool) -> None:
    for messages in ranks2.run(own_functions):
        for message in messages:
            assert "local_map" in message
            assert "use_reentrant=False" in message


def module_hooks() -> list[str]:
    mesh = line()
    messages = []
    x = laid_out(numbers(4, 4), mesh, S0)
    for needs in (True, False):
        for register in ("register_full_backward_hook", "register_full_backward_pre_hook"):
            layer = nn.Linear(4, 4, dtype=torch.float64)
            for name in ("weight", "bias"):
                value = laid_out(getattr(layer, name).detach(), mesh, R)
                setattr(layer, name, nn.Parameter(value))
            getattr(layer, register)(lambda *_: None)
            messages.append(raised(lambda layer=layer, n=needs: layer(x.detach().requires_grad_(n))))
    layer = nn.Identity()
    layer.register_backward_hook(lambda *_: None)
    messages.append(raised(lambda: layer(x.detach().requires_grad_() * 1)))
    return messages


def test_module_backward_hooks(ranks2: RankPool) -> None:
    for messages in ranks2.run(module_hooks):
        for message in messages:
            assert "register_hook" in message


def wrappers() -> list[tuple[str, str]]:
    """DistributedDataParallel and both FSDP over DTensor parameters."""
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    mesh = line()
    found = []
    x = laid_out(numbers(4, 4), mesh, R)

    def replicated() -> nn.Module:
        layer = nn.Linear(4, 4, dtype=torch.float64)
        for name in ("weight", "bias"):
            setattr(layer, name, nn.Parameter(laid_out(getattr(layer, name).detach(), mesh, R)))
        return layer

    for make in (lambda: distribute(Block(), mesh), replicated):
        for name, wrap in (
            ("DistributedDataParallel", nn.parallel.DistributedDataParallel),
            ("FSDP", lambda module: FullyShardedDataParallel(module, device_id=torch.device("cpu"))),
            ("FSDP", fully_shard),
        ):
            found.append((name, raised(lambda wrap=wrap, make=make: wrap(make())(x), Exception)))
    return found


def test_data_parallel_wrappers(ranks2: RankPool) -> None:
    for found in ranks2.run(wrappers):
        for name, message in found:
            assert name in message
            assert "distribute_module" in message


def plain_doors() -> list[tuple[str, str]]:
    """Every way to a plain tensor or array that would hold this rank's part only."""
    mesh = line()
    x = laid_out(numbers(4, 4), mesh, S0)
    doors: dict[str, Callable[[], Any]] = {
        "numpy": lambda: x.numpy(),
        "__array__": lambda: np.asarray(x),
        "np.array": lambda: np.array(x),
        "tolist": lambda: x.tolist(),
        "item": lambda: x.sum().item(),
        "float": lambda: float(x.sum()),
        "int": lambda: int(x.sum()),
        "bool": lambda: bool(x.sum()),
        "complex": lambda: complex(x.sum()),
        "index": lambda: [0, 1][laid_out(torch.tensor(1), mesh, R).redistribute([P])],
        "data_ptr": lambda: x.data_ptr(),
        "untyped_storage": lambda: x.untyped_storage(),
        "storage": lambda: x.storage(),
        "__dlpack__": lambda: x.__dlpack__(),
        "from_dlpack": lambda: torch.from_dlpack(x),
        "np.from_dlpack": lambda: np.from_dlpack(x),
        "torch.tensor": lambda: torch.tensor(x),
        "torch.asarray": lambda: torch.asarray(x, copy=True),
        "new_tensor": lambda: x.new_tensor(x),
        "pin_memory": lambda: x.pin_memory(),
        "share_memory_": lambda: x.share_memory_(),
        "as_subclass": lambda: x.as_subclass(torch.Tensor),
        "set_": lambda: x.set_(numbers(4, 4)),
        "resize_": lambda: x.resize_(2, 2),
        "all_reduce": lambda: dist.all_reduce(x),
        "all_gather": lambda: dist.all_gather([x, x], x),
        "broadcast": lambda: dist.broadcast(x, 0),
        "operator": lambda: torch.ops.aten.add(x, 1),
        "overload": lambda: torch.ops.aten.add.Tensor(x, x),
        "write into plain": lambda: numbers(4, 4).add_(x),
        "copy into plain": lambda: numbers(4, 4).copy_(x),
        "plain setitem": lambda: numbers(4, 4).__setitem__(0, x[0]),
        "out plain": lambda: torch.add(x, 1, out=numbers(4, 4)),
        "out of another layout": lambda: torch.add(x, 1, out=laid_out(numbers(4, 4), mesh, S1)),
        "plain index": lambda: numbers(4, 4)[laid_out(torch.tensor([0, 1]), mesh, S0)],
        "plain operand": lambda: x + numbers(4, 4),
        "plain keyword": lambda: torch.add(x, other=numbers(4, 4)),
        "vmap": lambda: torch.vmap(torch.sin)(x),
        "func.grad": lambda: torch.func.grad(lambda t: t.sum())(x),
        "jvp": lambda: torch.func.jvp(torch.sin, (x,), (x,)),
        "jit.trace": lambda: torch.jit.trace(torch.sin, (x,)),
    }
    found = []
    for name, door in doors.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append((name, raised(door, Exception)))
    return found


def test_doors_to_plain_tensors(ranks2: RankPool) -> None:
    for found in ranks2.run(plain_doors):
        messages = dict(found)
        for name in (
            *("numpy", "__array__", "np.array", "tolist", "item", "float", "int", "bool", "complex", "index"),
            *("data_ptr", "untyped_storage", "storage", "share_memory_", "__dlpack__", "from_dlpack"),
        ):
            assert "full_tensor()" in messages[name], name
        for name in ("torch.tensor", "all_reduce"):
            assert "to_local()" in messages[name], name
        for name in ("plain operand", "plain keyword"):
            assert "distribute_tensor(" in messages[name], name


def whole_values() -> None:
    """On a tensor that is Replicate everywhere the value is there, without communication."""
    mesh = line()
    whole = numbers(4, 4)
    x = laid_out(whole, mesh, R).requires_grad_()
    assert np.array_equal(x.numpy(), whole.numpy())
    assert np.array_equal(np.asarray(x), whole.numpy())
    assert x.tolist() == whole.tolist()
    one = laid_out(torch.tensor(3), mesh, R)
    assert one.item() == 3
    assert float(one) == 3.0
    assert int(one) == 3
    assert bool(one)
    assert [0, 1, 2, 7][one] == 7
    assert f"{one:.1f}" == "3.0"
    assert x.data_ptr() == x.to_local().data_ptr()
    assert complex(one) == 3 + 0j
    assert torch.equal(torch.from_dlpack(x.detach()), whole)
    text = repr(laid_out(whole, mesh, S0))
    assert text == "DTensor(f64[4,4] tp:S(0))"
    assert f"{x}" == str(x) == repr(x) == "DTensor(f64[4,4] tp:R)"


def test_values_of_replicated_tensors(ranks2: RankPool) -> None:
    ranks2.run(whole_values)


def global_answers() -> None:
    """Sizes are those of the whole tensor, whoever asks."""
    x = laid_out(numbers(4, 6), line(), S0)
    assert tuple(x.shape) == tuple(x.size()) == tuple(torch.Tensor.size(x)) == (4, 6)
    assert torch.Tensor.shape.__get__(x) == torch.Size((4, 6))
    assert x.numel() == x.nelement() == torch.numel(x) == 24
    assert x.ndim == x.dim() == x.ndimension() == 2
    assert len(x) == 4
    assert x.size(-1) == 6
    assert x.nbytes == 24 * 8
    assert x.element_size() == x.itemsize == 8
    assert x.stride() == (6, 1)
    assert x.t().stride() == (1, 6)
    assert x.stride(0) == 6
    assert x.is_contiguous()
    assert x.dtype == torch.float64
    assert x.device.type == "cpu"
    assert torch.is_floating_point(x)
    assert torch.is_tensor(x)
    assert isinstance(x.shape, torch.Size)


def test_sizes_are_global(ranks2: RankPool) -> None:
    ranks2.run(global_answers)


def below_torch_function() -> list[str]:
    """Code that switches ``__torch_function__`` off reaches the wrapper, which has no data."""
    x = laid_out(numbers(4, 4), line(), S0)
    with torch._C.DisableTorchFunctionSubclass():
        return [
            raised(call) for call in (lambda: x + 1, lambda: torch.sin(x), lambda: x.add_(1), lambda: x[0])
        ]


def test_what_slips_past_torch_function(ranks2: RankPool) -> None:
    for messages in ranks2.run(below_torch_function):
        for message in messages:
            assert "below __torch_function__" in message
            assert "local_map" in message


def bad_input() -> dict[str, str]:
    mesh, other = line(), init_device_mesh("cpu", (2,), mesh_dim_names=("other",))
    whole = numbers(4, 4)
    x = laid_out(whole, mesh, S0)
    return {
        "mixed meshes": raised(lambda: x + laid_out(whole, other, S0), ValueError),
        "no tensor": raised(lambda: DTensor.from_local([1.0], mesh, [S0]), TypeError),
        "a DTensor": raised(lambda: DTensor.from_local(x, mesh, [S0]), TypeError),
        "no mesh": raised(lambda: DTensor.from_local(whole, "cpu", [S0]), TypeError),
        "placements": raised(lambda: DTensor.from_local(whole, mesh, [S0, S0]), ValueError),
        "dim": raised(lambda: DTensor.from_local(whole, mesh, [Shard(2)]), ValueError),
        "uneven": raised(lambda: laid_out(numbers(5, 4), mesh, S0), ValueError),
        "too large": raised(lambda: init_device_mesh("cpu", (64,)), ValueError),
        "unknown": raised(lambda: set_platform("tensorflow"), ValueError),
    }


def test_bad_input(ranks2: RankPool) -> None:
    for messages in ranks2.run(bad_input):
        assert "mesh" in messages["mixed meshes"]
        assert "list" in messages["no tensor"]
        assert "DTensor" in messages["a DTensor"]
        assert "DeviceMesh" in messages["no mesh"]
        for word in ("dim 0", "5", "tp", "4", "6"):
            assert word in messages["uneven"], messages["uneven"]
        assert "64" in messages["too large"]
        assert "torch" in messages["unknown"]


def a_rank_that_raises(rank: int) -> None:
    x = laid_out(numbers(4, 4), line(), S0)
    if dist.get_rank() == rank:
        raise ArithmeticError("this rank has its own reason")
    x.full_tensor()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_raises_ends_the_run_with_its_message(rank: int, ranks2: RankPool) -> None:
    from tests.support.ranks import RankError

    with pytest.raises(RankError, match="this rank has its own reason"):
        ranks2.run(a_rank_that_raises, rank)


def unknown_operation() -> str:
    x = laid_out(numbers(4, 4), line(), S0)
    message = raised(lambda: torch.linalg.lu(x), NotImplementedError)
    assert_equal(x + 1, numbers(4, 4) + 1)
    return message


def test_an_unknown_operation_is_refused_on_all_ranks_alike(ranks2: RankPool) -> None:
    for message in ranks2.run(unknown_operation):
        assert "linalg_lu" in message
        assert "register" in message
        assert "redistribute" in message


def sizes_that_differ() -> None:
    mesh = line()
    part, whole = torch.ones(2, 16), laid_out(torch.ones(16, 16), mesh, S1)
    split = DTensor.from_local(part, mesh, [S1])
    message = raised(lambda: nn.functional.linear(split, whole), ValueError)
    n = 16 * mesh.size()
    assert f"linear: the dims that meet differ in size: dim 1 of f32[2,{n}] tp:S(1) has {n}" in message
    assert "dim 1 of f32[16,16] tp:S(1) has 16; was a whole tensor taken for this rank's part" in message
    message = raised(lambda: laid_out(torch.ones(2, 8), mesh, R) @ whole, ValueError)
    assert "matmul" in message and "was this rank's part taken for the whole tensor" in message
    assert "has 3" in raised(lambda: laid_out(torch.ones(2, 3), mesh, R) @ whole, ValueError)


def test_dims_that_meet_have_one_size(ranks2: RankPool) -> None:
    ranks2.run(sizes_that_differ)
