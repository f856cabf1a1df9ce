"""Random verbs: the default generator, and ops on a generator seeded for this rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["TorchRandom"]


def _is_seeded_op(name: str) -> bool:
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return False
    return any(
        torch.Tag.nondeterministic_seeded in getattr(packet, overload).tags for overload in packet.overloads()
    )


class TorchRandom:
    """The random verbs of the platform."""

    def draw_seed(self, device: Any) -> int:
        """One number from the default CPU generator, also for other devices: none is waited for."""
        return int(torch.randint(0, 2**62, (), dtype=torch.int64, device="cpu"))

    @contextmanager
    def seeded(self, seed: int, device: Any) -> Iterator[None]:
        """Random ops inside draw from ``seed``; the default generators go on as if nothing was drawn."""
        type_ = torch.device(device).type
        devices = [] if type_ == "cpu" else [torch.get_device_module(type_).current_device()]
        with torch.random.fork_rng(devices, device_type=type_ if devices else "cuda"):
            torch.default_generator.manual_seed(seed)
            if devices:
                torch.get_device_module(type_).manual_seed(seed)
            yield

    def is_random(self, func: Callable[..., Any]) -> bool:
        """Whether the framework tags the built-in as drawing random numbers."""
        return _is_seeded_op(getattr(func, "__name__", ""))
