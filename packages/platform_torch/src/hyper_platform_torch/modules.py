"""Module verbs: walking a module tree, exchanging its parameters, hooking its forward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from hyper_platform_torch.tensor import TorchDTensor, make

__all__ = ["TorchModules"]


class TorchModules:
    """The module verbs of the platform."""

    def children(self, module: nn.Module) -> Mapping[str, nn.Module]:
        """Direct submodules by name; a module held twice is listed under each name."""
        return {name: child for name, child in module._modules.items() if child is not None}

    def parameters(self, module: nn.Module) -> Mapping[str, torch.Tensor]:
        """Parameters of the module itself."""
        return {name: value for name, value in module._parameters.items() if value is not None}

    def buffers(self, module: nn.Module) -> Mapping[str, torch.Tensor]:
        """Buffers of the module itself."""
        return {name: value for name, value in module._buffers.items() if value is not None}

    def set_parameter(self, module: nn.Module, name: str, value: TorchDTensor) -> None:
        """Exchange the contents of the parameter object: ties and optimizers built before keep it.

        Its attributes and its need of a gradient are kept.

        Raises:
            RuntimeError: If something would be lost or left behind: a gradient, a hook, a weak reference or a
                C++ handle; says what to do.
        """
        old = module._parameters[name]
        assert old is not None, "only parameters that exist are distributed"
        what = f"parameter {name!r} of {type(module).__name__} cannot be turned into a DTensor in place"
        if old.grad is not None:
            raise RuntimeError(
                f"{what}: it has a gradient, which would be lost; call zero_grad(set_to_none=True) before"
            )
        if old._backward_hooks or old._post_accumulate_grad_hooks:
            raise RuntimeError(f"{what}: it has hooks, which would be lost; register them afterwards")
        new = make(value._local.detach(), value._spec, value._shape, TorchDTensor)
        new.__dict__.update(vars(old))
        new._is_param = True
        new.requires_grad_(old.requires_grad)
        try:
            torch.utils.swap_tensors(old, new)
        except RuntimeError as error:
            raise RuntimeError(
                f"{what}, and an optimizer built before would train the old one: something else refers to it "
                f"({error}); parallelize the model before its first forward and before wrapping it, or "
                "delete what refers to it"
            ) from error

    def set_buffer(self, module: nn.Module, name: str, value: TorchDTensor) -> None:
        """Replace a buffer."""
        module._buffers[name] = value

    def before_forward(self, module: nn.Module, hook: Callable[..., Any]) -> Any:
        """A forward pre-hook that sees and returns positional and keyword arguments."""
        return module.register_forward_pre_hook(hook, with_kwargs=True)

    def after_forward(self, module: nn.Module, hook: Callable[..., Any]) -> Any:
        """A forward hook that sees the arguments and returns the output."""
        return module.register_forward_hook(hook, with_kwargs=True)

    @contextmanager
    def watch_modules(self, enter: Callable[[Any], None], leave: Callable[[Any], None]) -> Iterator[None]:
        """Call ``enter`` and ``leave`` around every module's forward, also one that raises."""
        before = module_hooks.register_module_forward_pre_hook(lambda module, args: enter(module))
        after = module_hooks.register_module_forward_hook(
            lambda module, args, output: leave(module), always_call=True
        )
        try:
            yield
        finally:
            before.remove()
            after.remove()

    def is_linear_module(self, module: Any) -> bool:
        """``torch.nn.Linear`` and what derives from it."""
        return isinstance(module, nn.Linear)

    def is_embedding_module(self, module: Any) -> bool:
        """``torch.nn.Embedding`` and what derives from it."""
        return isinstance(module, nn.Embedding)
