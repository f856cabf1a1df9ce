"""Module verbs: walking a tree of cells, exchanging their parameters, hooking their forward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from mindspore import Tensor, mint, nn

from hyper_dtensor import DTensor
from hyper_platform_ms.tensor import become_distributed

__all__ = ["MindSporeModules"]


class MindSporeModules:
    """The module verbs of the platform."""

    def children(self, module: nn.Cell) -> Mapping[str, nn.Cell]:
        """Direct cells by name; a cell held twice is listed under each name."""
        return {name: child for name, child in module._cells.items() if child is not None}

    def parameters(self, module: nn.Cell) -> Mapping[str, Tensor]:
        """Parameters of the cell itself."""
        return {name: value for name, value in module._params.items() if value is not None}

    def buffers(self, module: nn.Cell) -> Mapping[str, Tensor]:
        """Buffers of the cell itself."""
        return {name: value for name, value in module._buffers.items() if value is not None}

    def set_parameter(self, module: nn.Cell, name: str, value: DTensor) -> None:
        """Turn the parameter object into the distributed one: ties keep it, and its name stays.

        An optimizer that was built before has states of the old shape; `optimizers` refuses it.
        """
        become_distributed(module._params[name], value)

    def set_buffer(self, module: nn.Cell, name: str, value: DTensor) -> None:
        """Replace a buffer."""
        module._buffers[name] = value

    def before_forward(self, module: nn.Cell, hook: Callable[..., Any]) -> Any:
        """A forward pre-hook that sees and returns positional and keyword arguments."""
        return module.register_forward_pre_hook(hook, with_kwargs=True)

    def after_forward(self, module: nn.Cell, hook: Callable[..., Any]) -> Any:
        """A forward hook that sees the arguments and returns the output."""
        return module.register_forward_hook(hook, with_kwargs=True)

    @contextmanager
    def watch_modules(self, enter: Callable[[Any], None], leave: Callable[[Any], None]) -> Iterator[None]:
        """Call ``enter`` and ``leave`` around every cell's forward, also one that raises."""
        # There are no hooks for all cells. Contexts that overlap nest: each puts back what it found.
        call = nn.Cell.__call__

        def watched(self: nn.Cell, *args: Any, **kwargs: Any) -> Any:
            enter(self)
            try:
                return call(self, *args, **kwargs)
            finally:
                leave(self)

        nn.Cell.__call__ = watched
        try:
            yield
        finally:
            nn.Cell.__call__ = call

    def is_linear_module(self, module: Any) -> bool:
        """``nn.Dense``, ``mint.nn.Linear`` and what derives from them."""
        return isinstance(module, (nn.Dense, mint.nn.Linear))

    def is_embedding_module(self, module: Any) -> bool:
        """``nn.Embedding``, ``mint.nn.Embedding`` and what derives from them."""
        return isinstance(module, (nn.Embedding, mint.nn.Embedding))
