"""Modules with parameters, buffers, children and hooks, as far as the tests of the core need them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.support.simulated import functional as F
from tests.support.simulated.tensor import SimParameter, SimTensor

__all__ = ["SimEmbedding", "SimLinear", "SimModule", "SimSequential", "watchers"]


class _Watchers(threading.local):
    def __init__(self) -> None:
        self.pairs: list[tuple[Callable[[Any], None], Callable[[Any], None]]] = []


_watchers = _Watchers()


def watchers() -> list[tuple[Callable[[Any], None], Callable[[Any], None]]]:
    """Pairs to be called around the forward of every module of this thread."""
    return _watchers.pairs


class _Handle:
    def __init__(self, hooks: dict[int, Any], key: int) -> None:
        self._hooks, self._key = hooks, key

    def remove(self) -> None:
        """Take the hook away."""
        self._hooks.pop(self._key, None)


class SimModule:
    """A module: attributes that are ``SimParameter`` or ``SimModule`` are found by name."""

    _numbers = itertools.count()

    def __init__(self) -> None:
        self.__dict__.update(
            own_parameters={}, own_buffers={}, own_children={}, before_hooks={}, after_hooks={}, training=True
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, SimParameter) or name in self.own_parameters:
            self.own_parameters[name] = value
        elif isinstance(value, SimModule):
            self.own_children[name] = value
        elif name in self.own_buffers:
            self.own_buffers[name] = value
        else:
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        for held in ("own_parameters", "own_buffers", "own_children"):
            if name in self.__dict__.get(held, ()):
                return self.__dict__[held][name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def register_buffer(self, name: str, value: SimTensor | None) -> None:
        """Hold a tensor that is not trained."""
        self.own_buffers[name] = value

    def register_parameter(self, name: str, value: Any) -> None:
        """Hold a parameter, or None where it is absent."""
        self.own_parameters[name] = value

    def add_hook(self, hooks: dict[int, Any], hook: Callable[..., Any]) -> _Handle:
        """Put ``hook`` behind the others; the handle takes it away."""
        key = next(self._numbers)
        hooks[key] = hook
        return _Handle(hooks, key)

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, SimModule]]:
        """This module and everything below it."""
        yield prefix, self
        for name, child in self.own_children.items():
            yield from child.named_modules(f"{prefix}.{name}" if prefix else name)

    def get_submodule(self, name: str) -> SimModule:
        """The module of that fully qualified name."""
        return dict(self.named_modules())[name]

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """All parameters, shared ones once."""
        seen: set[int] = set()
        for prefix, module in self.named_modules():
            for name, parameter in module.own_parameters.items():
                if parameter is not None and id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield f"{prefix}.{name}" if prefix else name, parameter

    def parameters(self) -> Iterator[Any]:
        """All parameters, shared ones once."""
        return (parameter for _, parameter in self.named_parameters())

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes."""
        raise NotImplementedError

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        watching = list(watchers())
        for enter, _ in watching:
            enter(self)
        try:
            for hook in list(self.before_hooks.values()):
                args, kwargs = hook(self, args, kwargs)
            output = self.forward(*args, **kwargs)
            for hook in list(self.after_hooks.values()):
                output = hook(self, args, kwargs, output)
            return output
        finally:
            for _, leave in reversed(watching):
                leave(self)


class SimSequential(SimModule):
    """Modules one after the other, named by their numbers."""

    def __init__(self, *modules: SimModule) -> None:
        super().__init__()
        for number, module in enumerate(modules):
            setattr(self, str(number), module)

    def forward(self, x: Any) -> Any:
        """The output of the last."""
        for module in self.own_children.values():
            x = module(x)
        return x


class SimLinear(SimModule):
    """``x @ weight.T + bias``.

    Args:
        in_features: Size of the last dim of ``x``.
        out_features: Size of the last dim of the result.
        bias: Whether there is a bias.
        seed: Of the initial values.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, seed: int = 0) -> None:
        super().__init__()
        random = np.random.default_rng(seed)
        self.in_features, self.out_features = in_features, out_features
        self.weight = SimParameter(random.standard_normal((out_features, in_features)))
        self.register_parameter("bias", SimParameter(random.standard_normal(out_features)) if bias else None)

    def forward(self, x: Any) -> Any:
        """``[..., in_features] -> [..., out_features]``."""
        return F.linear(x, self.weight, self.bias)


class SimEmbedding(SimModule):
    """Rows of ``weight`` picked by ids.

    Args:
        num_embeddings: Number of rows.
        embedding_dim: Size of a row.
        seed: Of the initial values.
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, seed: int = 0) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        random = np.random.default_rng(seed)
        self.weight = SimParameter(random.standard_normal((num_embeddings, embedding_dim)))

    def forward(self, ids: Any) -> Any:
        """``[...] -> [..., embedding_dim]``."""
        return F.embedding(ids, self.weight)
