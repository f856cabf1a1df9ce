"""Autograd verbs: differentiable linear maps, and what a local tensor's gradient state is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch.autograd import forward_ad

from hyper_dtensor import DTensor
from hyper_platform_torch import second_leaves

__all__ = ["TorchAutograd", "check_no_tangent"]

Map: TypeAlias = Callable[[torch.Tensor], torch.Tensor]


def check_no_tangent(x: torch.Tensor) -> None:
    """Refuse a local tensor with a forward-mode tangent, which no collective carries on.

    Raises:
        RuntimeError: Names the cures.
    """
    if forward_ad._current_level >= 0 and forward_ad.unpack_dual(x).tangent is not None:
        raise RuntimeError(
            "a DTensor has a forward-mode tangent (torch.func.jvp, forward_ad.make_dual), which would be "
            "lost in a collective: use torch.autograd.grad, twice (create_graph=True) for products with the "
            "Jacobian, or take the tangent of local tensors only"
        )


class _Linear(torch.autograd.Function):
    """A linear map with its transpose; the backward is the same function with the two swapped."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, forward: Map, backward: Map, value: torch.Tensor | None
    ) -> torch.Tensor:
        ctx.maps = (forward, backward)
        result = forward(x) if value is None else value.detach()
        # An input that is returned as it is becomes a view with that input as its C++ base: remembered on the
        # input, it would keep it alive for ever.
        return result.detach() if result is x else result

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        forward, backward = ctx.maps
        return _linear(gradients[0], backward, forward), None, None, None


# What torch.autograd.Function.apply comes to after it has looked for the transforms of torch.func, which do
# not know DTensors: half of the time.
_apply: Callable[..., torch.Tensor] = super(torch.autograd.Function, _Linear).apply


def _linear(x: torch.Tensor, forward: Map, backward: Map, value: torch.Tensor | None = None) -> torch.Tensor:
    """``forward(x)`` with gradient ``backward(g)``; exact under ``create_graph``."""
    if x.requires_grad and torch.is_grad_enabled():
        try:
            return _apply(x, forward, backward, value)
        except RuntimeError as error:
            if not torch._C._are_functorch_transforms_active():
                raise
            raise RuntimeError(
                "a transform of torch.func (grad, vjp, vmap) does not know the collectives of DTensors: use "
                "torch.autograd.grad, or transform a function of local tensors only"
            ) from error
    if value is None:
        return forward(x)
    check_no_tangent(x)
    return value.detach()


class TorchAutograd:
    """The autograd verbs of the platform."""

    linear = staticmethod(_linear)

    def tracks_gradient(self, x: torch.Tensor) -> bool:
        """Whether gradients are on and ``x`` needs one."""
        return x.requires_grad and torch.is_grad_enabled()

    grad_enabled = staticmethod(torch.is_grad_enabled)

    def deferred_view(self, t: DTensor, axes: int) -> torch.Tensor | None:
        """A view of a second leaf of the parameter ``t``; None if ``t`` is no parameter."""
        return second_leaves.make(t, axes)

    def version(self, x: torch.Tensor) -> int:
        """The version counter, which in-place operations raise; tensors of inference mode have none."""
        try:
            return x._version
        except RuntimeError:
            return 0  # of inference mode

    def gradient_stamp(self, x: torch.Tensor) -> tuple[int, int, bool] | None:
        """Version counter, address and leaf, if a gradient is tracked: a view may serve several graphs.

        The address tells when the data of ``x`` itself was exchanged (``x.data =``), being a leaf when its
        history was cut off (``x.detach_()``): no version does.
        """
        # What `tracks_gradient` and `version` say, in one call: every remembered view is looked at so.
        if not x.requires_grad or not torch.is_grad_enabled():
            return None
        try:
            return x._version, x.data_ptr(), x.is_leaf
        except RuntimeError:
            return self.version(x), 0, x.is_leaf  # of inference mode, or without an address

    def detach(self, x: torch.Tensor) -> torch.Tensor:
        """An alias of ``x`` without history."""
        return x.detach()

    def backward(self, x: torch.Tensor, gradient: torch.Tensor, **options: Any) -> None:
        """Run the engine from the local tensor."""
        torch.autograd.backward(x, gradient, **options)

    def memo(self, x: torch.Tensor) -> dict[Any, Any] | None:
        """A dictionary on the tensor itself; ``None`` for a leaf, whose views would keep it alive."""
        if x.is_leaf:
            return None
        return x.__dict__.setdefault("_hyper_parallel_views", {})  # type: ignore[no-any-return]
