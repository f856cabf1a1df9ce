"""``TorchPlatform``: the platform protocol on PyTorch."""

from __future__ import annotations

import functools
from importlib.resources import files
from typing import Any

import torch

from hyper_dispatch import load_yaml
from hyper_ops import load_ops
from hyper_platform_torch.autograd import TorchAutograd
from hyper_platform_torch.collectives import TorchCollectives
from hyper_platform_torch.local_ops import TorchOps
from hyper_platform_torch.modules import TorchModules
from hyper_platform_torch.processes import TorchProcesses
from hyper_platform_torch.python_functions import python_body
from hyper_platform_torch.random_state import TorchRandom
from hyper_platform_torch.tensor import SlottedDTensor, TorchDTensor, make

__all__ = ["TorchPlatform"]

_DTYPE_NAMES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "b",
    torch.complex64: "c64",
    torch.complex128: "c128",
}


@functools.cache
def _load_plain_results() -> None:
    """Register the framework's questions about a tensor (once per process)."""
    load_yaml(str(files("hyper_platform_torch") / "yaml" / "plain_results.yaml"))


class TorchPlatform(TorchProcesses, TorchCollectives, TorchAutograd, TorchRandom, TorchModules):
    """PyTorch 2.13 on CPU (gloo), CUDA (nccl) and Ascend (hccl, with torch_npu)."""

    name = "torch"
    framework = "PyTorch"
    device_types = ("cpu", "cuda", "npu")

    def __init__(self) -> None:
        super().__init__()
        self.ops = TorchOps()
        self.python_body = python_body
        load_ops()
        _load_plain_results()

    wrap = staticmethod(make)

    def is_tensor(self, value: Any) -> bool:
        """Whether ``value`` is a torch tensor and no DTensor."""
        kind = type(value)
        return kind is torch.Tensor or (
            kind is not SlottedDTensor
            and isinstance(value, torch.Tensor)
            and not isinstance(value, TorchDTensor)
        )

    def is_floating(self, x: torch.Tensor) -> bool:
        """Whether the dtype is floating."""
        return x.dtype.is_floating_point

    def dtype_name(self, x: torch.Tensor) -> str:
        """Short name of the dtype."""
        return _DTYPE_NAMES.get(x.dtype, str(x.dtype).removeprefix("torch."))

    def itemsize(self, x: torch.Tensor) -> int:
        """Bytes per element."""
        return x.dtype.itemsize

    def is_meta(self, x: torch.Tensor) -> bool:
        """Whether ``x`` is on the meta device."""
        return x.is_meta

    def shares_memory(self, x: torch.Tensor, y: torch.Tensor) -> bool:
        """Whether both are views of one storage."""
        return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()

    def scale_(self, x: torch.Tensor, factor: torch.Tensor) -> None:
        """Multiply in place, without gradient."""
        with torch.no_grad():
            x.mul_(factor.to(x.device))

    def create(self, kind: str, shape: tuple[int, ...], device_type: str, **options: Any) -> torch.Tensor:
        """A local tensor on ``device_type``."""
        arguments = [shape, options.pop("fill_value")] if kind == "full" else [shape]
        return getattr(torch, kind)(*arguments, device=device_type, **options)  # type: ignore[no-any-return]
