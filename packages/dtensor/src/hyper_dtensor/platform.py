"""The platform protocol: everything the core needs from a framework, and how an adapter is found."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from hyper_layout import DeviceMesh, set_group_source, set_rank_source

if TYPE_CHECKING:
    from hyper_dtensor.dtensor import DTensor
    from hyper_dtensor.spec import Spec

__all__ = [
    "ENTRY_POINT_GROUP",
    "ENVIRONMENT_VARIABLE",
    "LocalOps",
    "Platform",
    "default_platform",
    "exchanged_platform",
    "get_platform",
    "set_platform",
]

ENTRY_POINT_GROUP = "hyper_parallel.platforms"
ENVIRONMENT_VARIABLE = "HYPER_PARALLEL_PLATFORM"

Tensor: TypeAlias = Any
"""A local tensor of the framework (never a DTensor)."""
Group: TypeAlias = Any
"""A communication group of the framework."""
Module: TypeAlias = Any
"""A module of the framework (``torch.nn.Module``, ``mindspore.nn.Cell``)."""


class LocalOps(Protocol):
    """Functions on local tensors, under PyTorch's names, signatures and meaning.

    Expand implementations compute with these, so that an operator family is written once for all
    frameworks. An adapter offers a namespace that has them; on PyTorch most are ``torch`` itself.

    In use are abs, add, amax, amin, any, arange, as_tensor, cat, clamp, clone, div, einsum, exp,
    expand, full, full_like, gather, index_select, isnan, linear, log, masked_fill, mul, narrow,
    ones_like, permute, pow, prod, reshape, square, squeeze, stack, sub, sum, tile, unbind,
    unsqueeze, vector_norm, where, zeros_like, and ``fingerprint(x)``, a picklable digest of dtype, shape
    and values; arange, as_tensor and full take ``dtype=`` and ``device=``; of a tensor itself operators,
    indexing, ``shape``, ``dtype``, ``device``, ``float``, ``to`` and ``is_complex``.
    """

    def __getattr__(self, name: str) -> Callable[..., Any]: ...


@runtime_checkable
class Platform(Protocol):
    """What an adapter supplies. ``x`` is always a local tensor; ``group`` what ``group`` returned.

    Collectives are blocking in meaning (the result may be used at once), never write into ``x``, always
    return a fresh tensor, and are called by every rank of the group in the same order. They carry no
    gradient: ``linear`` pairs them with their backward (design section 3).

    Attributes:
        name: The name of the adapter's entry point, which is how its framework is imported.
        device_types: What a mesh may be made of.
        framework: How messages call the framework.
        ops: Functions on local tensors.
    """

    name: str
    device_types: tuple[str, ...]
    framework: str
    ops: LocalOps

    # -- processes -----------------------------------------------------------------------------------
    def rank(self) -> int:
        """Global rank of this process; 0 where nothing was started and the launcher set none."""

    def world_size(self) -> int:
        """Number of processes; 1 where nothing was started and the launcher set none."""

    def start(self, device_type: str) -> None:
        """Start the process group of ``device_type`` if there is none.

        Raises:
            ValueError: For a device type that the platform does not know.
            RuntimeError: If the backend of the device is not installed; says what to install.
        """

    def device_count(self, device_type: str) -> int:
        """How many devices of ``device_type`` this process could use; ``cpu`` is one device.

        0 where there is none, or what it needs is not installed. Starts nothing.

        Raises:
            ValueError: For a device type that the platform does not know.
        """

    def group(self, ranks: tuple[int, ...]) -> Group:
        """The group of these global ranks (this process is one of them); ranks outside take no part."""

    def native_group(self, group: Group) -> Any:
        """The framework's own object for ``group``: what ``mesh.get_group`` hands to users."""

    def group_ranks(self, group: Group) -> tuple[int, ...]:
        """Global ranks of ``group`` in its own order."""

    # -- collectives -------------------------------------------------------------------------------
    def all_reduce(self, x: Tensor, op: str, group: Group) -> Tensor:
        """``[a] [b] -> [a+b] [a+b]``; shape kept. ``op``: sum, max, min, prod. Backward partner: identity.

        Max and min keep a NaN of any rank. A sum of bool counts the true ones, as int64.
        """

    def all_gather(self, x: Tensor, dim: int, group: Group) -> Tensor:
        """``[a] [b] -> [a b] [a b]``; ``dim`` grows by the group size. Partner: reduce_scatter or slice."""

    def reduce_scatter(self, x: Tensor, dim: int, op: str, group: Group) -> Tensor:
        """``[a0 a1] [b0 b1] -> [a0+b0] [a1+b1]``; ``dim`` shrinks by the group size. Partner: all_gather.

        ``op`` as in ``all_reduce``.
        """

    def all_to_all(self, x: Tensor, split_dim: int, concat_dim: int, group: Group) -> Tensor:
        """``[a0 a1] [b0 b1] -> [a0 b0] [a1 b1]``; splits one dim, joins another. Partner: itself, swapped."""

    def broadcast(self, x: Tensor, source: int, group: Group) -> Tensor:
        """``[a] [?] -> [a] [a]``; ``source`` is the index in the group; every rank passes the shape."""

    def scatter(self, x: Tensor, dim: int, source: int, group: Group) -> Tensor:
        """``[a0 a1] [?] -> [a0] [a1]``: equal parts of the source rank's ``x`` along ``dim``."""

    def all_gather_object(self, value: Any, group: Group) -> list[Any]:
        """The picklable ``value`` of every rank of the group, in group order."""

    # -- autograd ------------------------------------------------------------------------------------
    def linear(
        self,
        x: Tensor,
        forward: Callable[[Tensor], Tensor],
        backward: Callable[[Tensor], Tensor],
        value: Tensor | None = None,
    ) -> Tensor:
        """A differentiable linear map: ``forward(x)``, whose gradient is ``backward(g)``.

        The backward is itself differentiable, with the two swapped (``create_graph``). ``value`` is the
        forward result where it is known already: an alias of it is returned and ``forward`` runs only
        in a second derivative. Without gradients this is ``forward(x)``.
        """

    def tracks_gradient(self, x: Tensor) -> bool:
        """Whether gradients are on and ``x`` needs one."""

    def grad_enabled(self) -> bool:
        """Whether gradients are on."""

    def deferred_view(self, t: DTensor, axes: int) -> Tensor | None:
        """The parameter ``t`` for an op that varies on ``axes``, its gradient reduced after the backward.

        What that gradient is, the platform asks of ``coalesced.new_summand``, once per view that it makes.
        At the end of each backward, before it returns, all that reached such views goes through
        ``reduce_together`` and on to the parameters, whose hooks see the whole gradient. The view has the
        memory of ``t``, is no leaf, and is exact under ``create_graph``.

        Returns:
            The view, or ``None``: where ``new_summand`` says so, of a tensor whose gradient may be asked for
            without the platform's knowing, and always where the framework cannot do this.
        """

    def version(self, x: Tensor) -> int:
        """A number that changes whenever ``x`` is written in place."""

    def gradient_stamp(self, x: Tensor) -> Any:
        """What a varying view of ``x`` is valid for (rule 3), ``None`` where no gradient of ``x`` is tracked.

        Another value whenever ``x`` was written in place or got other data, and in another gradient
        computation where a view has no history in the next one.
        """

    def detach(self, x: Tensor) -> Tensor:
        """An alias of ``x`` without history."""

    def backward(self, x: Tensor, gradient: Tensor, **options: Any) -> None:
        """Run the framework's backward from ``x`` with the local ``gradient``."""

    # -- tensors -------------------------------------------------------------------------------------
    def wrap(self, x: Tensor, spec: Spec, shape: tuple[int, ...]) -> DTensor:
        """The framework's DTensor over ``x``; ``shape`` is global."""

    def is_tensor(self, value: Any) -> bool:
        """Whether ``value`` is a tensor of the framework that is not a DTensor."""

    def dtype_name(self, x: Tensor) -> str:
        """``"f32"``, ``"bf16"``, ``"i64"``, ``"b"``: for messages."""

    def itemsize(self, x: Tensor) -> int:
        """Bytes per element."""

    def is_meta(self, x: Tensor) -> bool:
        """Whether ``x`` has a shape but no data."""

    def shares_memory(self, x: Tensor, y: Tensor) -> bool:
        """Whether what is written into ``x`` may show in ``y``."""

    def is_floating(self, x: Tensor) -> bool:
        """Whether the dtype is floating."""

    def scale_(self, x: Tensor, factor: Tensor) -> None:
        """Multiply ``x`` in place by a 0-d ``factor``, without gradient."""

    def memo(self, x: Tensor) -> dict[Any, Any] | None:
        """A dictionary that lives as long as the plain non-leaf ``x``; ``None`` where it would leak."""

    # -- random --------------------------------------------------------------------------------------
    def draw_seed(self, device: Any) -> int:
        """One number from the default generator of ``device``, below 2**62; equal on ranks seeded alike."""

    def seeded(self, seed: int, device: Any) -> AbstractContextManager[None]:
        """Random ops inside draw from a generator seeded with ``seed``; the default one is left alone."""

    # -- functions nobody registered -----------------------------------------------------------------
    def python_body(self, func: Callable[..., Any]) -> Callable[..., Any] | None:
        """``func`` rebuilt so that its parts are dispatched; ``None`` for a built-in (design section 4)."""

    def is_random(self, func: Callable[..., Any]) -> bool:
        """Whether the built-in ``func`` draws random numbers."""

    # -- modules -------------------------------------------------------------------------------------
    def children(self, module: Module) -> Mapping[str, Module]:
        """Direct submodules by name."""

    def parameters(self, module: Module) -> Mapping[str, Tensor | DTensor]:
        """Parameters of the module itself, by name (submodules excluded)."""

    def buffers(self, module: Module) -> Mapping[str, Tensor | DTensor]:
        """Buffers of the module itself, by name (submodules excluded)."""

    def set_parameter(self, module: Module, name: str, value: DTensor) -> None:
        """Make ``value`` the data of the parameter, in place: ties and optimizers keep the object."""

    def set_buffer(self, module: Module, name: str, value: DTensor) -> None:
        """Replace a buffer."""

    def before_forward(
        self, module: Module, hook: Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]
    ) -> Any:
        """Call ``hook(module, args, kwargs) -> (args, kwargs)`` before each forward; returns a handle."""

    def after_forward(self, module: Module, hook: Callable[..., Any]) -> Any:
        """Call ``hook(module, args, kwargs, output) -> output`` after each forward; returns a handle."""

    def watch_modules(
        self, enter: Callable[[Module], None], leave: Callable[[Module], None]
    ) -> AbstractContextManager[None]:
        """Call ``enter`` / ``leave`` around the forward of every module while the context is open."""

    def is_linear_module(self, module: Module) -> bool:
        """Whether ``module`` is the framework's linear layer (weight ``[out_features, in_features]``)."""

    def is_embedding_module(self, module: Module) -> bool:
        """Whether ``module`` is the framework's embedding layer (weight ``[num, dim]``)."""

    # -- creation ------------------------------------------------------------------------------------
    def create(self, kind: str, shape: tuple[int, ...], device_type: str, **options: Any) -> Tensor:
        """A local tensor: ``kind`` is zeros, ones, empty, full (``fill_value=``), rand or randn."""


_lock = threading.Lock()
_chosen: Platform | None = None
_since = ""


def _installed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def _entry_point(name: str) -> EntryPoint:
    points = _installed()
    if name not in points:
        raise ValueError(
            f"unknown platform {name!r}; installed: {', '.join(sorted(points)) or 'none'}. "
            "Install the adapter's package (for example packages/platform_torch), or choose with "
            f"set_platform(name) or {ENVIRONMENT_VARIABLE}=name"
        )
    return points[name]


def _load(name: str) -> Platform:
    factory = _entry_point(name).load()
    platform: Platform = factory()
    return platform


def set_platform(platform: str | Platform) -> Platform:
    """Choose the platform of this process, by adapter name or as an instance.

    One process uses one platform: tensors, groups and cached layouts belong to it, and importing an adapter
    may change its framework. The first choice is final, whether it is made here or by `get_platform`; the
    same may be chosen again. Tests of core code may exchange it: `exchanged_platform`.

    Returns:
        The platform of this process.

    Raises:
        ValueError: If no adapter of that name is installed; the message lists the installed ones.
        RuntimeError: If this process uses another platform; the message says since when.
    """
    with _lock:
        return _choose(platform, "set_platform")


def _choose(platform: str | Platform, reason: str) -> Platform:
    """The platform, chosen for this process if none was; the caller holds the lock."""
    global _chosen, _since
    if _chosen is None:
        _chosen = _load(platform) if isinstance(platform, str) else platform
        _since = f"{reason} at {_call_site()}"
        set_rank_source(_chosen.rank)
    elif platform is not _chosen and platform != _chosen.name:
        name = platform if isinstance(platform, str) else platform.name
        if isinstance(platform, str):
            _entry_point(name)  # an unknown name is that first of all
        another = f"another instance of {name!r}" if name == _chosen.name else repr(name)
        raise RuntimeError(
            f"this process uses the platform {_chosen.name!r} (since {_since}) and cannot change to "
            f"{another}: one process uses one platform; run what needs the other one in a process of its own"
        )
    return _chosen


def _call_site() -> str:
    """File and line of the user's call: the first frame that is not ours."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("hyper_"):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


@contextmanager
def exchanged_platform(platform: Platform | None) -> Iterator[None]:
    """Inside of the block this process uses ``platform``, in all threads; afterwards, what it used before.

    For tests, and for what applies rules on paper: what was made on one platform, cached layouts included,
    must not meet another one. All that is used inside of the block is made there.

    Args:
        platform: The platform; None for a process that has not chosen yet.
    """
    global _chosen, _since
    before = _chosen, _since
    _chosen, _since = platform, "an exchange"
    set_rank_source(_current_rank)
    try:
        yield
    finally:
        _chosen, _since = before


def _current_rank() -> int:
    """The rank of this process; 0 where no adapter is installed and layouts are mere arithmetic."""
    if _chosen is not None:
        return _chosen.rank()
    return get_platform().rank() if _installed() else 0


def _native_group(mesh: DeviceMesh, axis: int) -> Group:
    platform = get_platform()
    return platform.native_group(platform.group(mesh.ranks_along(axis)))


def _ranks_of_group(group: Group) -> tuple[int, ...]:
    return get_platform().group_ranks(group)


def get_platform() -> Platform:
    """The platform of this process (design section 1).

    What ``set_platform`` or ``HYPER_PARALLEL_PLATFORM`` says, else the installed adapter whose framework
    is already imported, else the only installed one. What it is at the first call, it stays: one process
    uses one platform.

    Raises:
        RuntimeError: If that does not single one out; lists what is installed and how to choose.
    """
    return _chosen if _chosen is not None else _first_use()


def _first_use() -> Platform:
    with _lock:
        # Another thread may have chosen meanwhile.
        return _choose(*default_platform()) if _chosen is None else _chosen


def default_platform() -> tuple[str, str]:
    """Name of the platform where none was set, and why it is that one. Nothing is imported.

    Raises:
        RuntimeError: As `get_platform`.
    """
    from_environment = os.environ.get(ENVIRONMENT_VARIABLE)
    if from_environment:
        return from_environment, f"its first use, because of {ENVIRONMENT_VARIABLE}={from_environment},"
    points = _installed()
    # An entry point is named as the framework is imported: "torch", "mindspore".
    imported = [name for name in points if name in sys.modules]
    if len(imported) == 1:
        return imported[0], f"its first use, when {imported[0]} was the only framework imported,"
    if not imported and len(points) == 1:
        return next(iter(points)), "its first use, as the only adapter that is installed,"
    install = ", or install the package of one adapter (for example packages/platform_torch)"
    raise RuntimeError(
        f"cannot tell which platform to use: installed {', '.join(sorted(points)) or 'none'}, frameworks "
        f"imported {', '.join(sorted(imported)) or 'none'}. Call hyper_parallel.set_platform(name), or set "
        f"{ENVIRONMENT_VARIABLE}=name{'' if points else install}"
    )


def modules_below(platform: Platform, module: Module, prefix: str = "") -> Iterator[tuple[str, Module]]:
    """``(fully qualified name, module)`` of ``module`` and everything below it, parents first."""
    yield prefix, module
    for name, child in platform.children(module).items():
        yield from modules_below(platform, child, f"{prefix}.{name}" if prefix else name)


# A mesh asks the platform of this process, also one that is chosen later.
set_rank_source(_current_rank)
set_group_source(_native_group, _ranks_of_group)
