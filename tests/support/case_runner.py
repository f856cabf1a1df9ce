"""Runs the cases of a brute-force sample on the ranks (in the rank processes) and judges them.

Every case is run in lock step: what a case does on a rank (equal, refused, failed) is collected, never raised, so
that the ranks stay together. A rank that goes another way than the others is noticed at the next case that all
finish, through a group of processes of its own.
"""

from __future__ import annotations

import contextlib
import functools
import pkgutil
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from hyper_layout import DeviceMesh, Layout, Partial
from tests.support.cases import Case, case_layouts, one_axis_columns, two_axis_cases, varying_axes
from tests.support.sample import Input, Sample

__all__ = ["Outcome", "call_alone", "run_sample"]

Tensor: TypeAlias = Any

REFUSALS_WITH_CURES = 20
REFUSALS = (ValueError, NotImplementedError)
LOCK_STEP_TIMEOUT = timedelta(seconds=15)
NO_GRADIENT = ("max", "min", "prod")
DTYPE_TOLERANCE = {"torch.float32": 1e-5, "torch.float16": 4e-3, "torch.bfloat16": 4e-2}


@dataclass(frozen=True)
class Outcome:
    """What a case came to.

    Attributes:
        case: The layouts as text.
        state: ``equal``, ``refused`` or ``failed``.
        text: The output layouts, the message of the refusal, or what is wrong.
        calls: How many calls were compared.
    """

    case: str
    state: str
    text: str
    calls: int = 0


def run_sample(sample: Sample, world: int) -> list[Outcome]:
    """All cases of a sample; the same on every rank (called through a pool).

    Args:
        sample: The sample.
        world: 2: all cases of one mesh axis. 4: cases of a mesh of two axes.
    """
    shape, names = {2: ((2,), ("tp",)), 4: ((2, 2), ("dp", "tp"))}[world]
    runner = _Runner(sample, _start(shape, names))
    inputs: Sequence[Any] = sample.inputs
    columns = one_axis_columns(inputs, len(shape))
    one_way = (False,) * len(inputs)
    if world == 2:
        cases = [Case((column,), one_way) for column in columns]
    else:
        beside = tuple("plain" if given.tokens == ("plain",) else "R" for given in inputs)
        accepted = [c for c in columns if runner.accepts(Case((c, beside), one_way))]
        cases = two_axis_cases(columns, accepted, sample.two_axes)
    return [outcome for case in cases for outcome in runner.run(case)]


@functools.cache
def _start(shape: tuple[int, ...], names: tuple[str, ...]) -> DeviceMesh:
    """The mesh, with the operator families and the adapter loaded."""
    import hyper_ops
    from hyper_dtensor import init_device_mesh

    hyper_ops.load_ops()
    return init_device_mesh("cpu", shape, mesh_dim_names=names)


@contextlib.contextmanager
def _without_cures() -> Iterator[None]:
    import hyper_dispatch.refusal as module

    search = vars(module)["find_cures"]
    vars(module)["find_cures"] = lambda *_: []
    try:
        yield
    finally:
        vars(module)["find_cures"] = search


class _Runner:
    """One sample on one mesh."""

    def __init__(self, sample: Sample, mesh: DeviceMesh) -> None:
        self.sample = sample
        self.mesh = mesh
        self.inputs: Sequence[Input] = sample.inputs  # type: ignore[assignment]  # normalised in __post_init__
        self.function = _resolve(sample.call)
        self.values = [_values(given, number) for number, given in enumerate(self.inputs)]
        self.references = [_Reference(self, variant) for variant in sample.variants]
        self.pieces: dict[tuple[int, Layout], Tensor] = {}
        self.probed: dict[tuple[Any, ...], Tensor] = {}
        self.finished = 0
        self.refusals = 0

    def cures_of_a_few(self) -> AbstractContextManager[None]:
        """Let the first refusals of a sample look for their cures, which takes most of the time of a refusal.

        Each is looked for by one rank: what the others would find is the same.
        """
        import torch.distributed as dist

        mine = self.refusals % dist.get_world_size() == dist.get_rank()
        return contextlib.nullcontext() if mine and self.refusals < REFUSALS_WITH_CURES else _without_cures()

    def call(self, tensors: Sequence[Tensor], variant: Any) -> Any:
        """The operation on tensors, plain or distributed."""
        return _call(self.sample, self.function, tensors, variant)

    def accepts(self, case: Case) -> bool:
        """Whether the first call of a case is accepted, in any mode; not compared with anything."""
        layouts = case_layouts(case, self.inputs, self.mesh)
        if layouts is None:
            return False
        for needs_grad in self.modes(layouts):
            tensors = self.probes(case, layouts, needs_grad)
            try:
                with _without_cures():  # nobody reads them here
                    self.call(tensors, self.sample.variants[0])
            except REFUSALS:
                continue
            return True
        return False

    def probes(self, case: Case, layouts: Sequence[Layout | None], needs_grad: bool) -> list[Tensor]:
        """Tensors for a call that is compared with nothing: the same as before, unless one is written to."""
        if self.sample.inplace:
            return self.make(case, layouts, needs_grad)[0]
        tensors = []
        for i, layout in enumerate(layouts):
            varying = varying_axes(case, i)
            key = (i, layout, tuple(varying), needs_grad)
            if key not in self.probed:
                self.probed[key] = self.made(i, layout, varying, needs_grad)[0]
            tensors.append(self.probed[key])
        return tensors

    def modes(self, layouts: Sequence[Layout | None]) -> list[bool]:
        """With gradients; without them too where a Partial carries none."""
        if not self.sample.grads:
            return [False]
        none_carried = any(op in NO_GRADIENT for layout in layouts if layout for op in layout.partial)
        return [True, False] if none_carried else [True]

    def run(self, case: Case) -> list[Outcome]:
        """The outcomes of a case, one per mode; none if the case is impossible."""
        layouts = case_layouts(case, self.inputs, self.mesh)
        if layouts is None:
            return []
        return [self.run_mode(case, layouts, needs_grad) for needs_grad in self.modes(layouts)]

    def run_mode(self, case: Case, layouts: Sequence[Layout | None], needs_grad: bool) -> Outcome:
        """All variants, then the first again, now with a warm cache."""
        name = str(case)
        equal, refusal, problem, outputs = 0, "", "", ""
        for number in [*range(len(self.references)), 0]:
            if refusal and not equal and number == 0:
                break
            try:
                outputs_now = self.compare(case, layouts, needs_grad, number)
                equal += 1
                outputs = outputs or outputs_now
            except _Refused as refused:
                refusal = refusal or str(refused)
                if refused.__cause__ is None:
                    problem = problem or str(refused)
            except _Wrong as wrong:
                problem = problem or f"variant {number}{'' if needs_grad else ', no grad'}: {wrong}"
            except Exception:
                trace = "".join(traceback.format_exc(limit=-6)).strip()
                problem = problem or f"variant {number}{'' if needs_grad else ', no grad'}: {trace}"
        if equal or problem:
            self.keep_step(name)
        if problem:
            return Outcome(name, "failed", problem)
        if equal:
            return Outcome(name, "equal", outputs, equal)
        return Outcome(name, "refused", refusal.partition("\n")[0])

    def make(
        self, case: Case, layouts: Sequence[Layout | None], needs_grad: bool
    ) -> tuple[list[Tensor], list[Tensor | None]]:
        """The tensors of a case, and the leaf below each that gets a gradient."""
        made = [self.made(i, layout, varying_axes(case, i), needs_grad) for i, layout in enumerate(layouts)]
        return [tensor for tensor, _ in made], [leaf for _, leaf in made]

    def made(
        self, i: int, layout: Layout | None, varying: Sequence[int], needs_grad: bool
    ) -> tuple[Tensor, Tensor | None]:
        """One input, and the leaf below it if that gets a gradient."""
        from hyper_dtensor import DTensor

        value = self.values[i]
        wants = needs_grad and self.inputs[i].grad and value.is_floating_point()
        if layout is None:
            leaf = value.clone()
        else:
            wants = wants and not any(op in NO_GRADIENT for op in layout.partial)
            leaf = self.piece(i, layout).clone()
        leaf.requires_grad_(wants)
        local = leaf.clone() if self.sample.inplace and i == 0 else leaf
        if layout is None:
            return local, leaf if wants else None
        grad_placements = [
            Partial() if axis in varying else _own_gradient(placement)
            for axis, placement in enumerate(layout.placements)
        ]
        tensor = DTensor.from_local(
            local, self.mesh, layout.placements, grad_placements=grad_placements if varying else None
        )
        return tensor, leaf if wants else None

    def piece(self, i: int, layout: Layout) -> Tensor:
        """This rank's part of input ``i`` in a layout; kept for the next case."""
        known = self.pieces.get((i, layout))
        if known is None:
            value = self.values[i]
            known = _piece(value, layout, i)[layout.local_slice(value.shape)]
            self.pieces[i, layout] = known
        return known

    def compare(self, case: Case, layouts: Sequence[Layout | None], needs_grad: bool, number: int) -> str:
        """One call against the reference; the layouts of the outputs as text.

        Raises:
            _Refused: If the operation was refused.
            _Wrong: If anything differs.
        """
        reference = self.references[number]
        tensors, leaves = self.make(case, layouts, needs_grad)
        before = [_local(t).detach().clone() for t in tensors]
        try:
            with self.cures_of_a_few():
                result = self.call(tensors, self.sample.variants[number])
        except REFUSALS as refusal:
            self.refusals += 1
            for i, (t, old) in enumerate(zip(tensors, before, strict=True)):
                if not _same(_local(t), old):
                    raise _Refused(f"refused, but input {i} was written to") from None
            raise _Refused(str(refusal)) from refusal
        outputs = _flatten(result)
        if len(outputs) != len(reference.outputs):
            raise _Wrong(f"{len(outputs)} outputs instead of {len(reference.outputs)}")
        tolerance = self.sample.tolerance
        loss: Tensor = None
        for i, (output, wanted) in enumerate(zip(outputs, reference.outputs, strict=True)):
            full = self.full(output, wanted, f"output {i}", tolerance)
            if full is not None and needs_grad and full.requires_grad:
                term = (full * reference.weights[i]).sum()
                loss = term if loss is None else loss + term
        self.check_inputs(tensors, before, reference)
        if (
            needs_grad
            and all(leaf is not None for leaf in leaves)
            and (loss is None) == reference.differentiable
        ):
            raise _Wrong("the result needs no gradient, or only it needs one")
        if loss is not None:
            loss.backward()
            for i, leaf in enumerate(leaves):
                if leaf is not None:
                    self.check_gradient(i, leaf, layouts[i], varying_axes(case, i), reference)
        return " ".join(_token_text(output) for output in outputs)

    def full(self, output: Any, wanted: Any, what: str, tolerance: float) -> Tensor | None:
        """The whole of an output, compared; None if it is no tensor."""
        import torch

        if not isinstance(wanted, torch.Tensor):
            if output != wanted:
                raise _Wrong(f"{what} is {output!r} instead of {wanted!r}")
            return None
        if _is_distributed(output):
            if tuple(output.shape) != tuple(wanted.shape):
                raise _Wrong(
                    f"{what} has shape {tuple(output.shape)} instead of {tuple(wanted.shape)}: {output!r}"
                )
            output.layout.check_even(output.shape)
            if output.layout.local_shape(output.shape) != tuple(output._local.shape):
                raise _Wrong(f"{what} {output!r} has local shape {tuple(output._local.shape)}")
            full = output.full_tensor()
        else:
            full = output
        _check_close(full, wanted, f"{what} {output!r}" if _is_distributed(output) else what, tolerance)
        return full

    def check_inputs(
        self, tensors: Sequence[Tensor], before: Sequence[Tensor], reference: _Reference
    ) -> None:
        """The target of an in-place call has the new value; every other input is untouched."""
        for i, (t, old) in enumerate(zip(tensors, before, strict=True)):
            if self.sample.inplace and i == 0:
                target = t.full_tensor() if _is_distributed(t) else t
                _check_close(target, reference.target, "the target after the call", self.sample.tolerance)
            elif not _same(_local(t), old):
                raise _Wrong(f"input {i} was written to")

    def check_gradient(
        self, i: int, leaf: Tensor, layout: Layout | None, varying: Sequence[int], reference: _Reference
    ) -> None:
        """The local gradient is what the table of gradient states says (design section 3)."""
        import torch

        from hyper_dtensor import get_platform

        platform = get_platform()
        gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        wanted = reference.gradients[i]
        if layout is not None:
            for axis in varying:
                gradient = platform.all_reduce(gradient, "sum", platform.group(self.mesh.ranks_along(axis)))
            wanted = wanted[layout.local_slice(wanted.shape)]
            for axis, op in enumerate(layout.partial):
                if op == "avg":
                    wanted = wanted / self.mesh.mesh_shape[axis]
        _check_close(gradient, wanted, f"the gradient of input {i}", self.sample.tolerance)

    def keep_step(self, name: str) -> None:
        """See that all ranks finished the same case.

        Raises:
            RuntimeError: If another rank finished another case, or none within the time.
        """
        import torch
        import torch.distributed as dist

        self.finished += 1
        mine = torch.tensor([self.finished, zlib.crc32(name.encode())])
        extremes = torch.cat([mine, -mine])
        try:
            dist.all_reduce(extremes, dist.ReduceOp.MAX, group=_control_group())
        except RuntimeError as error:
            raise RuntimeError(
                f"{self.sample}: this rank finished {name}, another one did not: {error}"
            ) from None
        if not torch.equal(extremes[:2], -extremes[2:]):  # the greatest is not the least
            raise RuntimeError(f"{self.sample}: the ranks refuse different cases; this one accepted {name}")


class _Refused(Exception):
    """The operation was refused."""


class _Wrong(Exception):
    """Something differs from the reference."""


class _Reference:
    """The operation on one device: outputs, gradients, and the target after an in-place call."""

    def __init__(self, runner: _Runner, variant: Any) -> None:
        import torch

        leaves, tensors = _alone(runner.sample, runner.values)
        self.outputs = _flatten(runner.call(tensors, variant))
        self.target = tensors[0].detach().clone()
        self.weights: list[Tensor] = []
        generator = torch.Generator().manual_seed(77)
        loss: Tensor = None
        for output in self.outputs:
            weight: Tensor = None
            if isinstance(output, torch.Tensor) and output.is_floating_point():
                weight = torch.randn(output.shape, generator=generator, dtype=torch.float64).to(output.dtype)
                if output.requires_grad:
                    term = (output * weight).sum()
                    loss = term if loss is None else loss + term
            self.weights.append(weight)
        self.differentiable = loss is not None
        if loss is not None:
            loss.backward()
        self.outputs = [o.detach() if isinstance(o, torch.Tensor) else o for o in self.outputs]
        self.gradients = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves]


def call_alone(sample: Sample, variant: Any, watched: AbstractContextManager[Any]) -> Any:
    """The call of a sample on one device, inside of a context."""
    inputs: Sequence[Any] = sample.inputs
    _, tensors = _alone(sample, [_values(given, number) for number, given in enumerate(inputs)])
    with watched:
        return _call(sample, _resolve(sample.call), tensors, variant)


def _alone(sample: Sample, values: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """The leaves and the tensors of the call on one device."""
    leaves = []
    inputs: Sequence[Any] = sample.inputs
    for given, value in zip(inputs, values, strict=True):
        leaf = value.clone()
        leaves.append(leaf.requires_grad_(sample.grads and given.grad and value.is_floating_point()))
    return leaves, [leaf.clone() if sample.inplace and i == 0 else leaf for i, leaf in enumerate(leaves)]


def _call(sample: Sample, function: Callable[..., Any], tensors: Sequence[Tensor], variant: Any) -> Any:
    given = (list(tensors),) if sample.tensors_in_list else tuple(tensors)
    return function(*given, **variant) if isinstance(variant, Mapping) else function(*given, *variant)


@functools.cache
def _control_group() -> Any:
    import torch.distributed as dist

    return dist.new_group(backend="gloo", timeout=LOCK_STEP_TIMEOUT)


def _resolve(call: str | Callable[..., Any]) -> Callable[..., Any]:
    """The function of a name such as ``torch.add``, ``Tensor.add_``, ``F.gelu``, ``operator.add``."""
    if not isinstance(call, str):
        return call
    for short, long in (("Tensor.", "torch.Tensor."), ("F.", "torch.nn.functional.")):
        if call.startswith(short):
            call = long + call.removeprefix(short)
    found: Callable[..., Any] = pkgutil.resolve_name(call)
    return found


def _values(given: Input, number: int) -> Tensor:
    """The whole value of an input; equal on all ranks."""
    import torch

    generator = torch.Generator().manual_seed(1000 + number)

    def uniform(low: float, high: float) -> Tensor:
        return torch.rand(given.shape, generator=generator, dtype=torch.float64) * (high - low) + low

    match given.values:
        case "normal":
            value = torch.randn(given.shape, generator=generator, dtype=torch.float64)
        case "positive":
            value = uniform(0.5, 2.0)
        case "unit":
            value = uniform(-0.9, 0.9)
        case "tied":
            value = torch.randint(-1, 2, given.shape, generator=generator).to(torch.float64)
        case "integers":
            value = torch.randint(given.low, given.high, given.shape, generator=generator)
        case "booleans":
            value = torch.randint(0, 2, given.shape, generator=generator).to(torch.bool)
        case other:
            raise ValueError(f"unknown values {other!r}")
    return value if given.dtype is None else value.to(getattr(torch, given.dtype))


def _piece(value: Tensor, layout: Layout, number: int) -> Tensor:
    """This rank's summand (factor, ...) of the whole value: uneven, of mixed signs, not yet cut."""
    import torch

    mesh = layout.mesh
    seed = 5000 + number
    for axis, op in enumerate(layout.partial):
        if op is None:
            continue
        size, mine = mesh.mesh_shape[axis], mesh.get_local_rank(axis)
        generator = torch.Generator().manual_seed(seed * 10 + axis)
        noise = torch.randn((size, *value.shape), generator=generator, dtype=torch.float64)
        if not value.is_floating_point():
            noise = (noise * 5).round()
        noise = noise.to(value.dtype)
        owner = torch.randint(0, size, value.shape, generator=generator) == mine
        if op in ("sum", "avg"):
            total = value * size if op == "avg" else value
            value = noise[mine] if mine < size - 1 else total - noise[:-1].sum(0)
        elif op == "prod":
            factors = noise[:-1].sign() * (noise[:-1].abs() + 0.5)
            value = factors[mine] if mine < size - 1 else value / factors.prod(0)
        else:
            away = noise[mine].abs() * (-1 if op == "max" else 1)
            value = torch.where(owner, value, value + away)
        # The next axis splits this rank's summand, and differently in each of them.
        seed = seed * size + mine
    return value


def _own_gradient(placement: Any) -> Any:
    from hyper_layout import Replicate

    return placement if placement.is_shard() else Replicate()


def _flatten(result: Any) -> list[Any]:
    if isinstance(result, (list, tuple)):
        return [leaf for item in result for leaf in _flatten(item)]
    return [result]


def _is_distributed(value: Any) -> bool:
    return hasattr(value, "_spec")


def _local(value: Any) -> Tensor:
    return value._local if _is_distributed(value) else value


def _same(a: Tensor, b: Tensor) -> bool:
    """Whether two local tensors hold the same bits, NaN included."""
    import torch

    a = a.detach()
    if torch.equal(a, b):
        return True
    return a.shape == b.shape and torch.allclose(a.double(), b.double(), 0.0, 0.0, equal_nan=True)


def _token_text(output: Any) -> str:
    """Placements of an output; ``-`` for a plain one."""
    if not _is_distributed(output):
        return "-"
    return ",".join(placement.notation for placement in output.placements)


def _check_close(got: Tensor, wanted: Tensor, what: str, tolerance: float) -> None:
    """Compare two whole tensors.

    Raises:
        _Wrong: If type, shape or values differ.
    """
    import torch

    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        raise _Wrong(f"{what} is {got.dtype}{list(got.shape)} instead of {wanted.dtype}{list(wanted.shape)}")
    got, wanted = got.detach(), wanted.detach()
    if torch.equal(got, wanted):
        return
    if not wanted.is_floating_point():
        raise _Wrong(f"{what}: {got.tolist()} instead of {wanted.tolist()}")
    tolerance = max(tolerance, DTYPE_TOLERANCE.get(str(wanted.dtype), 0.0))
    got, wanted = got.double(), wanted.double()
    finite = wanted.isfinite()
    if not finite.all():
        if not torch.equal(got[~finite].nan_to_num(nan=123.0), wanted[~finite].nan_to_num(nan=123.0)):
            raise _Wrong(f"{what}: {got.tolist()} instead of {wanted.tolist()}")
        got, wanted = got[finite], wanted[finite]
        if not wanted.numel():
            return
    scale = max(1.0, wanted.abs().max().item())
    error = (got - wanted).abs().max().item() / scale
    if not error <= tolerance:
        raise _Wrong(
            f"{what}: error {error:.3g} of {scale:.3g}\n      {got.tolist()}\n      {wanted.tolist()}"
        )
