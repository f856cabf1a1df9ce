"""Operators of MindSpore in many layouts: equal to one device, values and gradients, or refused.

Two ranks form the mesh ``(2,)``, on which every combination of placements is tried; four form ``(2, 2)``, on which those
combinations are tried that the test lists.

The samples are those of ``tests.support.sample``; a call is named as in ``mint.add``, ``ops.add``, ``F.linear``,
``Tensor.add``, ``operator.add``, or is a function of a test module. All cases of a sample run in one call of the ranks.
"""

from __future__ import annotations

import pkgutil
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tests.platform_ms.helpers import mesh_of_all
from tests.support.cases import Case, case_layouts, one_axis_columns, varying_axes
from tests.support.ms_ranks import MindSporeRankPool
from tests.support.sample import Input, Report, Sample

__all__ = ["compare"]

TOLERANCE = {"float64": 1e-11, "float32": 2e-5, "float16": 4e-3}
NAMESPACES = {
    "mint.": "mindspore.mint.",
    "ops.": "mindspore.ops.",
    "nn.": "mindspore.nn.",
    "F.": "mindspore.mint.nn.functional.",
    "Tensor.": "mindspore.Tensor.",
}


def compare(
    pool: MindSporeRankPool,
    sample: Sample,
    reference: str | Callable[..., Any] | None = None,
    *,
    pairs: Sequence[tuple[str, str]] | None = None,
    timeout: float = 110.0,
) -> Report:
    """Run all layouts of a sample on two ranks, or some on four.

    Args:
        pool: The ranks.
        sample: The sample.
        reference: What one device calls, where MindSpore has no kernel for the sample's own call.
        pairs: For four ranks: placements of all inputs on the first and on the second axis, as in
            ``("S(0) R", "R S(0)")``. Each must be accepted.
        timeout: In seconds.

    Raises:
        AssertionError: If a case is neither equal nor refused alike, or a row of ``sample.accepts`` is refused.
    """
    by_rank = pool.run(run_sample, sample, reference, pairs, timeout=timeout)
    report, failures = Report(), []
    for outcomes in zip(*by_rank, strict=True):
        case, states = outcomes[0][0], [state for _, state, _ in outcomes]
        if "failed" in states or len(set(states)) > 1:
            failures.append(
                f"{case}: {states}\n{outcomes[states.index('failed') if 'failed' in states else 0][2]}"
            )
        elif states[0] == "equal":
            report.accepted[case] = outcomes[0][2]
        else:
            report.refused[case] = outcomes[0][2]
    assert not failures, f"{sample}: {len(failures)} cases neither equal nor refused\n" + "\n".join(
        failures[:3]
    )
    assert report.accepted, f"{sample}: no layout was accepted, not even Replicate: {report.refused}"
    missing = report.missing(sample.accepts) if pairs is None else report.refused
    assert not missing, f"{sample}: layouts that must be accepted\n" + "\n".join(map(str, missing))
    return report


# ---------------------------------------------------------------------------------------------------------
# In the ranks
# ---------------------------------------------------------------------------------------------------------
def run_sample(
    sample: Sample,
    reference: str | Callable[..., Any] | None,
    pairs: Sequence[tuple[str, str]] | None = None,
) -> list[tuple[str, str, str]]:
    """``(case, equal | refused | failed, text)`` of every case."""
    mesh = mesh_of_all() if pairs is None else mesh_of_all(2, 2)
    inputs: Sequence[Input] = sample.inputs  # type: ignore[assignment]
    values = [_values(given, number) for number, given in enumerate(inputs)]
    alone = sample if reference is None else replace(sample, call=reference)
    references = [_reference(alone, inputs, values, variant) for variant in sample.variants]
    found = []
    if pairs is None:
        cases = [(column,) for column in one_axis_columns(inputs, 1)]
    else:
        cases = [(tuple(dp.split()), tuple(tp.split())) for dp, tp in pairs]
    for columns in cases:
        case = Case(columns, (False,) * len(inputs))
        layouts = case_layouts(case, inputs, mesh)
        if layouts is not None:
            found.append((str(case), *_judge(sample, case, layouts, mesh, inputs, values, references)))
    return found


def _judge(
    sample: Sample, case: Case, layouts: Any, mesh: Any, inputs: Any, values: Any, references: Any
) -> tuple[str, str]:
    text = ""
    accepted = False
    # The first call again at the end: what an entry of the layout cache keeps of the call that made it shows.
    for number in [*range(len(references)), 0]:
        try:
            text = _run_case(
                sample, case, layouts, mesh, inputs, values, sample.variants[number], references[number]
            )
            accepted = True
        except (ValueError, NotImplementedError) as error:
            text = text or f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        except Exception:
            return "failed", f"variant {number}: {''.join(traceback.format_exc(limit=-6))}"
    return ("equal" if accepted else "refused"), text


def _run_case(
    sample: Sample,
    case: Case,
    layouts: Any,
    mesh: Any,
    inputs: Any,
    values: Any,
    variant: Any,
    reference: Any,
) -> str:
    from mindspore import Tensor, mint

    from hyper_dtensor import DTensor
    from hyper_layout import Partial, Replicate

    locals_, placed = [], []
    for number, (value, layout) in enumerate(zip(values, layouts, strict=True)):
        if layout is None:
            locals_.append(Tensor(value))
            placed.append(None)
            continue
        varying = varying_axes(case, number)
        grads = [
            Partial() if axis in varying else placement if placement.is_shard() else Replicate()
            for axis, placement in enumerate(layout.placements)
        ]
        locals_.append(Tensor(np.array(_piece(value, layout, number), order="C")))
        placed.append((list(layout.placements), grads))

    shown: list[str] = []

    def loss(*tensors: Any) -> Any:
        given = [
            x if where is None else DTensor.from_local(x, mesh, where[0], grad_placements=where[1])
            for x, where in zip(tensors, placed, strict=True)
        ]
        outputs = _flatten(_call(sample, given, variant))
        shown[:] = [_shown(output) for output in outputs]
        whole = [output.full_tensor() if isinstance(output, DTensor) else output for output in outputs]
        total = None
        for output, weight in zip(whole, reference["weights"], strict=True):
            if weight is not None:
                term = mint.sum(mint.mul(output, Tensor(weight)))
                total = term if total is None else mint.add(total, term)
        return (mint.sum(tensors[0] * 0) if total is None else total), *whole

    outputs, gradients = _differentiate(sample, inputs, loss, locals_)
    for number, (output, expected) in enumerate(zip(outputs, reference["outputs"], strict=True)):
        _close(output.asnumpy(), expected, f"output {number} of {case}")
    if gradients is None or not reference["differentiable"]:
        return ",".join(shown)
    positions = _wanted(inputs, values)
    for number, gradient in zip(positions, gradients, strict=True):
        expected, layout = reference["gradients"][number], layouts[number]
        found = gradient
        if layout is not None:
            expected = expected / 2 ** layout.partial.count("avg")
            if varying_axes(case, number):
                found = DTensor.from_local(gradient, mesh, placed[number][1]).full_tensor()
            else:
                expected = expected[layout.local_slice(expected.shape)]
        _close(found.asnumpy(), expected, f"gradient {number} of {case}")
    return ",".join(shown)


def _reference(sample: Sample, inputs: Any, values: Any, variant: Any) -> dict[str, Any]:
    """Outputs and gradients on one device."""
    from mindspore import Tensor, mint

    plain = [Tensor(value) for value in values]
    outputs = [output.asnumpy() for output in _flatten(_call(sample, plain, variant))]
    source = np.random.default_rng(77)
    weights: list[Any] = []
    for output in outputs:
        is_floating = np.issubdtype(output.dtype, np.floating)
        weights.append(source.standard_normal(output.shape).astype(output.dtype) if is_floating else None)

    def loss(*tensors: Any) -> Any:
        total = mint.sum(tensors[0] * 0)
        for output, weight in zip(_flatten(_call(sample, tensors, variant)), weights, strict=True):
            if weight is not None:
                total = mint.add(total, mint.sum(mint.mul(output, Tensor(weight))).astype(total.dtype))
        return total, total

    gradients = [np.zeros_like(value) for value in values]
    differentiable = sample.grads and bool(_wanted(inputs, values)) and any(w is not None for w in weights)
    if differentiable:
        _, found = _differentiate(sample, inputs, loss, plain)
        for number, gradient in zip(_wanted(inputs, values), found, strict=True):
            gradients[number] = gradient.asnumpy()
    return {"outputs": outputs, "weights": weights, "gradients": gradients, "differentiable": differentiable}


def _differentiate(sample: Sample, inputs: Any, loss: Callable[..., Any], tensors: Sequence[Any]) -> Any:
    """The further results of ``loss``, and gradients of the floating inputs (None without)."""
    import mindspore

    positions = tuple(_wanted(inputs, [x.asnumpy() for x in tensors]))
    if not sample.grads or not positions:
        return loss(*tensors)[1:], None
    (_, *outputs), gradients = mindspore.value_and_grad(loss, positions, has_aux=True)(*tensors)
    return outputs, gradients if isinstance(gradients, tuple) else (gradients,)


def _wanted(inputs: Sequence[Input], values: Sequence[Any]) -> list[int]:
    return [i for i, value in enumerate(values) if inputs[i].grad and np.issubdtype(value.dtype, np.floating)]


def _call(sample: Sample, tensors: Sequence[Any], variant: Any) -> Any:
    function = _resolve(sample.call)
    given = (list(tensors),) if sample.tensors_in_list else tuple(tensors)
    return function(*given, **variant) if isinstance(variant, Mapping) else function(*given, *variant)


def _resolve(call: str | Callable[..., Any]) -> Callable[..., Any]:
    if not isinstance(call, str):
        return call
    for short, long in NAMESPACES.items():
        if call.startswith(short):
            call = long + call.removeprefix(short)
    found: Callable[..., Any] = pkgutil.resolve_name(call)
    return found


def _values(given: Input, number: int) -> np.ndarray:
    source = np.random.default_rng(1000 + number)
    match given.values:
        case "normal":
            value: np.ndarray = source.standard_normal(given.shape)
        case "positive":
            value = source.uniform(0.5, 2.0, given.shape)
        case "unit":
            value = source.uniform(-0.9, 0.9, given.shape)
        case "integers":
            value = source.integers(given.low, given.high, given.shape)
        case "booleans":
            value = source.integers(0, 2, given.shape).astype(bool)
        case other:
            raise ValueError(f"unknown values {other!r}")
    return np.asarray(value if given.dtype is None else value.astype(given.dtype))


def _piece(value: np.ndarray, layout: Any, number: int) -> np.ndarray:
    """This rank's part of the whole value; of a Partial one uneven, of mixed signs."""
    for axis, op in enumerate(layout.partial):
        if op is None:
            continue
        noise = np.random.default_rng(5000 + 100 * axis + number).standard_normal(value.shape)
        noise = noise if np.issubdtype(value.dtype, np.floating) else (noise * 5).round()
        noise = noise.astype(value.dtype)
        total = value * 2 if op == "avg" else value
        value = np.asarray(noise if layout.mesh.get_local_rank(axis) == 0 else total - noise)
    return value[layout.local_slice(value.shape)]


def _shown(output: Any) -> str:
    placements = getattr(output, "placements", None)
    return "-" if placements is None else " ".join(placement.notation for placement in placements)


def _flatten(result: Any) -> list[Any]:
    if isinstance(result, (list, tuple)):
        return [leaf for item in result for leaf in _flatten(item)]
    return [result]


def _close(found: np.ndarray, expected: np.ndarray, what: str) -> None:
    assert found.dtype == expected.dtype, (what, found.dtype, expected.dtype)
    assert found.shape == expected.shape, (what, found.shape, expected.shape)
    tolerance = TOLERANCE.get(str(expected.dtype), 0)
    scale = max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0))) if tolerance else 0.0
    same = np.isclose(found, expected, rtol=0, atol=tolerance * scale, equal_nan=True)
    assert same.all(), f"{what}\n{found}\n{expected}"
