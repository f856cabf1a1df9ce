"""``RowwiseParallel``: a linear or embedding layer split along its input features or its vocabulary."""

from __future__ import annotations

from typing import Any

from hyper_dtensor import DTensor, distribute_module, distribute_parameter, get_platform
from hyper_layout import DeviceMesh, Partial, Placement, Replicate, Shard
from hyper_tensor_parallel.boundary import first_input, leave, one_axis
from hyper_tensor_parallel.style import Module, ParallelStyle

__all__ = ["RowwiseParallel"]


class RowwiseParallel(ParallelStyle):
    """Split the input features: ``Y = X A^T + b`` with ``A`` cut by columns (RFC section 3.2).

    ===========  ===================  ==========  =============  ==============
    module       weight               bias        default input  default output
    ===========  ===================  ==========  =============  ==============
    linear       [out, in/tp] S(1)    Replicate   Shard(-1)      Replicate
    embedding    [num/tp, dim] S(0)   none        Replicate      Replicate
    ===========  ===================  ==========  =============  ==============

    The product is Partial; the bias enters it once. Forward one all_reduce (a reduce_scatter if the output
    is Shard), backward none (an all_gather).

    Args:
        input_layouts: How a plain first input is laid out; ``Shard(-1)`` for a linear layer and
            ``Replicate()`` for an embedding if not given.
        output_layouts: Target layout of the output.
        reduce_dtype: Floating dtype of the reduction; the result is rounded back to the module's dtype.
        use_local_output: Return this rank's local tensor instead of a DTensor.
        local_grad_placements: As for `ColwiseParallel`.

    Raises:
        NotImplementedError: From ``apply``, for other modules.
        ValueError: From ``apply``, if the features do not divide by the size of the mesh.
        TypeError: From the forward, if a linear layer returns no DTensor.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        reduce_dtype: Any = None,
        use_local_output: bool = True,
        local_grad_placements: Placement | None = None,
    ) -> None:
        self.input_layouts = one_axis(input_layouts, Shard(-1))
        self.embedding_input_layouts = one_axis(input_layouts, Replicate())
        self.output_layouts = one_axis(output_layouts, Replicate())
        self.reduce_dtype = reduce_dtype
        self.use_local_output = use_local_output
        self.local_grad_placements = (
            None if local_grad_placements is None else one_axis(local_grad_placements)
        )

    def apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        """Split the parameters and hook the forward; see the class."""
        platform = get_platform()
        is_embedding = platform.is_embedding_module(module)
        if not is_embedding and not platform.is_linear_module(module):
            raise NotImplementedError(
                f"RowwiseParallel supports Linear and Embedding modules, got {type(module).__name__}; use "
                "NoParallel or SequenceParallel for a module whose parameters stay whole"
            )
        # One style object may serve both kinds of module: what differs is bound here and not kept on it.
        weight_cut = Shard(0) if is_embedding else Shard(1)
        layouts = self.embedding_input_layouts if is_embedding else self.input_layouts
        desired = (Replicate(),) if is_embedding else (Shard(-1),)

        def partition(name: str, submodule: Module, mesh: DeviceMesh) -> None:
            for key in platform.parameters(submodule):
                placement = weight_cut if key == "weight" or is_embedding else Replicate()
                distribute_parameter(submodule, key, mesh, (placement,), src_data_rank=self.src_data_rank)

        before = first_input("RowwiseParallel", layouts, desired)

        def after(module: Module, output: Any, mesh: DeviceMesh) -> Any:
            if not isinstance(output, DTensor):
                if not is_embedding:
                    raise TypeError(
                        f"RowwiseParallel expects {type(module).__name__} to return a DTensor, got "
                        f"{type(output).__name__}: its forward must compute with its own (distributed) "
                        "parameters"
                    )
                output = DTensor.from_local(output, mesh, (Partial(),))
            return leave(
                output,
                self.output_layouts,
                self.use_local_output,
                reduce_dtype=self.reduce_dtype,
                grad_placements=self.local_grad_placements,
            )

        return distribute_module(
            module, device_mesh, partition, before, after, src_data_rank=self.src_data_rank
        )

    def head_features(self, module: Module) -> int | None:
        """The input features of a linear layer, whose local pieces the user's code made."""
        if get_platform().is_linear_module(module) and self.input_layouts[0].is_shard():
            return int(module.weight.shape[1])
        return None
