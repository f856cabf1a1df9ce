"""The framework's tensor, and the distributed tensor around it."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyper_dtensor import DTensor, Spec

__all__ = ["SampleDTensor", "SampleTensor", "tensor"]


class SampleTensor(NDArray[Any]):
    """An array that is a tensor: plain arrays are not, so that nobody takes one for a part."""

    device = "cpu"
    grad = None

    @property
    def requires_grad(self) -> bool:
        """Never, up to milestone 2."""
        return False

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if value:
            raise NotImplementedError("gradients are milestone 2")

    def __getitem__(self, index: Any) -> Any:
        return tensor(super().__getitem__(index))  # NumPy makes a number of an element

    # NumPy refuses to make a number of an array of one element that has dims.
    def __float__(self) -> builtins.float:
        return builtins.float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def to(self, dtype: Any) -> SampleTensor:
        """The values in another dtype."""
        return tensor(self.astype(dtype))

    def float(self) -> SampleTensor:
        """The values in float32."""
        return self.to(np.float32)

    def is_complex(self) -> bool:
        """Whether the dtype is complex."""
        return self.dtype.kind == "c"


def tensor(values: Any) -> SampleTensor:
    """A tensor over these values; an array is not copied."""
    return np.asarray(values).view(SampleTensor)


class SampleDTensor(DTensor):
    """The platform's DTensor. Operators come with milestone 2: until then Python refuses ``x + y``.

    Args:
        local: This rank's part.
        spec: Layout and gradient state.
        shape: The global shape.
    """

    def __init__(self, local: SampleTensor, spec: Spec, shape: tuple[int, ...]) -> None:
        self._local, self._spec, self._shape = local, spec, shape

    @property
    def dtype(self) -> Any:
        """The dtype of the local tensor."""
        return self._local.dtype
