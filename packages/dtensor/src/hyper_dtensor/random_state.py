"""Seeds of random numbers on a mesh: Replicate pieces agree, shards differ (design section 4)."""

from __future__ import annotations

import threading
from typing import Any

from hyper_dtensor.platform import get_platform
from hyper_dtensor.rank_check import agree_on_value
from hyper_layout import DeviceMesh, Layout, LayoutError, current_rank

__all__ = ["local_seed"]

_MASK = (1 << 64) - 1
_checked: set[tuple[DeviceMesh, int]] = set()
_lock = threading.Lock()


def _mix(state: int, value: int) -> int:
    """One step of SplitMix64 (Steele, Lea and Flood 2014) over ``state`` and ``value``."""
    z = (state + (value + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def local_seed(layout: Layout, device: Any) -> int:
    """The seed of this rank's piece of a random tensor in ``layout``.

    Draws one number from the default generator of ``device``, which all ranks must have seeded alike
    (checked once per mesh), and mixes in this rank's coordinates on the axes that shard the tensor.

    Args:
        layout: Layout of the output.
        device: The device whose generator is used, as the platform names it.

    Returns:
        An integer below 2**62.

    Raises:
        LayoutError: For a Partial layout, of which no random piece is defined.
        RuntimeError: If the ranks are not seeded alike.
    """
    if layout.partial_axes:
        raise LayoutError(
            f"random numbers cannot be laid out as {layout.notation}: use Shard or Replicate axes"
        )
    seed = get_platform().draw_seed(device)
    _check_seeds(layout.mesh, seed)
    coordinate = layout.mesh.get_coordinate()
    assert coordinate is not None, "a rank outside of the mesh holds no DTensor on it"
    mixed = _mix(0, seed)
    for axis, position in enumerate(coordinate):
        if layout.shard_axes >> axis & 1:
            mixed = _mix(mixed, axis * (1 << 20) + position)
    return mixed >> 2


def _check_seeds(mesh: DeviceMesh, seed: int) -> None:
    key = (mesh, current_rank())
    if key in _checked:
        return
    agree_on_value(
        get_platform(),
        mesh,
        range(mesh.ndim),
        "the default random generators differ, so Replicate tensors would not agree; seed all ranks alike "
        "before the first random op (for example torch.manual_seed(0))",
        seed,
    )
    with _lock:
        _checked.add(key)
