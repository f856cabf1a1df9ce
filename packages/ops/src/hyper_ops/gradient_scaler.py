"""Unscaling gradients and looking for overflows (`torch._amp_foreach_non_finite_check_and_unscale_`).

Every rank unscales its own parts. A part that overflowed is seen by its rank alone, and all ranks must skip
the step: what they found is joined along the mesh axes that divide a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hyper_dispatch import DistributedOp, Effects, layouts_of, register_strategy, to_locals
from hyper_dispatch.distributed_op import InferResult
from hyper_dtensor.collectives import all_reduce
from hyper_layout import LayoutError


@register_strategy("unscale")
class Unscale(DistributedOp):
    """`unscale_(gradients, found_inf, inv_scale)`: multiplies gradients, sets `found_inf` if one overflows.

    The two numbers are tensors without dims, plain or Replicate. cache_values: the layouts of all tensors.
    """

    takes_plain = True
    preprocess_is_pure = True

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        gradients, *numbers = self.bind(args, kwargs).values()
        layouts = [item._layout for item in (*gradients, *numbers) if hasattr(item, "_layout")]
        if any(hasattr(item, "_layout") and not item._layout.is_replicated for item in numbers):
            raise LayoutError("what was found and the scale must be plain, or Replicate on every axis")
        return *to_locals(args, kwargs), layouts

    def infer_layout(self, cache_values: Sequence[Any]) -> InferResult:
        self._check_partial_inputs(layouts_of(cache_values))
        return (None,), Effects()

    def get_expand_impl(
        self, func: Callable[..., Any] | None, infer_result: Any, cache_values: Sequence[Any]
    ) -> Callable[..., Any] | None:
        layouts = layouts_of(cache_values)
        mesh = layouts[0].mesh  # the one of all of them
        divided = [
            axis for axis in range(mesh.ndim) if any(layout.shard_axes >> axis & 1 for layout in layouts)
        ]
        if func is None:
            return None
        unscale = func

        def impl(*args: Any, **kwargs: Any) -> None:
            gradients, found_inf, inv_scale = self.bind(args, kwargs).values()
            unscale(gradients, found_inf, inv_scale)
            for axis in divided:
                found_inf[...] = all_reduce(found_inf, mesh, axis, "max")

        return impl
