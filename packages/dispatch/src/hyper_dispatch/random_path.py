"""Random operations: Replicate pieces agree, shards differ, recomputation repeats (design section 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hyper_dtensor import Platform
from hyper_dtensor.random_state import local_seed
from hyper_layout import Layout


def run_random(
    platform: Platform,
    layout: Layout,
    impl: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Any:
    """Run `impl` on a generator of its own.

    One number is drawn from the default generator, which is equal on all ranks; the coordinates of this rank
    on the axes that shard the output are mixed in.

    Raises:
        LayoutError: If the output is Partial.
        RuntimeError: If the ranks are not seeded alike.
    """
    device = layout.mesh.device_type
    with platform.seeded(local_seed(layout, device), device):
        return impl(*args, **kwargs)
