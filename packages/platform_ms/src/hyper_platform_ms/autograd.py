"""Autograd verbs: differentiable linear maps, and what a local tensor's gradient state is.

MindSpore records while a gradient function (``mindspore.grad``, ``value_and_grad``, a cell with
``set_grad``) runs its forward. Such a run is one *gradient computation*; views made in one must not enter
another, where they have no history any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from mindspore import Tensor, ops
from mindspore._c_expression import run_backward
from mindspore.common._grad_function import _Function
from mindspore.graph.api import _pynative_executor, _PyNativeExecutor

from hyper_dtensor import DTensor
from hyper_dtensor.gradients import refuse_gradient, to_local

__all__ = ["MindSporeAutograd", "computation", "grad_enabled", "watch_computations"]

Map: TypeAlias = Callable[[Tensor], Tensor]

grad_enabled: Callable[[], bool] = _pynative_executor._executor.requires_grad
"""Whether operations are recorded now; asked at each operation, so without the Python method around it."""


class _Computations:
    """How many gradient computations have begun in this process."""

    count = 0


def computation() -> int:
    """The number of the gradient computation that runs, or ran last."""
    return _Computations.count


def watch_computations() -> None:
    """Count gradient computations, and let them start their backward as design section 3, rule 6 says.

    What a differentiated function returns is taken by the framework for a tensor whose gradient is one. Of a
    distributed tensor the gradient is one *over all ranks*, which is what `to_local` makes of it.
    """
    begin, end = _PyNativeExecutor.new_graph, _PyNativeExecutor.end_graph
    if hasattr(end, "hyper_parallel"):
        return

    def new_graph(self: Any, obj: Any, *args: Any, **kwargs: Any) -> None:
        _Computations.count += 1
        begin(self, obj, *args, **kwargs)

    def end_graph(self: Any, obj: Any, output: Any, *args: Any, **kwargs: Any) -> None:
        end(self, obj, _outputs(output), *args, **kwargs)

    end_graph.hyper_parallel = True  # type: ignore[attr-defined]
    _PyNativeExecutor.new_graph, _PyNativeExecutor.end_graph = new_graph, end_graph


def _outputs(output: Any) -> Any:
    if isinstance(output, DTensor):
        output._check_use()
        if any(op in ("max", "min", "prod") for op in output.layout.partial):
            refuse_gradient(output, "a differentiated function's output")
        return to_local(output, None)
    if isinstance(output, (list, tuple)):
        return type(output)([_outputs(item) for item in output])
    return output


class _Linear(_Function):
    """A linear map with its transpose; the backward is the same function with the two swapped."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forward: Map, backward: Map, value: Tensor | None) -> Tensor:
        ctx.maps = (forward, backward)
        result = forward(x) if value is None else value
        # An input that is returned as it is loses its part of third derivatives: an alias is another tensor.
        return ops.stop_gradient(x) if result is x else result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        forward, backward = ctx.maps
        return _linear(gradient, backward, forward, None), None, None, None


def _linear(x: Tensor, forward: Map, backward: Map, value: Tensor | None) -> Tensor:
    if grad_enabled() and x._requires_grad:
        return _Linear.apply(x, forward, backward, value if value is None else ops.stop_gradient(value))
    return forward(x) if value is None else ops.stop_gradient(value)


class MindSporeAutograd:
    """The autograd verbs of the platform."""

    def linear(self, x: Tensor, forward: Map, backward: Map, value: Tensor | None = None) -> Tensor:
        """``forward(x)`` with gradient ``backward(g)``; exact in higher derivatives."""
        return _linear(x, forward, backward, value)

    def tracks_gradient(self, x: Tensor) -> bool:
        """Whether a gradient computation runs and ``x`` takes part in it."""
        return grad_enabled() and bool(x._requires_grad)

    def deferred_view(self, t: DTensor, axes: int) -> None:
        """None: the framework calls nobody at the end of a gradient computation."""
        return None

    def grad_enabled(self) -> bool:
        """Whether a gradient computation runs (and ``mindspore._no_grad`` is not in force)."""
        return grad_enabled()

    def version(self, x: Tensor) -> int:
        """The version counter, which the adapter raises where a DTensor is written."""
        return int(x._version)

    def gradient_stamp(self, x: Tensor) -> tuple[int, int] | None:
        """Version and gradient computation: a view has no history in the next one (rule 3)."""
        return (self.version(x), computation()) if self.tracks_gradient(x) else None

    def detach(self, x: Tensor) -> Tensor:
        """An alias of ``x`` without history.

        Raises:
            RuntimeError: For a tensor that waits for its initialiser, whose alias would be zeros.
        """
        if x.has_init:
            raise RuntimeError(
                f"a tensor of shape {tuple(x.shape)} waits for its initialiser: use what init_data() returns"
            )
        return ops.stop_gradient(x)

    def backward(self, x: Tensor, gradient: Tensor, **options: Any) -> None:
        """Run the engine from the local tensor, into the ``grad`` of the leaves.

        Raises:
            RuntimeError: Outside of a gradient computation, where ``x`` has no history.
        """
        if not x._requires_grad:
            raise RuntimeError(
                "backward() from a tensor without history: MindSpore records inside of mindspore.grad, "
                "mindspore.value_and_grad or a cell with set_grad(); differentiate a function with those"
            )
        keep, create = bool(options.pop("retain_graph", False)), bool(options.pop("create_graph", False))
        if options:
            raise TypeError(f"backward() on MindSpore does not take {', '.join(options)}")
        run_backward((x,), (gradient,), keep or create, create, (), False)
        if not keep:
            _Computations.count += 1

    def memo(self, x: Tensor) -> dict[Any, Any] | None:
        """A dictionary on the tensor itself; ``None`` for a leaf, whose views would keep it alive."""
        if x._is_leaf:
            return None
        return x.__dict__.setdefault("_hyper_parallel_views", {})
