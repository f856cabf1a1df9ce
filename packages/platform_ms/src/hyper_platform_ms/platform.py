"""The platform that the entry point ``mindspore`` names."""

from __future__ import annotations


class MindSporePlatform:
    """MindSpore under the platform protocol; not there yet, and says so when it is chosen.

    Raises:
        NotImplementedError: Always. It is raised here, before any MindSpore import, so that nothing is
            computed on a half-written adapter.
    """

    def __init__(self) -> None:
        raise NotImplementedError(
            "the MindSpore adapter of hyper_parallel is not there yet. Use PyTorch: install "
            "hyper-platform-torch and call hyper_parallel.set_platform('torch'), or set "
            "HYPER_PARALLEL_PLATFORM=torch"
        )
