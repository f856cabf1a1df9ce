"""``CommDebugMode``: what was communicated, by kind, mesh axis, module and direction."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from hyper_dtensor.platform import get_platform, modules_below

if TYPE_CHECKING:
    from hyper_layout import DeviceMesh

__all__ = ["CommDebugMode", "Communication"]


@dataclass(frozen=True, slots=True)
class Communication:
    """What one collective is counted under.

    Attributes:
        kind: ``all_reduce``, ``all_gather``, ``reduce_scatter``, ``all_to_all``, ``broadcast``, ``scatter``.
        axis: Name of the mesh axis.
        module: Fully qualified name of the module whose forward caused it; empty outside of any.
        backward: Whether it ran in the backward of that module.
    """

    kind: str
    axis: str
    module: str
    backward: bool


class _Open(threading.local):
    """The open modes of this thread and where its computation stands."""

    def __init__(self) -> None:
        self.modes: list[CommDebugMode] = []
        self.modules: list[str] = []
        self.backward = False


_open = _Open()


class CommDebugMode:
    """Count the collectives inside a ``with`` block; the counterpart of PyTorch's mode of that name.

    Args:
        module: If given, collectives are attributed to the module of this tree that caused them.

    Example:
        ``with CommDebugMode(model) as comm: model(x).sum().backward()``, then ``comm.counts`` is
        ``{"all_reduce": 2}`` and ``comm.by_module`` tells where they came from.

    Attributes:
        records: Number of collectives per `Communication`.
        bytes: Bytes of the local inputs per `Communication`.
        is_open: Whether the block is still running; a later backward is not counted.
    """

    def __init__(self, module: Any = None) -> None:
        self.records: Counter[Communication] = Counter()
        self.bytes: Counter[Communication] = Counter()
        self._module = module
        self._exit = ExitStack()
        self.is_open = False

    def __enter__(self) -> CommDebugMode:
        if self._module is not None:
            platform = get_platform()
            names = {id(module): name for name, module in modules_below(platform, self._module)}

            def enter(module: Any) -> None:
                _open.modules.append(names.get(id(module), ""))

            def leave(module: Any) -> None:
                _open.modules.pop()

            self._exit.enter_context(platform.watch_modules(enter, leave))
        _open.modes.append(self)
        self.is_open = True
        return self

    def __exit__(self, *exc: object) -> None:
        _open.modes.remove(self)
        self.is_open = False
        self._exit.close()

    def _sum(self, key: Callable[[Communication], Any]) -> dict[Any, int]:
        total: Counter[Any] = Counter()
        for entry, count in self.records.items():
            total[key(entry)] += count
        return dict(total)

    @property
    def counts(self) -> dict[str, int]:
        """Number of collectives by kind."""
        return self._sum(lambda entry: entry.kind)

    @property
    def forward_counts(self) -> dict[str, int]:
        """Number of collectives by kind, forward only."""
        return {
            kind: n
            for (kind, backward), n in self._sum(lambda e: (e.kind, e.backward)).items()
            if not backward
        }

    @property
    def backward_counts(self) -> dict[str, int]:
        """Number of collectives by kind, backward only."""
        return {
            kind: n for (kind, backward), n in self._sum(lambda e: (e.kind, e.backward)).items() if backward
        }

    @property
    def by_axis(self) -> dict[tuple[str, str], int]:
        """Number of collectives by (axis, kind)."""
        return self._sum(lambda entry: (entry.axis, entry.kind))

    @property
    def by_module(self) -> dict[tuple[str, str], int]:
        """Number of collectives by (module, kind)."""
        return self._sum(lambda entry: (entry.module, entry.kind))

    @property
    def total(self) -> int:
        """Number of collectives of any kind."""
        return self.records.total()

    @property
    def total_bytes(self) -> int:
        """Bytes of all local inputs."""
        return self.bytes.total()

    def __repr__(self) -> str:
        counts = ", ".join(f"{kind}: {n}" for kind, n in sorted(self.counts.items()))
        return f"CommDebugMode({counts or 'nothing'})"


def record(kind: str, mesh: DeviceMesh, axis: int, x: Any) -> None:
    """Count one collective on the local tensor ``x`` in every open mode of this thread."""
    if not _open.modes:
        return
    module = _open.modules[-1] if _open.modules else ""
    entry = Communication(kind, mesh.mesh_dim_names[axis], module, _open.backward)
    size = get_platform().itemsize(x)
    for length in x.shape:
        size *= length
    for mode in _open.modes:
        mode.records[entry] += 1
        mode.bytes[entry] += size


class Cause(NamedTuple):
    """Whom a later communication is attributed to."""

    modes: tuple[CommDebugMode, ...]
    """The modes that were open."""
    module: str
    """The module whose forward ran."""


def cause() -> Cause:
    """What runs now."""
    return Cause(tuple(_open.modes), _open.modules[-1] if _open.modules else "")


def _common(causes: Sequence[Cause]) -> Cause:
    """All of their modes, and the innermost module that they share."""
    if not any([each.modes for each in causes]):
        return Cause((), "")
    modes = dict.fromkeys(mode for each in causes for mode in each.modes)
    levels = zip(*(each.module.split(".") for each in causes), strict=False)
    shared = takewhile(lambda names: len(set(names)) == 1, levels)
    return Cause(tuple(modes), ".".join(names[0] for names in shared))


def in_backward(map_: Callable[[Any], Any], causes: Sequence[Cause] = ()) -> Callable[[Any], Any]:
    """``map_``, counted as the backward of the module that runs now, or of the one that ``causes`` share.

    A framework may run the backward on a thread of its own, so the open modes travel with the map; a mode
    that was opened since then on the thread that runs it counts as well.
    """
    if not causes:
        if not _open.modes:
            return _nowhere(map_)
        return _caused(map_, cause())
    return _caused(map_, _common(causes))


def _caused(map_: Callable[[Any], Any], of: Cause) -> Callable[[Any], Any]:
    modes, module = of

    def run(x: Any) -> Any:
        if not modes and not _open.modes:
            return map_(x)
        before = _open.modes, _open.modules, _open.backward
        counting = [mode for mode in modes if mode.is_open]
        counting += [mode for mode in _open.modes if mode not in counting]
        _open.modes, _open.modules, _open.backward = counting, [module], True
        try:
            return map_(x)
        finally:
            _open.modes, _open.modules, _open.backward = before

    return run


@lru_cache(maxsize=4096)
def _nowhere(map_: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``map_`` as of a forward that no mode watched."""
    return _caused(map_, Cause((), ""))
