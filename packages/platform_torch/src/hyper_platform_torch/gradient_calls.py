"""``torch.autograd.grad`` and ``torch.autograd.backward`` with DTensors among outputs or inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hyper_dtensor import DTensor, Spec, wrap
from hyper_dtensor.coalesced import Summand, reduce_together
from hyper_dtensor.collectives import reduce_sum
from hyper_dtensor.gradients import axes_of, gradient_spec, grads_of, refuse_gradient, sensitivity
from hyper_platform_torch import second_leaves

__all__ = ["autograd_backward", "autograd_grad"]


def _as_tuple(value: Any, length: int) -> tuple[Any, ...]:
    if value is None:
        return (None,) * length
    return (value,) if isinstance(value, torch.Tensor) else tuple(value)


def _local_outputs(outputs: Sequence[Any], gradients: Any) -> tuple[list[Any], list[Any]]:
    locals_, local_gradients = [], []
    for output, gradient in zip(outputs, _as_tuple(gradients, len(outputs)), strict=True):
        if isinstance(output, DTensor):
            output._check_use()
            if any(op in ("max", "min", "prod") for op in output.layout.partial):
                refuse_gradient(output, "backward")
            locals_.append(output._local)
            local_gradients.append(sensitivity(output, gradient))
        else:
            locals_.append(output)
            local_gradients.append(gradient)
    return locals_, local_gradients


def autograd_backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """``torch.autograd.backward`` on the locals; arguments as there, DTensors wherever tensors may be.

    Raises:
        RuntimeError: If an input of ``inputs`` is not a leaf and was used through an aliasing view.
    """
    tensors = _as_tuple(tensors, 1)
    locals_, gradients = _local_outputs(tensors, grad_tensors)
    local_inputs = None
    if inputs is not None:
        local_inputs = []
        for value in _as_tuple(inputs, 1):
            parts = grads_of(value) if isinstance(value, DTensor) else [(value, 0)]
            if len(parts) > 1:
                raise RuntimeError(
                    f"backward(inputs=) got {value!r}, a gathered or derived tensor whose gradient arrives "
                    "in parts; use "
                    "torch.autograd.grad for it, or call retain_grad() on it before its first use"
                )
            local_inputs.append(parts[0][0])
            local_inputs += [second for _, second in _second_leaves(value)]
    torch.autograd.backward(locals_, gradients, retain_graph, create_graph, inputs=local_inputs)


def autograd_grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """``torch.autograd.grad`` on the locals; the gradient of a DTensor is one.

    A gathered tensor's gradient is the sum of what reached it whole and what reached its varying view
    (rule 4), which costs an all-reduce.

    Raises:
        RuntimeError: If an input was not used and ``allow_unused`` is not set, or for batched gradients.
    """
    if is_grads_batched:
        raise RuntimeError(
            "torch.autograd.grad(is_grads_batched=True) is not supported with DTensors: call it per row"
        )
    outputs, inputs = _as_tuple(outputs, 1), _as_tuple(inputs, 1)
    locals_, gradients = _local_outputs(outputs, grad_outputs)
    parts = [grads_of(value) if isinstance(value, DTensor) else [(value, 0)] for value in inputs]
    seconds = [_second_leaves(value) for value in inputs]
    wanted = [local for part in parts for local, _ in part]
    wanted += [second for leaves in seconds for _, second in leaves]
    found = torch.autograd.grad(locals_, wanted, gradients, retain_graph, create_graph, allow_unused=True)
    arrived = iter(found)
    totals: list[Any] = []
    for value, part in zip(inputs, parts, strict=True):
        total = None
        for _, axes in part:
            gradient = next(arrived)
            if gradient is not None:
                for axis in axes_of(axes):
                    gradient = reduce_sum(gradient, value.device_mesh, axis)
                total = _sum(total, gradient)
        totals.append(total)
    _add_second_leaves(totals, seconds, tuple(arrived), create_graph)
    results = []
    for value, total, part, leaves in zip(inputs, totals, parts, seconds, strict=True):
        local = part[0][0]
        if total is None and materialize_grads:
            total = torch.zeros_like(local)
        if total is None and not allow_unused:
            raise RuntimeError(
                "One of the differentiated Tensors appears to not have been used in the graph. Set "
                "allow_unused=True if this "
                "is the desired behavior."
            )
        if leaves and total is not None and local._backward_hooks:
            (total,) = torch.autograd.grad(local, local, total, create_graph=create_graph)  # runs the hooks
        results.append(_wrapped(value, total))
    return tuple(results)


def _second_leaves(value: Any) -> list[tuple[Summand, torch.Tensor]]:
    local = value._local if isinstance(value, DTensor) else value
    return (
        second_leaves.parts_of(local) if isinstance(local, torch.Tensor) else []
    )  # an edge of the graph has none


def _sum(total: torch.Tensor | None, gradient: torch.Tensor) -> torch.Tensor:
    return gradient if total is None else total + gradient


def _add_second_leaves(
    totals: list[Any],
    seconds: Sequence[Sequence[tuple[Summand, torch.Tensor]]],
    gradients: Sequence[torch.Tensor | None],
    create_graph: bool,
) -> None:
    """Add to each input's gradient, in place, what reached its second leaves."""
    owners = [(index, summand) for index, leaves in enumerate(seconds) for summand, _ in leaves]
    reached = sorted(
        (
            (summand, index, gradient)
            for (index, summand), gradient in zip(owners, gradients, strict=True)
            if gradient is not None
        ),
        key=lambda each: each[0].number,
    )
    whole = [gradient for _, _, gradient in reached]
    with torch.set_grad_enabled(create_graph):
        reduce_together([summand for summand, _, _ in reached], whole)
        for (_, index, _), gradient in zip(reached, whole, strict=True):
            # A copy, as the sums may be views of one buffer.
            totals[index] = _sum(totals[index], gradient if totals[index] is not None else gradient.clone())


def _wrapped(value: Any, gradient: torch.Tensor | None) -> Any:
    if gradient is None or not isinstance(value, DTensor):
        return gradient
    spec: Spec = gradient_spec(value._spec)
    return wrap(gradient, spec, tuple(value.shape))
