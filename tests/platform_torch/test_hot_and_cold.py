"""What a call remembers of calls before it: nothing that shows.

Random calls run hot (after others of the same form, with other values), cold (the cache cleared before) and on one
device. Hot and cold agree to the bit, in value, layout, gradient state and gradient, or refuse alike; what is
accepted is what one device computes.
"""

from __future__ import annotations

import contextlib
import copy
import math
import pickle
import random
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hyper_dispatch import RowsOp, register_op, row
from hyper_dispatch.dispatcher import dispatcher
from hyper_dtensor import DTensor, distribute_parameter, meta
from hyper_layout import DeviceMesh, Placement
from tests.platform_torch.helpers import S0, S1, P, R, assert_equal, laid_out, line, numbers
from tests.support.ranks import RankPool

NUMBERS = [0.0, -0.0, 1.0, -2.5, 0.5, math.nan, math.inf, -math.inf, 1, True, 0, False, 3]
Call = Callable[[list[Any], Any], Any]

CALLS: dict[str, Call] = {
    "x * n": lambda t, n: t[0] * n,
    "n * x + n": lambda t, n: n * t[0] + n,
    "n - x": lambda t, n: n - t[0],
    "x / n": lambda t, n: t[0] / n,
    "x + y": lambda t, n: t[0] + t[1],
    "x * x": lambda t, n: t[0] * t[0],
    "add alpha": lambda t, n: torch.add(t[0], t[1], alpha=n),
    "keywords in another order": lambda t, n: torch.sub(alpha=n, other=t[1], input=t[0]),
    "lerp": lambda t, n: torch.lerp(t[0], t[1], float(n)),
    "addcmul": lambda t, n: torch.addcmul(t[0], t[1], t[0], value=n),
    "clamp": lambda t, n: t[0].clamp(min=n),
    "clamp both": lambda t, n: torch.clamp(t[0], -0.5, n),
    "pow": lambda t, n: t[0] ** n,
    "float_power": lambda t, n: torch.float_power(t[0], n),
    "leaky_relu": lambda t, n: F.leaky_relu(t[0], float(n)),
    "nan_to_num": lambda t, n: torch.nan_to_num(t[0] * n, nan=float(n)),
    "compare": lambda t, n: (t[0] >= n) & (t[1] < n),
    "masked_fill": lambda t, n: t[0].masked_fill(t[1] > 0, n),
    "where": lambda t, n: torch.where(t[1] > 0, t[0], n),
    "where with two numbers": lambda t, n: torch.where(t[0] > 0, n, 2.0),
    "add_": lambda t, n: t[0].add_(n),
    "mul_": lambda t, n: t[0].mul_(t[1], **{}).add_(t[1], alpha=n),
    "fill_": lambda t, n: t[0].fill_(n),
    "write": lambda t, n: [t[0].__setitem__((slice(None), 1), n), t[0]][1],
    "a view is written": lambda t, n: [t[0].view(-1).mul_(n), t[0]][1],
    "out": lambda t, n: torch.add(t[0].detach(), n, out=torch.empty_like(t[0]).detach()),
    "sum": lambda t, n: t[0].sum(1) * n,
    "mean": lambda t, n: t[0].mean((0, 1), keepdim=True),
    "amax": lambda t, n: t[0].amax(0),
    "max along": lambda t, n: t[0].max(1),
    "var": lambda t, n: torch.var(t[0], 1, correction=n),
    "norm": lambda t, n: torch.linalg.vector_norm(t[0], n),
    "softmax": lambda t, n: F.softmax(t[0] * n, -1),
    "logsumexp": lambda t, n: t[0].logsumexp(0),
    "cumsum": lambda t, n: t[0].cumsum(1),
    "sort": lambda t, n: torch.stack(torch.sort(t[0], 1)[:1]),
    "matmul": lambda t, n: t[0] @ t[1].t(),
    "addmm": lambda t, n: torch.addmm(t[0], t[1], t[1][:, :4] @ t[0][:4], beta=n, alpha=2.0),
    "linear": lambda t, n: F.linear(t[0], t[1]),
    "einsum": lambda t, n: torch.einsum("ij,kj->ik", t[0], t[1]),
    "view": lambda t, n: t[0].view(-1, 2),
    "view as a shape": lambda t, n: t[0].reshape(torch.Size((2, 2, -1))),
    "transpose": lambda t, n: t[0].t().contiguous(),
    "expand": lambda t, n: t[0].unsqueeze(0).expand(int(n == 1) + 1, -1, -1),
    "repeat": lambda t, n: t[0].repeat(1, int(n == 1) + 1),
    "flip": lambda t, n: t[0].flip(int(n == 1)),
    "pad": lambda t, n: F.pad(t[0], (1, 0), value=n),
    "cat": lambda t, n: torch.cat([t[0], t[1]], int(n == 1)),
    "cat of itself": lambda t, n: torch.cat((t[0], t[0], t[1])),
    "stack": lambda t, n: torch.stack([t[0], t[1], t[0]], -1),
    "split": lambda t, n: t[0].split(2, 1),
    "chunk": lambda t, n: t[0].chunk(2),
    "index": lambda t, n: t[0][1:3, ..., None],
    "pick": lambda t, n: t[0][(t[1] > 0).sum().long() % 4 if not isinstance(t[1], DTensor) else 2],
    "gather": lambda t, n: t[0].gather(1, (t[1] > 0).long()),
    "mask": lambda t, n: t[0][t[1] > 0],
    "masked_select": lambda t, n: torch.masked_select(t[0], t[1] > 0),
    "nonzero": lambda t, n: torch.nonzero(t[0] > 0.3),
    "repeat_interleave": lambda t, n: t[0].repeat_interleave((t[1][:, 0] > 0).long() + 1, 0),
    "one_hot": lambda t, n: F.one_hot((t[0] > 0).long(), int(n == 1) + 2),
    "one_hot of the values": lambda t, n: F.one_hot((t[0] > 1.5).long()),
    "unique": lambda t, n: torch.unique(t[0] > 0),
    "to": lambda t, n: t[0].to(torch.float32 if n == 1 else torch.float64),
    "type_as": lambda t, n: t[0].type_as(t[1]),
    "detach": lambda t, n: t[0].detach() * n,
    "clone": lambda t, n: t[0].clone(),
    "zeros_like": lambda t, n: torch.full_like(t[0], n),
    "new": lambda t, n: t[0].new_ones((2, int(n == 1) + 1)),
    "tril": lambda t, n: t[0].tril(int(n == 1)),
    "dropout": lambda t, n: F.dropout(t[0], 0.0, n == 1),
    "loss": lambda t, n: F.mse_loss(t[0], t[1]),
    "cross_entropy": lambda t, n: F.cross_entropy(t[0], (t[1][:, 0] > 0).long(), label_smoothing=0.25),
    "attention": lambda t, n: F.scaled_dot_product_attention(t[0], t[1], t[1], None, 0.0, False, scale=0.5),
    "layer_norm": lambda t, n: F.layer_norm(t[0], (4,), eps=1e-3),
    "foreach number": lambda t, n: torch._foreach_mul([t[0], t[1]], n),
    "foreach numbers": lambda t, n: torch._foreach_add([t[0], t[1]], [2.0, float(n)]),
    "foreach tensor": lambda t, n: torch._foreach_mul((t[0], t[1]), torch.tensor(float(n))),
    "foreach lists": lambda t, n: torch._foreach_add([t[0], t[0]], [t[1], t[0]], alpha=n),
    "foreach three": lambda t, n: torch._foreach_addcmul([t[0]], [t[1]], [t[1]], value=n),
    "foreach of numbers": lambda t, n: torch._foreach_addcdiv([t[0]], [t[1]], [t[1]], [float(n)]),
    "foreach in place": lambda t, n: [torch._foreach_mul_([t[0]], n), t[0]][1],
    "foreach twice in place": lambda t, n: [torch._foreach_add_([t[0], t[0]], [t[1], t[1]]), t[0]][1],
    "foreach norm": lambda t, n: torch._foreach_norm([t[0], t[1]], 2 if n == 1 else math.inf),
    "foreach pow": lambda t, n: torch._foreach_pow(2.0, [t[0], t[1]]),
}
"""Functions of two tensors of one shape and a number, by name."""

MODES: dict[str, Callable[[], Any]] = {
    "grad": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
}


@dataclass(frozen=True)
class Form:
    """A call but for the values of its tensors."""

    name: str
    number: Any
    mode: str
    placements: tuple[Placement, ...]
    dtypes: tuple[torch.dtype, ...]
    needs: tuple[bool, ...]
    default: torch.dtype

    def leaves(self, seed: int) -> list[torch.Tensor]:
        """The whole tensors; the second one is of few values where the first is, so that ties show."""
        values = [numbers(4, 4, seed=2 * seed + i) for i in range(2)]
        return [
            v.mul(2).to(dtype).requires_grad_(needs and dtype.is_floating_point)
            for v, dtype, needs in zip(values, self.dtypes, self.needs, strict=True)
        ]

    def __str__(self) -> str:
        placed = ", ".join(
            f"{p} {d} {n}" for p, d, n in zip(self.placements, self.dtypes, self.needs, strict=True)
        )
        return f"{self.name}, n = {self.number!r}, {self.mode}, {placed}, default {self.default}"


def forms(count: int, seed: int) -> Iterator[Form]:
    """Random forms, each of which comes with some that differ from it little."""
    source = random.Random(seed)
    placements = [S0, S1, R, P]
    dtypes = [torch.float64] * 4 + [torch.float32, torch.int64]
    for _ in range(count):
        name, mode = source.choice(list(CALLS)), source.choice(list(MODES))
        placed = (source.choice(placements),) * 2 if source.random() < 0.7 else (S0, R)
        dtype = (source.choice(dtypes), source.choice(dtypes))
        needs = (source.random() < 0.5, source.random() < 0.5)
        for number in source.sample(NUMBERS, 2):
            default = source.choice([torch.float32, torch.float64])
            yield Form(name, number, mode, placed, dtype, needs, default)


def shown(value: Any) -> Any:
    """All of a result that must be the same, as values that can be compared."""
    if isinstance(value, DTensor):
        return (
            "DTensor",
            value._spec,
            tuple(value.shape),
            value._untracked,
            value._meta is None,
            shown(value._local),
        )
    if isinstance(value, torch.Tensor):
        return (value.dtype, tuple(value.shape), value.requires_grad, repr(value.detach().tolist()))
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [shown(item) for item in value])
    return repr(value)


def without_meta(value: Any) -> Any:
    """What `shown` gives, but for whether the meta of a tensor was asked for already."""
    if isinstance(value, tuple) and value and value[0] == "DTensor":
        return (*value[:4], value[5])
    if isinstance(value, (list, tuple)):
        return type(value)([without_meta(item) for item in value])
    return value


def parts(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def run(form: Form, leaves: Sequence[Any], grads_of: Sequence[torch.Tensor]) -> tuple[Any, Any]:
    """The result (or the refusal) of a call, and what must be equal of it: gradients and written operands too."""
    torch.manual_seed(3)
    torch.set_default_dtype(form.default)
    try:
        with warnings.catch_warnings(), MODES[form.mode]():
            warnings.simplefilter("ignore")
            # Copies, so that leaves may be written to.
            operands = [leaf * 1 if leaf.requires_grad else leaf.clone() for leaf in leaves]
            result = CALLS[form.name](operands, form.number)
    except (ValueError, NotImplementedError, RuntimeError, TypeError, IndexError) as error:
        return error, (type(error).__name__, str(error))
    finally:
        torch.set_default_dtype(torch.float32)
    facts = [without_meta(shown(result)), without_meta(shown(operands))]
    terms = [
        (item.full_tensor() if isinstance(item, DTensor) else item).double().sin().sum()
        for item in parts(result)
        if isinstance(item, torch.Tensor) and item.requires_grad and not _carries_none(item)
    ]
    if terms:
        torch.stack(terms).sum().backward()
        facts.append([None if leaf.grad is None else shown(leaf.grad) for leaf in grads_of])
    return result, facts


def _carries_none(item: Any) -> bool:
    return isinstance(item, DTensor) and any(op in ("max", "min", "prod") for op in item.layout.partial)


def distributed(form: Form, seed: int, mesh: DeviceMesh) -> tuple[list[Any], list[torch.Tensor]]:
    whole = form.leaves(seed)
    made = [laid_out(w.detach(), mesh, p) for w, p in zip(whole, form.placements, strict=True)]
    for tensor, w in zip(made, whole, strict=True):
        tensor.requires_grad_(w.requires_grad)
    return made, [tensor._local for tensor in made]


def compared(seed: int, count: int) -> tuple[int, int, list[str]]:
    """Numbers of accepted and refused calls, and what is wrong."""
    mesh = line()
    accepted, refused, wrong = 0, 0, []
    dispatcher.clear_cache()
    kept: dict[str, Any] = {}
    for form in forms(count, seed):
        for values in (1, 2):  # the second one is hot in any case
            _, hot = run(form, *distributed(form, values, mesh))
        kept = {name: (table.plans, table.entries) for name, table in dispatcher._tables.items()}
        dispatcher.clear_cache()
        result, cold = run(form, *distributed(form, 2, mesh))
        for name, (plans, entries) in kept.items():
            dispatcher._tables[name].plans, dispatcher._tables[name].entries = plans, entries
        if hot != cold:
            wrong.append(f"{form}\n    hot  {hot}\n    cold {cold}")
        if isinstance(result, Exception):
            refused += 1
            continue
        accepted += 1
        leaves = form.leaves(2)
        expected, _ = run(form, leaves, leaves)
        if isinstance(expected, Exception):
            wrong.append(f"{form}: one device refuses it: {expected}")
            continue
        for got, wanted in zip(parts(result), parts(expected), strict=True):
            problem = _differs(got, wanted, form)
            if problem:
                wrong.append(f"{form}: {problem}")
    return accepted, refused, wrong


def _differs(got: Any, wanted: Any, form: Form) -> str:
    if not isinstance(wanted, torch.Tensor):
        return "" if got == wanted else f"{got!r} instead of {wanted!r}"
    whole = got.detach().full_tensor() if isinstance(got, DTensor) else got
    if (whole.shape, whole.dtype) != (wanted.shape, wanted.dtype):
        return f"{whole.dtype} {tuple(whole.shape)} instead of {wanted.dtype} {tuple(wanted.shape)}"
    close = {torch.float64: 1e-9, torch.float32: 1e-4}.get(whole.dtype, 0.1)
    if form.mode == "autocast":
        close = 0.1
    equal = torch.allclose(whole.double(), wanted.detach().double(), close, close, equal_nan=True)
    return "" if equal else f"{whole} instead of {wanted}"


@pytest.mark.parametrize("seed", range(2))
def test_random_calls(seed: int, ranks2: RankPool) -> None:
    for accepted, refused, wrong in ranks2.run(compared, seed, 300):
        assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong[:6])
        assert accepted > 200 and refused > 50, (accepted, refused)


def changed_between() -> None:
    """What a tensor is changes between two calls: the remembered form of it changes too."""
    mesh = line()
    whole = numbers(4, 4)

    def check(x: DTensor, expected: torch.Tensor) -> None:
        for _ in range(2):
            close = 1e-12 if expected.dtype == torch.float64 else 2e-2
            assert_equal(x * 2.5, expected * 2.5, "product", close)
            assert_equal(x.sum(1), expected.sum(1), "sum", close)
            assert_equal(torch.stack([x, x]), torch.stack([expected, expected]), "stack")

    x = laid_out(whole, mesh, S0)
    check(x, whole)
    for placement, other in ((S1, whole.float()), (R, whole[:2]), (S0, whole.long()), (P, whole.view(2, 8))):
        x.data = laid_out(other, mesh, placement)
        check(x, other)

    model = nn.Linear(4, 4, dtype=torch.float64)
    weight = model.weight.detach().clone()
    distribute_parameter(model, "weight", mesh, [S0], src_data_rank=None)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        model.to(dtype)
        weight = weight.to(dtype)
        check(model.weight, weight)  # type: ignore[arg-type]
        for twin in (copy.deepcopy(model.weight), pickle.loads(pickle.dumps(model.weight))):
            check(twin, weight)

    x = laid_out(whole, mesh, R)
    y = laid_out(whole, mesh, S0)
    for needs in (False, True, False, True):
        x.to_local().requires_grad_(needs)
        with torch.no_grad():
            silent = x * 2
        product = x.redistribute([S0]) * y
        assert product.requires_grad == needs and silent._untracked == needs and not silent.requires_grad
        if needs:
            product.sum().backward()
            assert_equal(x.grad, whole)
            x.grad = None

    for dtype in (torch.float32, torch.float64, torch.float32):
        torch.set_default_dtype(dtype)
        try:
            assert (laid_out(whole.long(), mesh, S0) * 0.5).dtype == dtype
            assert (laid_out(whole.long(), mesh, S0) / 2).dtype == dtype
        finally:
            torch.set_default_dtype(torch.float32)


def test_a_tensor_that_changes_between_calls(ranks2: RankPool) -> None:
    ranks2.run(changed_between)


class Scaled(RowsOp):
    """A strategy that looks at a number, or at the value of a tensor, before it makes its arguments."""

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bound = self.bind(args, kwargs)
        factor = bound["factor"]
        factor = factor.item() if isinstance(factor, DTensor) else factor
        sign = math.copysign(1.0, factor) if factor == factor else 0.0
        return (bound["input"].to_local(), sign), {}, [bound["input"].layout]

    def rows(self, cache_values: Sequence[Any]) -> Any:
        return [row(f"S({dim}) -> S({dim})") for dim in range(cache_values[0].ndim)]

    def output_ndims(self, cache_values: Sequence[Any]) -> Any:
        return (cache_values[0].ndim,)


def own_strategies() -> None:
    register_op("hot_and_cold_scaled", Scaled, signature="input, factor")
    mesh = line()
    x = laid_out(numbers(4, 4), mesh, S0)

    def product(input: torch.Tensor, other: float) -> torch.Tensor:
        return input * other

    def scaled(*args: Any, **named: Any) -> DTensor:
        return dispatcher.dispatch("hot_and_cold_scaled", product, args, named)  # type: ignore[no-any-return]

    for factor in (2.0, -2.0, 2.0, 0.0, -0.0, 0.0, math.nan, 1, True, -1, math.inf, -math.inf):
        sign = math.copysign(1.0, factor) if factor == factor else 0.0
        tensor = laid_out(torch.tensor(float(factor), dtype=torch.float64), mesh, R)
        for got in (
            scaled(x, factor),
            scaled(x, tensor),
            scaled(input=x, factor=factor),
            scaled(factor=tensor, input=x),
        ):
            assert_equal(got, numbers(4, 4) * sign, str(factor))


def test_strategies_that_look_at_values(ranks2: RankPool) -> None:
    ranks2.run(own_strategies)


def many_shapes() -> None:
    """Shapes that never come again: everything that is remembered is bounded."""
    mesh = line()
    for length in range(1, 1500):
        x = laid_out(torch.ones(2, length), mesh, S0)
        (x * 2.5 + x).view(-1)
        torch.cat([x, x], 1).t()
        torch._foreach_add([x], [float(length)])
    assert max(info.entries for info in dispatcher.cache_info().values()) <= 1024
    assert max(len(table.plans) for table in dispatcher._tables.values()) <= 1024
    assert len(meta._metas) <= 8192 and len(meta._global_shapes) <= 8192


def test_shapes_that_never_come_again(ranks2: RankPool) -> None:
    ranks2.run(many_shapes)


def in_threads() -> list[str]:
    """Several threads make, use and clear the plans at once."""
    mesh = line()
    failures: list[str] = []

    def work(seed: int) -> None:
        source = random.Random(seed)
        try:
            for _ in range(150):
                whole = torch.ones(
                    4, 2 * source.randrange(1, 6), dtype=source.choice((torch.float32, torch.int64))
                )
                x, number = laid_out(whole, mesh, S0), source.choice(NUMBERS)
                with torch.set_grad_enabled(source.random() < 0.5):
                    for f in (
                        lambda t, n=number: t * n,
                        lambda t: t + t,
                        lambda t: t.sum(1),
                        lambda t: t.max(1).indices,
                    ):
                        got, expected = f(x), f(whole)
                        assert (got.shape, got.dtype) == (expected.shape, expected.dtype), (got, expected)
                if source.random() < 0.02:
                    dispatcher.clear_cache()
        except Exception as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def test_threads(ranks2: RankPool) -> None:
    assert ranks2.run(in_threads) == [[], []]
