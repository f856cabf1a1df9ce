"""Distributed tensors and tensor parallelism with single-device results, on PyTorch and MindSpore.

The public names, each from the package that owns it. A name is imported when it is first used, so that
``import hyper_parallel`` is cheap and imports no framework.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hyper_dispatch import RegistryError, RuleError, register_op
    from hyper_dtensor import (
        CommDebugMode,
        DTensor,
        clip_grad_norm_,
        distribute_module,
        distribute_tensor,
        empty,
        full,
        get_platform,
        implicit_replication,
        init_device_mesh,
        local_map,
        ones,
        rand,
        randn,
        set_platform,
        zeros,
    )
    from hyper_dtensor.mesh import DeviceMesh
    from hyper_layout import (
        Layout,
        LayoutError,
        Partial,
        Placement,
        Replicate,
        Shard,
        StridedShard,
        plan,
    )
    from hyper_tensor_parallel import (
        ColwiseParallel,
        NoParallel,
        ParallelStyle,
        PrepareModuleInput,
        PrepareModuleInputOutput,
        PrepareModuleOutput,
        RowwiseParallel,
        SequenceParallel,
        loss_parallel,
        parallelize_module,
    )

__all__ = [
    "ColwiseParallel",
    "CommDebugMode",
    "DTensor",
    "DeviceMesh",
    "Layout",
    "LayoutError",
    "NoParallel",
    "ParallelStyle",
    "Partial",
    "Placement",
    "PrepareModuleInput",
    "PrepareModuleInputOutput",
    "PrepareModuleOutput",
    "RegistryError",
    "Replicate",
    "RowwiseParallel",
    "RuleError",
    "SequenceParallel",
    "Shard",
    "StridedShard",
    "clip_grad_norm_",
    "distribute_module",
    "distribute_tensor",
    "empty",
    "full",
    "get_platform",
    "implicit_replication",
    "init_device_mesh",
    "local_map",
    "loss_parallel",
    "ones",
    "parallelize_module",
    "plan",
    "rand",
    "randn",
    "register_op",
    "set_platform",
    "zeros",
]

# The package that owns each name: what the imports above say, for the interpreter.
_OWNERS = {
    "ColwiseParallel": "hyper_tensor_parallel",
    "CommDebugMode": "hyper_dtensor",
    "DTensor": "hyper_dtensor",
    "DeviceMesh": "hyper_dtensor.mesh",  # which tells a mesh whose rank this is
    "Layout": "hyper_layout",
    "LayoutError": "hyper_layout",
    "NoParallel": "hyper_tensor_parallel",
    "ParallelStyle": "hyper_tensor_parallel",
    "Partial": "hyper_layout",
    "Placement": "hyper_layout",
    "PrepareModuleInput": "hyper_tensor_parallel",
    "PrepareModuleInputOutput": "hyper_tensor_parallel",
    "PrepareModuleOutput": "hyper_tensor_parallel",
    "RegistryError": "hyper_dispatch",
    "Replicate": "hyper_layout",
    "RowwiseParallel": "hyper_tensor_parallel",
    "RuleError": "hyper_dispatch",
    "SequenceParallel": "hyper_tensor_parallel",
    "Shard": "hyper_layout",
    "StridedShard": "hyper_layout",
    "clip_grad_norm_": "hyper_dtensor",
    "distribute_module": "hyper_dtensor",
    "distribute_tensor": "hyper_dtensor",
    "empty": "hyper_dtensor",
    "full": "hyper_dtensor",
    "get_platform": "hyper_dtensor",
    "implicit_replication": "hyper_dtensor",
    "init_device_mesh": "hyper_dtensor",
    "local_map": "hyper_dtensor",
    "loss_parallel": "hyper_tensor_parallel",
    "ones": "hyper_dtensor",
    "parallelize_module": "hyper_tensor_parallel",
    "plan": "hyper_layout",
    "rand": "hyper_dtensor",
    "randn": "hyper_dtensor",
    "register_op": "hyper_dispatch",
    "set_platform": "hyper_dtensor",
    "zeros": "hyper_dtensor",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    owner = _OWNERS.get(name)
    if owner is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(owner), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, imported or not."""
    return sorted({*globals(), *__all__})
