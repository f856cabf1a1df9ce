"""``ColwiseParallel``: a linear or embedding layer split along its output features."""

from __future__ import annotations

from typing import Any

from hyper_dtensor import DTensor, distribute_module, distribute_parameter, get_platform
from hyper_layout import DeviceMesh, Placement, Replicate, Shard
from hyper_tensor_parallel.boundary import first_input, leave, one_axis
from hyper_tensor_parallel.style import Module, ParallelStyle

__all__ = ["ColwiseParallel"]


class ColwiseParallel(ParallelStyle):
    """Split the output features: ``Y = X A^T + b`` with ``A`` and ``b`` cut by rows (RFC section 3.2).

    ===========  ===================  ==========  =============  ==============
    module       weight               bias        default input  default output
    ===========  ===================  ==========  =============  ==============
    linear       [out/tp, in] S(0)    S(0)        Replicate      Shard(-1)
    embedding    [num, dim/tp] S(1)   none        Replicate      Shard(-1)
    ===========  ===================  ==========  =============  ==============

    Forward no collective (an all_gather if the input is split), backward one all_reduce of the input's
    gradient (a reduce_scatter if the input is split), shared by all styles with the same input.

    Args:
        input_layouts: How a plain first input is laid out; a DTensor says so itself.
        output_layouts: Target layout of the output.
        use_local_output: Return this rank's local tensor instead of a DTensor.
        local_grad_placements: For a local output that the ranks use differently although it is Replicate:
            ``Partial()`` (``docs/gradients.md``).

    Raises:
        NotImplementedError: From ``apply``, for other modules.
        ValueError: From ``apply``, if the features do not divide by the size of the mesh.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
        local_grad_placements: Placement | None = None,
    ) -> None:
        self.input_layouts = one_axis(input_layouts, Replicate())
        self.output_layouts = one_axis(output_layouts, Shard(-1))
        self.desired_input_layouts = (Replicate(),)
        self.use_local_output = use_local_output
        self.local_grad_placements = (
            None if local_grad_placements is None else one_axis(local_grad_placements)
        )

    def apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        """Split the parameters and hook the forward; see the class."""
        platform = get_platform()
        if platform.is_linear_module(module):
            cut = Shard(0)
        elif platform.is_embedding_module(module):
            cut = Shard(1)
        else:
            raise NotImplementedError(
                f"ColwiseParallel supports Linear and Embedding modules, got {type(module).__name__}; use "
                "NoParallel or SequenceParallel for a module whose parameters stay whole"
            )

        def partition(name: str, submodule: Module, mesh: DeviceMesh) -> None:
            for key in platform.parameters(submodule):
                distribute_parameter(submodule, key, mesh, (cut,), src_data_rank=self.src_data_rank)

        before = first_input("ColwiseParallel", self.input_layouts, self.desired_input_layouts)

        def after(module: Module, output: Any, mesh: DeviceMesh) -> Any:
            if not isinstance(output, DTensor):
                raise TypeError(
                    f"ColwiseParallel expects {type(module).__name__} to return a DTensor, got "
                    f"{type(output).__name__}: its forward must compute with its own (distributed) parameters"
                )
            return leave(
                output, self.output_layouts, self.use_local_output, grad_placements=self.local_grad_placements
            )

        return distribute_module(
            module, device_mesh, partition, before, after, src_data_rank=self.src_data_rank
        )

    def head_features(self, module: Module) -> int | None:
        """The output features of a linear layer whose local pieces are returned."""
        if (
            get_platform().is_linear_module(module)
            and self.output_layouts[0].is_shard()
            and self.use_local_output
        ):
            return int(module.weight.shape[0])
        return None
