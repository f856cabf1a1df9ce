"""``MindSporePlatform``: the platform protocol on MindSpore."""

from __future__ import annotations

from typing import Any

import mindspore
from mindspore import Tensor, ops

from hyper_dtensor import DTensor, Spec
from hyper_dtensor.platform import LocalOps
from hyper_ops import load_ops
from hyper_platform_ms.autograd import MindSporeAutograd
from hyper_platform_ms.collectives import MindSporeCollectives
from hyper_platform_ms.local_basics import full
from hyper_platform_ms.local_ops import MindSporeOps
from hyper_platform_ms.modules import MindSporeModules
from hyper_platform_ms.processes import MindSporeProcesses
from hyper_platform_ms.random_state import MindSporeRandom, normal, uniform
from hyper_platform_ms.tensor import MindSporeDTensor

__all__ = ["MindSporePlatform"]

_DTYPE_NAMES = {
    mindspore.float64: "f64",
    mindspore.float32: "f32",
    mindspore.float16: "f16",
    mindspore.bfloat16: "bf16",
    mindspore.int64: "i64",
    mindspore.int32: "i32",
    mindspore.int16: "i16",
    mindspore.int8: "i8",
    mindspore.uint8: "u8",
    mindspore.bool_: "b",
    mindspore.complex64: "c64",
    mindspore.complex128: "c128",
}
_FLOATING = frozenset(("f64", "f32", "f16", "bf16"))


class MindSporePlatform(
    MindSporeProcesses, MindSporeCollectives, MindSporeAutograd, MindSporeRandom, MindSporeModules
):
    """MindSpore 2.10 in PyNative mode, on CPU and Ascend."""

    name = "mindspore"
    framework = "MindSpore"
    device_types: tuple[str, ...] = ("cpu", "npu")

    def __init__(self) -> None:
        super().__init__()
        self.ops: LocalOps = MindSporeOps()
        load_ops()

    def wrap(self, x: Tensor, spec: Spec, shape: tuple[int, ...]) -> MindSporeDTensor:
        """The DTensor over ``x``."""
        return MindSporeDTensor(x, spec, shape)

    def is_tensor(self, value: Any) -> bool:
        """Whether ``value`` is a MindSpore tensor and no DTensor."""
        return isinstance(value, Tensor) and not isinstance(value, DTensor)

    def is_floating(self, x: Tensor) -> bool:
        """Whether the dtype is floating."""
        return _DTYPE_NAMES.get(x.dtype) in _FLOATING

    def dtype_name(self, x: Tensor) -> str:
        """Short name of the dtype."""
        return _DTYPE_NAMES.get(x.dtype, str(x.dtype).lower())

    def itemsize(self, x: Tensor) -> int:
        """Bytes per element."""
        return int(x.itemsize)

    def is_meta(self, x: Tensor) -> bool:
        """False: MindSpore has no tensors without data; those that wait for an initialiser are refused."""
        return False

    def shares_memory(self, x: Tensor, y: Tensor) -> bool:
        """Whether both are views of one storage."""
        return bool(x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr())

    def scale_(self, x: Tensor, factor: Tensor) -> None:
        """Multiply in place, without gradient."""
        with mindspore._no_grad():
            x.copy_(x * factor.astype(x.dtype))

    def python_body(self, func: Any) -> None:
        """None: what MindSpore intercepts are built-ins; its Python functions arrive as their parts."""
        return None

    def create(self, kind: str, shape: tuple[int, ...], device_type: str, **options: Any) -> Tensor:
        """A local tensor; the device is that of the process."""
        dtype = options.get("dtype")
        if kind == "full":
            return full(shape, options["fill_value"], dtype=dtype)
        dtype = mindspore.float32 if dtype is None else dtype
        if kind in ("rand", "randn"):
            return (uniform if kind == "rand" else normal)(shape, dtype)
        return ops.ones(shape, dtype) if kind == "ones" else ops.zeros(shape, dtype)
