"""Every form of a function reaches the entry of its name, with the arguments where they belong."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hyper_dtensor import DTensor
from hyper_platform_torch.names import describe
from tests.platform_torch.helpers import S0, S1, R, assert_equal, laid_out, line, numbers
from tests.support.ranks import RankPool

NAMES = {
    torch.add: "add",
    torch.Tensor.add: "add",
    torch.Tensor.__add__: "add",
    torch.Tensor.__radd__: "add",
    torch.Tensor.__iadd__: "add_",
    torch.Tensor.add_: "add_",
    torch.Tensor.__truediv__: "div",
    torch.Tensor.__itruediv__: "div_",
    torch.Tensor.__imod__: "remainder_",
    torch.Tensor.__ipow__: "pow_",
    torch.Tensor.__ilshift__: "bitwise_left_shift_",
    torch.Tensor.__invert__: "bitwise_not",
    torch.Tensor.__matmul__: "matmul",
    torch.Tensor.__getitem__: "getitem",
    torch.Tensor.__setitem__: "setitem",
    torch.Tensor.T.__get__: "T",
    torch.Tensor.mT.__get__: "mT",
    torch.Tensor.imag.__get__: "imag",
    torch.rsub: "sub",
    F.linear: "linear",
    F.softmax: "softmax",
    torch.softmax: "softmax",
    torch.special.softmax: "softmax",
    torch.special.expit: "sigmoid",
    torch.special.gammaln: "lgamma",
    torch.linalg.vector_norm: "linalg_vector_norm",
    torch.linalg.matmul: "matmul",
    F.relu: "relu",
    torch.relu: "relu",
    F.dropout: "dropout",
    torch.dropout: "dropout",
    F.embedding: "embedding",
    torch.embedding: "embedding",
    F.cross_entropy: "cross_entropy",
    F.layer_norm: "layer_norm",
    torch.layer_norm: "layer_norm",
    torch.functional.split: "split",
    torch.Tensor.split: "split",
    # Built-ins that take other arguments than the function of their name.
    torch.kl_div: "torch.kl_div",
    torch.binary_cross_entropy_with_logits: "torch.binary_cross_entropy_with_logits",
    torch._C._nn.nll_loss: "torch.nll_loss",
    torch.batch_norm: "torch.batch_norm",
    torch.ops.aten.add: "torch.ops.aten.add",
    torch.ops.aten.add.Tensor: "torch.ops.aten.add.Tensor",
    # Not an operator: complex(x), not torch.complex.
    torch.Tensor.__complex__: "__complex__",
    torch.complex: "complex",
}


@pytest.mark.parametrize(
    ("function", "name"), NAMES.items(), ids=[f"{i}-{n}" for i, n in enumerate(NAMES.values())]
)
def test_name(function: Callable[..., Any], name: str) -> None:
    assert describe(function).name == name


BINARY = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.pow,
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
]
BITWISE = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]
IN_PLACE = [
    operator.iadd,
    operator.isub,
    operator.imul,
    operator.itruediv,
    operator.ifloordiv,
    operator.imod,
    operator.ipow,
]
IN_PLACE_BITWISE = [operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift]


def operators() -> None:
    mesh = line()
    x, y = numbers(4, 4).abs() + 0.5, numbers(4, 4, seed=1).abs() + 0.5
    i, j = (x * 5).long(), (y * 2).long()
    for placement in (S0, S1, R):

        def on(t: torch.Tensor) -> DTensor:
            return laid_out(t, mesh, placement)  # noqa: B023

        for op in BINARY:
            assert_equal(op(on(x), on(y)), op(x, y), f"{op}")
            assert_equal(op(on(x), 2), op(x, 2), f"{op} number")
            assert_equal(op(2, on(x)), op(2, x), f"number {op}")
            assert_equal(op(on(x), 2.5), op(x, 2.5), f"{op} number")
            assert_equal(op(torch.tensor(2.0), on(x)), op(torch.tensor(2.0), x), f"0-d {op}")
            assert_equal(op(on(x), torch.tensor(2.0)), op(x, torch.tensor(2.0)), f"{op} 0-d")
        for op in BITWISE:
            assert_equal(op(on(i), on(j)), op(i, j), f"{op}")
            assert_equal(op(on(i), 2), op(i, 2), f"{op} number")
            assert_equal(op(2, on(i)), op(2, i), f"number {op}")
        for op in IN_PLACE:
            for other, dother in ((y, on(y)), (2, 2), (2.5, 2.5)):
                theirs, ours = x.clone(), on(x)
                result = op(ours, dother)
                assert result is ours
                assert_equal(ours, op(theirs, other), f"{op}")
        for op in IN_PLACE_BITWISE:
            for other, dother in ((j, on(j)), (2, 2)):
                theirs, ours = i.clone(), on(i)
                assert op(ours, dother) is ours
                assert_equal(ours, op(theirs, other), f"{op}")
        for op in (operator.neg, operator.pos, operator.abs):
            assert_equal(op(on(-x)), op(-x), f"{op}")
        assert_equal(~on(i), ~i)
        assert_equal(~on(i > 3), ~(i > 3))
    a, b = laid_out(x, mesh, R), laid_out(y, mesh, S1)
    assert_equal(a @ b, x @ y)
    assert_equal(b.__rmatmul__(a), x @ y)
    for operand in ((0,), "a", object()):
        for op in (*BINARY[:7], *IN_PLACE):
            with pytest.raises((TypeError, ValueError, RuntimeError)):
                op(laid_out(x, mesh, S0), operand)
    c = laid_out(x, mesh, S0)
    c @= laid_out(y, mesh, R)
    assert_equal(c, x @ y)


def test_operators(ranks2: RankPool) -> None:
    ranks2.run(operators)


def forms() -> None:
    mesh = line()
    x, y, v = numbers(4, 4), numbers(4, 4, seed=1), numbers(4, seed=2)
    ids = torch.tensor([[0, 3], [2, 2]])
    calls: list[Callable[..., Any]] = [
        lambda x, y, v: x.T,
        lambda x, y, v: x.mT,
        lambda x, y, v: x.H,
        lambda x, y, v: x.mH,
        lambda x, y, v: x.adjoint(),
        lambda x, y, v: x.real,
        lambda x, y, v: torch.real(x),
        lambda x, y, v: x.conj(),
        lambda x, y, v: torch.norm(x),
        lambda x, y, v: torch.norm(x, dim=1),
        lambda x, y, v: x.norm(1),
        lambda x, y, v: x.norm(p=2, dim=1, keepdim=True),
        lambda x, y, v: torch.linalg.norm(x),
        lambda x, y, v: torch.linalg.vector_norm(x, 3, dim=1),
        lambda x, y, v: torch.split(x, 2, dim=1)[1],
        lambda x, y, v: x.split([1, 3], 1)[1],
        lambda x, y, v: F.softmax(x, dim=1),
        lambda x, y, v: F.softmax(x, 1, dtype=torch.float32).double(),
        lambda x, y, v: x.softmax(-1),
        lambda x, y, v: torch.softmax(x, 1),
        lambda x, y, v: torch.special.softmax(x, 1),
        lambda x, y, v: F.log_softmax(x, dim=-1),
        lambda x, y, v: F.normalize(x, dim=1),
        lambda x, y, v: F.relu(x),
        lambda x, y, v: F.relu(x, inplace=False),
        lambda x, y, v: F.leaky_relu(x, 0.1),
        lambda x, y, v: F.gelu(x, approximate="tanh"),
        lambda x, y, v: F.silu(x),
        lambda x, y, v: F.sigmoid(x),
        lambda x, y, v: F.tanh(x),
        lambda x, y, v: F.logsigmoid(x),
        lambda x, y, v: F.softplus(x),
        lambda x, y, v: F.dropout(x, 0.5, training=False),
        lambda x, y, v: torch.dropout(x, 0.5, False),
        lambda x, y, v: F.layer_norm(x, (4,)),
        lambda x, y, v: torch.layer_norm(x, (4,)),
        lambda x, y, v: F.rms_norm(x, (4,)),
        lambda x, y, v: torch.special.expit(x),
        lambda x, y, v: torch.special.log1p(x.abs()),
        lambda x, y, v: torch.special.xlogy(x, y.abs()),
        lambda x, y, v: torch.special.logsumexp(x, 1),
        lambda x, y, v: torch.logsumexp(x, 1),
        lambda x, y, v: torch.where(x > 0, x, y),
        lambda x, y, v: x.where(x > 0, y),
        lambda x, y, v: x.where(condition=x > 0, other=y),
        lambda x, y, v: torch.where(x > 0, x, 0.0),
        lambda x, y, v: torch.rsub(x, 2),
        lambda x, y, v: torch.rsub(x, y),
        lambda x, y, v: torch.mul(input=x, other=y),
        lambda x, y, v: torch.sum(x, 1),
        lambda x, y, v: x.sum(axis=1, keepdims=True),
        lambda x, y, v: x.flatten(),
        lambda x, y, v: x.unflatten(1, (2, 2)),
        lambda x, y, v: x.reshape(4, 2, 2),
        lambda x, y, v: x.view((4, 2, 2)),
        lambda x, y, v: torch.stack([x, y], 2),
        lambda x, y, v: F.mse_loss(x, y),
        lambda x, y, v: torch.square(x).mean(),
        lambda x, y, v: x.unflatten(-1, (2, 2)),
        lambda x, y, v: torch.clamp(x, 0, 1),
        lambda x, y, v: x.clip(min=0),
    ]
    # These meet other rows of the second operand, ask for a value, or are built-ins without a rule.
    whole_only: list[Callable[..., Any]] = [
        lambda x, y, v: torch.broadcast_tensors(x, y)[0],
        lambda x, y, v: torch.atleast_2d(x),
        lambda x, y, v: F.glu(x, 1),
        lambda x, y, v: torch.einsum("ij,kj->ik", x, y),
        lambda x, y, v: torch.einsum("ij,kj->ik", [x, y]),
        lambda x, y, v: F.pairwise_distance(x, y),
        lambda x, y, v: F.gaussian_nll_loss(x, y, y.abs() + 1),
        lambda x, y, v: F.poisson_nll_loss(x, y.abs()),
        lambda x, y, v: torch.tensordot(x, y, dims=([1], [1])),
    ]
    for number, call in enumerate([*calls, *whole_only]):
        for placement in (S0, R) if call in calls else (R,):
            vector = laid_out(v, mesh, R)
            try:
                got = call(laid_out(x, mesh, placement), laid_out(y, mesh, placement), vector)
            except Exception as error:
                raise AssertionError(f"call {number} on {placement}: {error}") from error
            assert isinstance(got, DTensor), number
            assert_equal(got, call(x, y, v), f"call {number} on {placement}", 1e-6)
    # torch.embedding has the weight first, and -1 for no padding index.
    for weight in (S1, S0, R):
        dids = laid_out(ids, mesh, R)
        for function in (lambda w, i: torch.embedding(w, i), lambda w, i: F.embedding(i, w)):
            got = function(laid_out(x, mesh, weight).requires_grad_(), dids)
            assert_equal(got, function(x, ids), f"embedding {weight}")


def test_forms(ranks2: RankPool) -> None:
    ranks2.run(forms)
