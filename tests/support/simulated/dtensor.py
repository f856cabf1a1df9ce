"""``SimDTensor``: the DTensor of the simulated platform."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from hyper_dtensor import DTensor, Spec, wrap
from hyper_dtensor import gradients as states
from hyper_dtensor.collectives import reduce_sum
from tests.support.simulated import ops, tape
from tests.support.simulated.functional import dispatch
from tests.support.simulated.tensor import SimTensor

__all__ = ["SimDTensor", "grad"]


class SimDTensor(DTensor):
    """A DTensor over a ``SimTensor``; operators and named functions are dispatched.

    Args:
        local: This rank's part.
        spec: Layout and gradient state.
        shape: The global shape.
    """

    def __init__(self, local: SimTensor, spec: Spec, shape: tuple[int, ...]) -> None:
        self._local, self._spec, self._shape = local, spec, shape
        self.has_foreign_history = False

    def _has_foreign_history(self) -> bool:
        return self.has_foreign_history

    @property
    def dtype(self) -> Any:
        """NumPy's dtype."""
        return self._local.dtype

    def register_hook(self, hook: Callable[[DTensor], DTensor | None]) -> None:
        """Call ``hook`` with the gradient of this tensor, a DTensor."""
        states.plain_views(self)
        spec, shape = states.gradient_spec(self._spec), self._shape

        def on_local(gradient: SimTensor) -> SimTensor | None:
            replaced = hook(wrap(gradient, spec, shape))
            return None if replaced is None else replaced._local

        self._local.register_hook(on_local)

    def retain_grad(self) -> None:
        """Keep the gradient of this non-leaf."""
        states.plain_views(self)
        self._local.retain_grad()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in ops.METHODS:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return functools.partial(_dispatch, name, self)


def _dispatch(name: str, *args: Any, **kwargs: Any) -> Any:
    return dispatch(name, getattr(ops, name), args, kwargs)


def _operator(name: str, reflected: bool = False) -> Callable[..., Any]:
    def operator(self: SimDTensor, *others: Any) -> Any:
        return _dispatch(name, *others, self) if reflected else _dispatch(name, self, *others)

    return operator


_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div"}
for _name in ("matmul", "lt", "le", "gt", "ge", "neg", "pow", "getitem", "setitem"):
    setattr(SimDTensor, f"__{_name}__", _operator(_name))
for _python, _name in _BINARY.items():
    setattr(SimDTensor, f"__{_python}__", _operator(_name))
    setattr(SimDTensor, f"__r{_python}__", _operator(_name, reflected=True))
    setattr(SimDTensor, f"__i{_python}__", _operator(f"{_name}_"))


def grad(
    output: DTensor,
    inputs: Sequence[DTensor],
    gradient: Any = None,
    *,
    retain_graph: bool | None = None,
    create_graph: bool = False,
) -> list[DTensor | None]:
    """Gradients of ``inputs`` (also non-leaves), each laid out as the table of design section 3 says."""
    parts = [(number, local, axes) for number, t in enumerate(inputs) for local, axes in states.grads_of(t)]
    found = tape.grad(
        [output._local],
        [local for _, local, _ in parts],
        [states.sensitivity(output, gradient)],
        retain_graph=retain_graph,
        create_graph=create_graph,
    )
    totals: list[Any] = [None] * len(inputs)
    for (number, _, axes), part in zip(parts, found, strict=True):
        if part is None:
            continue
        for axis in states.axes_of(axes):
            part = reduce_sum(part, inputs[number].device_mesh, axis)
        totals[number] = part if totals[number] is None else totals[number] + part
    return [
        None if total is None else wrap(total, states.gradient_spec(t._spec), t._shape)
        for t, total in zip(inputs, totals, strict=True)
    ]
