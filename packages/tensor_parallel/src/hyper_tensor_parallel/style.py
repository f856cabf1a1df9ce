"""The base of all parallel styles (styles RFC section 3.1)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeAlias

from hyper_layout import DeviceMesh

__all__ = ["ParallelStyle"]

Module: TypeAlias = Any


class ParallelStyle(ABC):
    """How one module is split and what enters and leaves it; applied by `parallelize_module`.

    Attributes:
        src_data_rank: Whose parameters count: coordinate on the mesh whose data is scattered or broadcast;
            ``None`` if all ranks hold the same. Set by `parallelize_module`.
    """

    src_data_rank: int | None = 0

    @abstractmethod
    def apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        """Change ``module`` in place (parameters, hooks) and return it, or return a module that wraps it.

        Args:
            module: The module.
            device_mesh: A mesh of one axis.
        """

    def head_features(self, module: Module) -> int | None:
        """The number of features whose local pieces the user's code sees, or ``None``.

        In an attention module a piece must hold whole heads; `parallelize_module` checks it.
        """
        return None
