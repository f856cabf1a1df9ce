"""MindSpore's scheduler as a process of its own: the ranks of a world meet there.

Run this file with the id of the process that starts it and the launcher's variables set. It ends with that
process, which may end before this one has imported MindSpore (as ``python -m`` would do first of all).
"""

from __future__ import annotations

import os
import sys
import threading
import time

__all__ = ["main"]


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def main() -> None:
    """Serve until the world ends: the scheduler's whole life is inside of ``init``."""
    threading.Thread(target=_end_with, args=(int(sys.argv[1]),), daemon=True).start()
    import mindspore
    from mindspore.communication import init

    mindspore.set_device("CPU")
    init()


if __name__ == "__main__":
    main()
