"""Random verbs: the default generator, and numbers from a generator seeded for this rank.

MindSpore's operators keep generators of their own, which cannot be set and put back on CPU. Numbers for
distributed tensors are drawn by NumPy instead. The default generator is NumPy's global one, which
``mindspore.set_seed`` seeds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from mindspore import Tensor

__all__ = ["MindSporeRandom", "bernoulli_mask", "normal", "uniform"]

_RANDOM_NAMES: Final = (
    "Bernoulli", "Dropout", "Exponential", "Gamma", "LogNormal", "Multinomial", "Normal", "Poisson", "Rand",
    "Random", "Shuffle", "Uniform",
)  # fmt: skip


class _Current(threading.local):
    generator: np.random.Generator | None = None


_current = _Current()


def _generator() -> np.random.Generator:
    """That of the innermost `seeded`, else one that the default generator seeds."""
    found = _current.generator
    return np.random.default_rng(_draw()) if found is None else found


def _draw() -> int:
    return int(np.random.randint(0, 2**62, dtype=np.int64))


def uniform(shape: Any, dtype: Any, low: float = 0.0, high: float = 1.0) -> Tensor:
    """Uniform numbers."""
    return Tensor(_generator().uniform(low, high, tuple(shape))).astype(dtype)


def normal(shape: Any, dtype: Any, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Normal numbers."""
    return Tensor(_generator().normal(mean, std, tuple(shape))).astype(dtype)


def bernoulli_mask(shape: Any, p: float, dtype: Any) -> Tensor:
    """Ones with probability ``p``, zeros elsewhere."""
    return Tensor(_generator().random(tuple(shape)) < p).astype(dtype)


class MindSporeRandom:
    """The random verbs of the platform."""

    def draw_seed(self, device: Any) -> int:
        """One number from the default generator."""
        return _draw()

    @contextmanager
    def seeded(self, seed: int, device: Any) -> Iterator[None]:
        """Random operations on local tensors draw from ``seed``."""
        before = _current.generator
        _current.generator = np.random.default_rng(seed)
        try:
            yield
        finally:
            _current.generator = before

    def is_random(self, func: Callable[..., Any]) -> bool:
        """Whether the name of an operator says that it draws random numbers."""
        name = str(getattr(func, "name", getattr(func, "__name__", "")))
        return any(part in name for part in _RANDOM_NAMES)
