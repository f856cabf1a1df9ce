"""``NoParallel``: whole parameters as DTensors, for routers and norms outside of sequence parallelism."""

from __future__ import annotations

from typing import Any

from hyper_dtensor import DTensor, distribute_module
from hyper_layout import DeviceMesh, Placement, Replicate
from hyper_tensor_parallel.boundary import first_input, leave, one_axis
from hyper_tensor_parallel.style import Module, ParallelStyle

__all__ = ["NoParallel"]


class NoParallel(ParallelStyle):
    """Replicate the parameters of any module and keep it in the world of DTensors (RFC section 5.2).

    Args:
        input_layout: How a plain first input is laid out; a DTensor says so itself.
        desired_input_layout: Layout in which the module gets it (an all_gather if it was split).
        output_layout: Target layout of the output; of every tensor of a tuple.
        use_local_output: Return local tensors instead of DTensors.
        local_grad_placements: As for `ColwiseParallel`: ``Partial()`` where the ranks use the local output
            differently, as with key and value heads that are fewer than ranks.
    """

    def __init__(
        self,
        *,
        input_layout: Placement | None = None,
        desired_input_layout: Placement | None = None,
        output_layout: Placement | None = None,
        use_local_output: bool = True,
        local_grad_placements: Placement | None = None,
    ) -> None:
        self.input_layout = one_axis(input_layout, Replicate())
        self.desired_input_layout = one_axis(desired_input_layout, Replicate())
        self.output_layout = one_axis(output_layout, Replicate())
        self.use_local_output = use_local_output
        self.local_grad_placements = (
            None if local_grad_placements is None else one_axis(local_grad_placements)
        )

    def apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        """Replicate the parameters and hook the forward; see the class."""
        before = first_input("NoParallel", self.input_layout, self.desired_input_layout)

        def finish(value: Any) -> Any:
            if not isinstance(value, DTensor):
                return value
            return leave(
                value, self.output_layout, self.use_local_output, grad_placements=self.local_grad_placements
            )

        def after(module: Module, output: Any, mesh: DeviceMesh) -> Any:
            return tuple(map(finish, output)) if isinstance(output, tuple) else finish(output)

        return distribute_module(module, device_mesh, None, before, after, src_data_rank=self.src_data_rank)
