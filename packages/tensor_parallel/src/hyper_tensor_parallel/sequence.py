"""``SequenceParallel``: whole parameters, activations split along the sequence."""

from __future__ import annotations

from typing import Any

from hyper_dtensor import DTensor, distribute_module
from hyper_layout import DeviceMesh, Placement, Shard
from hyper_tensor_parallel.boundary import first_input, leave, one_axis
from hyper_tensor_parallel.style import Module, ParallelStyle

__all__ = ["SequenceParallel"]


class SequenceParallel(ParallelStyle):
    """Replicate the parameters of a norm or dropout and split its activations (RFC section 3.2).

    The input ``[B, S, H]`` is ``Shard(sequence_dim)``, and so is the output. Forward no collective;
    backward one small all_reduce per parameter, whose gradient is a sum over the pieces of the sequence.

    Args:
        sequence_dim: The dim that is split: 1 for ``[B, S, H]``; 2 for norms over heads ``[B, S, N, D]``.
        use_local_output: Return this rank's local tensor instead of a DTensor.
        local_grad_placements: As for `ColwiseParallel`.

    Raises:
        ValueError: From the forward, if the first input is no tensor or its sequence does not divide.
    """

    def __init__(
        self,
        *,
        sequence_dim: int = 1,
        use_local_output: bool = False,
        local_grad_placements: Placement | None = None,
    ) -> None:
        self.sequence_dim = sequence_dim
        self.sequence_sharding = (Shard(sequence_dim),)
        self.use_local_output = use_local_output
        self.local_grad_placements = (
            None if local_grad_placements is None else one_axis(local_grad_placements)
        )

    def apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        """Replicate the parameters and hook the forward; see the class."""
        before = first_input("SequenceParallel", self.sequence_sharding, self.sequence_sharding)

        def after(module: Module, output: Any, mesh: DeviceMesh) -> Any:
            if not isinstance(output, DTensor):
                return output
            return leave(
                output, output.placements, use_local=True, grad_placements=self.local_grad_placements
            )

        # As a DTensor the output stays as it is.
        finish = after if self.use_local_output else None
        return distribute_module(module, device_mesh, None, before, finish, src_data_rank=self.src_data_rank)
