"""The functions on local tensors (``LocalOps``): PyTorch's names, signatures and meaning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hyper_conformance.case import case
from hyper_conformance.here import Here

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class Sample:
    """One call of a local function, and what it is in NumPy.

    Attributes:
        call: On the namespace and the tensors.
        reference: On the arrays.
        shapes: Of the floating inputs.
        positive: Whether the inputs are above zero.
        differentiable: Whether its gradients are checked too.
    """

    call: Callable[..., Any]
    reference: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...] = ((3, 4),)
    positive: bool = False
    differentiable: bool = True

    def inputs(self, here: Here) -> list[Array]:
        """The inputs; no two elements are equal, and none is zero."""
        arrays = [here.values(*shape, seed=seed) for seed, shape in enumerate(self.shapes)]
        return [np.abs(array) + 0.5 for array in arrays] if self.positive else arrays


INDEX = np.asarray([[0, 2, 1, 3], [3, 3, 0, 1]])
ROWS = np.asarray([2, 0, 2])
MASK = np.asarray([[True, False, True, False]] * 3)

S = Sample
SAMPLES: dict[str, Sample] = {
    "abs": S(lambda f, a: f.abs(a), np.abs),
    "add": S(lambda f, a, b: f.add(a, b), np.add, ((3, 4), (4,))),
    "add_alpha": S(lambda f, a, b: f.add(a, b, alpha=2.0), lambda a, b: a + 2 * b, ((3, 4), (3, 4))),
    "amax": S(lambda f, a: f.amax(a, 1), lambda a: a.max(1)),
    "amax_all": S(lambda f, a: f.amax(a), np.max),
    "amin": S(lambda f, a: f.amin(a, 0, keepdim=True), lambda a: a.min(0, keepdims=True)),
    "any": S(lambda f, a: f.any(a > 0, 1), lambda a: (a > 0).any(1), differentiable=False),
    "cat": S(lambda f, a, b: f.cat([a, b], 1), lambda a, b: np.concatenate([a, b], 1), ((3, 4), (3, 2))),
    "clamp": S(lambda f, a: f.clamp(a, min=-0.3, max=0.4), lambda a: np.clip(a, -0.3, 0.4)),
    "clone": S(lambda f, a: f.clone(a), np.copy),
    "div": S(lambda f, a, b: f.div(a, b), np.divide, ((3, 4), (4,)), positive=True),
    "einsum": S(lambda f, a, b: f.einsum("ij,jk->ik", a, b), np.matmul, ((3, 4), (4, 2))),
    "exp": S(lambda f, a: f.exp(a), np.exp),
    "expand": S(lambda f, a: f.expand(a, (2, 3, 4)), lambda a: np.broadcast_to(a, (2, 3, 4)), ((3, 1),)),
    "full_like": S(lambda f, a: f.full_like(a, 2.5), lambda a: np.full_like(a, 2.5), differentiable=False),
    "isnan": S(lambda f, a: f.isnan(a), np.isnan, differentiable=False),
    "linear": S(lambda f, a, w, b: f.linear(a, w, b), lambda a, w, b: a @ w.T + b, ((2, 3, 4), (5, 4), (5,))),
    "log": S(lambda f, a: f.log(a), np.log, positive=True),
    "mul": S(lambda f, a, b: f.mul(a, b), np.multiply, ((3, 4), (3, 1))),
    "narrow": S(lambda f, a: f.narrow(a, 1, 1, 2), lambda a: a[:, 1:3]),
    "ones_like": S(lambda f, a: f.ones_like(a), np.ones_like, differentiable=False),
    "permute": S(lambda f, a: f.permute(a, (2, 0, 1)), lambda a: a.transpose(2, 0, 1), ((2, 3, 4),)),
    "pow": S(lambda f, a: f.pow(a, 3), lambda a: a**3),
    "prod": S(lambda f, a: f.prod(a, 1), lambda a: a.prod(1)),
    "prod_all": S(lambda f, a: f.prod(a), np.prod),
    "reshape": S(lambda f, a: f.reshape(a, (2, 6)), lambda a: a.reshape(2, 6)),
    "square": S(lambda f, a: f.square(a), np.square),
    "squeeze": S(lambda f, a: f.squeeze(a, 1), lambda a: a[:, 0], ((3, 1),)),
    "stack": S(lambda f, a, b: f.stack([a, b], 1), lambda a, b: np.stack([a, b], 1), ((3, 4), (3, 4))),
    "sub": S(lambda f, a, b: f.sub(a, b), np.subtract, ((4,), (3, 4))),
    "sum": S(lambda f, a: f.sum(a, 1), lambda a: a.sum(1)),
    "sum_all": S(lambda f, a: f.sum(a), np.sum),
    "sum_dims": S(
        lambda f, a: f.sum(a, (0, 2), keepdim=True), lambda a: a.sum((0, 2), keepdims=True), ((2, 3, 4),)
    ),
    "tile": S(lambda f, a: f.tile(a, (2, 1)), lambda a: np.tile(a, (2, 1))),
    "unbind": S(lambda f, a: f.unbind(a, 1)[2], lambda a: a[:, 2]),
    "unsqueeze": S(lambda f, a: f.unsqueeze(a, 1), lambda a: a[:, None]),
    "vector_norm": S(lambda f, a: f.vector_norm(a, 3.0, (1,)), lambda a: (np.abs(a) ** 3).sum(1) ** (1 / 3)),
    "zeros_like": S(lambda f, a: f.zeros_like(a), np.zeros_like, differentiable=False),
    "operators": S(
        lambda f, a, b: (2.0 - a) * b / 3.0 + (-a) @ (b * b) ** 2 - a[0],
        lambda a, b: (2.0 - a) * b / 3.0 + (-a) @ (b * b) ** 2 - a[0],
        ((4, 4), (4, 4)),
    ),
}

# Those that take integer or boolean tensors beside.
SAMPLES_WITH: dict[str, tuple[Sample, Array]] = {
    "gather": (S(lambda f, a, i: f.gather(a, 1, i), lambda a, i: np.take_along_axis(a[:2], i, 1)), INDEX),
    "index_select": (S(lambda f, a, i: f.index_select(a, 0, i), lambda a, i: a[i]), ROWS),
    "indexing": (S(lambda f, a, i: a[i], lambda a, i: a[i]), ROWS),
    "masked_fill": (S(lambda f, a, m: f.masked_fill(a, m, 2.0), lambda a, m: np.where(m, 2.0, a)), MASK),
    "where": (S(lambda f, a, m: f.where(m, a, 0.0), lambda a, m: np.where(m, a, 0.0)), MASK),
    "where_tensors": (S(lambda f, a, m: f.where(m, a * 2.0, a), lambda a, m: np.where(m, a * 2, a)), MASK),
}


def sample(here: Here, name: str) -> tuple[Callable[..., Any], Callable[..., Any], list[Array], bool]:
    """The call on tensors, the one on arrays, the floating inputs, and whether it is differentiable."""
    f = here.platform.ops
    if name in SAMPLES:
        chosen = SAMPLES[name]
        return (lambda *t: chosen.call(f, *t)), chosen.reference, chosen.inputs(here), chosen.differentiable
    chosen, beside = SAMPLES_WITH[name]
    x = here.tensor(beside)
    return (
        lambda *t: chosen.call(f, *t, x),
        lambda *arrays: chosen.reference(*arrays, beside),
        chosen.inputs(here),
        True,
    )


EACH = {name: (name,) for name in (*SAMPLES, *SAMPLES_WITH)}


@case(1, ranks=(1,), over=EACH)
def values(here: Here, name: str) -> None:
    """What the function returns, beside NumPy; its inputs are not written."""
    call, reference, arrays, _ = sample(here, name)
    tensors = [here.tensor(array) for array in arrays]
    result = call(*tensors)
    here.close(result, reference(*arrays), name)
    for x, array in zip(tensors, arrays, strict=True):
        here.close(x, array, f"{name}: an input was written")


@case(1, ranks=(1,))
def arange(here: Here) -> None:
    """``arange(n)`` and ``arange(start, end)``: integers; ``device=`` of another tensor."""
    f, x = here.platform.ops, here.tensor(here.values(2))
    here.equal(here.array(f.arange(4)).tolist(), [0, 1, 2, 3])
    here.equal(here.array(f.arange(2, 5, device=x.device)).tolist(), [2, 3, 4])


@case(1, ranks=(1,))
def full(here: Here) -> None:
    """``full(shape, value)``, also of bool, with ``dtype=`` and ``device=`` of another tensor."""
    f, x = here.platform.ops, here.tensor(here.values(2))
    here.close(f.full((2, 3), 1.5), np.full((2, 3), 1.5))
    for value in (True, False):
        here.identical(f.full((), value, device=x.device), np.asarray(value))
    here.identical(f.full((), 3, dtype=x.dtype, device=x.device), here.array(here.tensor(np.asarray(3.0))))


@case(1, ranks=(1,))
def as_tensor(here: Here) -> None:
    """``as_tensor`` of numbers, and of a tensor: itself; ``device=`` of another tensor."""
    f, x = here.platform.ops, here.tensor(here.values(2))
    here.equal(here.array(f.as_tensor(2.5)).tolist(), 2.5)
    here.equal(here.array(f.as_tensor([0, 2], device=x.device)).tolist(), [0, 2])
    here.identical(f.as_tensor(x), here.array(x))


@case(1, ranks=(1,))
def cast(here: Here) -> None:
    """``x.to(dtype)``; ``x.is_complex()``."""
    x, whole = here.tensor(np.asarray([1.0, 2.0])), here.tensor(np.asarray([1, 2]))
    here.identical(whole.to(x.dtype), here.array(x))
    assert not x.is_complex()


@case(1, ranks=(1,))
def cast_to_float32(here: Here) -> None:
    """``x.float()``."""
    here.equal(here.platform.dtype_name(here.tensor(np.asarray([1.0, 2.0])).float()), "f32")


@case(
    2,
    ranks=(1,),
    over={name: e for name, e in EACH.items() if name not in SAMPLES or SAMPLES[name].differentiable},
)
def gradients(here: Here, name: str) -> None:
    """The gradients of the function, beside finite differences."""
    if here.precise != "f64":
        return  # a difference of f32 values says nothing
    call, reference, arrays, _ = sample(here, name)
    weight = here.values(*np.shape(reference(*arrays)), seed=9)
    w = here.tensor(weight)
    f = here.platform.ops
    _, found = here.harness.gradients(
        lambda *tensors: f.sum(call(*tensors) * w), *(here.tensor(array) for array in arrays)
    )
    for which, gradient in enumerate(found):
        expected = np.zeros_like(arrays[which])
        for place in np.ndindex(expected.shape):
            sides = []
            for step in (1e-5, -1e-5):
                moved = [array.copy() for array in arrays]
                moved[which][place] += step
                sides.append((reference(*moved) * weight).sum())
            expected[place] = (sides[0] - sides[1]) / 2e-5
        np.testing.assert_allclose(here.array(gradient), expected, atol=1e-7, rtol=1e-6, err_msg=name)
