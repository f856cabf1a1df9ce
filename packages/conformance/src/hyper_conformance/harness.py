"""What the suite needs to know of a platform beside the protocol: its harness.

A harness is a class that can be made without arguments, found by name in the entry-point group
``hyper_conformance.harnesses`` or given as ``module:Class``. It is used on both sides: the process that runs
pytest reads its attributes and starts ranks; each rank makes one of its own for arrays, gradients, modules.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import entry_points
from typing import Any, Protocol, TypeAlias, cast

from numpy.typing import NDArray

from hyper_conformance.ranks import ProcessRanks, ProcessSetup

__all__ = ["ENTRY_POINT_GROUP", "SKIP_KINDS", "Harness", "Ranks", "find_harness", "harness_address", "launch"]

ENTRY_POINT_GROUP = "hyper_conformance.harnesses"
SKIP_KINDS = ("to do", "impossible on this platform")
"""The two reasons for which a case may be left out."""

Array: TypeAlias = NDArray[Any]
Tensor: TypeAlias = Any
Module: TypeAlias = Any


class Ranks(Protocol):
    """Running ranks of one world, to which functions are sent."""

    def run(self, fn: Callable[..., Any], *args: Any) -> list[Any]:
        """Call the importable ``fn(*args)`` on every rank; returns what each returned, by rank.

        Raises:
            Exception: Within seconds, if a rank raised, with that rank's error in the message. Later calls
                work: ranks that are out of step are replaced.
        """

    def close(self) -> None:
        """End the ranks."""


class Harness(Protocol):
    """The description of a platform for the suite.

    A platform whose ranks are processes has the methods of `ProcessSetup` too (``preload``, ``rendezvous``,
    ``join``, ``reset``, ``leave``), and the suite starts them. Any other has
    ``launch(world_size) -> Ranks`` instead.

    Attributes:
        name: The name of the platform, as ``get_platform().name`` says it on the ranks.
        device_type: The device type that the suite makes meshes of.
        dtypes: Short names (``Platform.dtype_name``) of the dtypes that the platform has.
        skips: What the platform does not pass: a pattern of case names (``*`` stands for anything) to one of
            ``SKIP_KINDS`` and the reason.
    """

    name: str
    device_type: str
    dtypes: tuple[str, ...]
    skips: Mapping[str, tuple[str, str]]

    # -- arrays --------------------------------------------------------------------------------------
    def tensor(self, array: Array, dtype: str) -> Tensor:
        """A fresh local tensor of these values that needs no gradient."""

    def array(self, x: Tensor) -> Array:
        """The values of a local tensor, also of one in a graph; bf16 as float32."""

    def meta(self, shape: tuple[int, ...]) -> Tensor | None:
        """A tensor that has a shape but no data; ``None`` where the framework has none."""

    # -- gradients and random numbers ------------------------------------------------------------------
    def gradients(self, function: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
        """``function(*inputs)``, a 0-d local tensor, and its gradients with respect to the local inputs.

        An input that was not used has a gradient of zeros. Inside of another ``gradients`` the result is
        differentiable, if the platform has second derivatives.
        """

    def parameter_gradients(
        self, function: Callable[[], Tensor], parameters: Sequence[Any]
    ) -> tuple[Tensor, list[Any]]:
        """``function()``, a 0-d local tensor, and its gradients with respect to parameters.

        Parameters are what ``Platform.parameters`` returned. The gradient of a DTensor is one, or the local
        tensor that the framework computed for it.
        """

    def no_grad(self) -> AbstractContextManager[Any]:
        """Gradients are off inside."""

    def seed(self, value: int) -> None:
        """Seed the default random generator of this rank."""

    # -- sample modules --------------------------------------------------------------------------------
    def linear(self, weight: Array, bias: Array | None) -> Module:
        """The framework's linear layer, ``x @ weight.T + bias``; its parameters are ``weight``, ``bias``."""

    def embedding(self, weight: Array) -> Module:
        """The framework's embedding layer: rows of ``weight`` by integer ids."""

    def sequence(self, modules: Mapping[str, Module]) -> Module:
        """Children of these names, one after the other; calling it calls them."""

    def two_outputs(self, gain: Array) -> Module:
        """A module of two outputs: ``(x, *, scale=1.0, shift=0.0) -> (x * gain * scale, x + shift)``.

        ``gain`` is its parameter; it has a buffer ``offset`` beside, ones like ``gain``, that is not used.
        """

    def tie(self, embedding: Module, linear: Module) -> None:
        """Make the parameter of ``embedding`` the ``weight`` of ``linear`` too: one object."""

    # -- sample functions ------------------------------------------------------------------------------
    def random_function(self) -> Callable[..., Any]:
        """A built-in that draws random numbers."""

    def plain_function(self) -> Callable[..., Any]:
        """A built-in of one tensor that draws none."""

    def python_function(self) -> Callable[..., Any] | None:
        """A function of one tensor that the framework wrote in Python; ``None`` where there is none."""


def harness_address(name: str) -> str:
    """``module:Class`` of the harness of that name; an address is returned as it is.

    Raises:
        ValueError: If no harness of that name is installed; lists those that are.
    """
    if ":" in name:
        return name
    points = {point.name: point.value for point in entry_points(group=ENTRY_POINT_GROUP)}
    if name not in points:
        raise ValueError(
            f"no harness for platform {name!r}: installed are {', '.join(sorted(points)) or 'none'}. Install "
            f"the adapter (an entry point of the group {ENTRY_POINT_GROUP!r} names its harness), or give the "
            "class itself: --platform package.module:Class"
        )
    return points[name]


def find_harness(name: str) -> Harness:
    """The harness of that name or address.

    Raises:
        ValueError: If there is none, or its table of skips is not well-formed.
    """
    module, _, attribute = harness_address(name).partition(":")
    harness: Harness = getattr(importlib.import_module(module), attribute)()
    for pattern, (kind, reason) in harness.skips.items():
        if kind not in SKIP_KINDS or not reason:
            raise ValueError(
                f"skips of {harness.name}: {pattern!r} must say one of {SKIP_KINDS} and a reason, got "
                f"{kind!r}, {reason!r}"
            )
    return harness


def launch(harness: Harness, world_size: int) -> Ranks:
    """Ranks of that platform: its own, or processes."""
    start = getattr(harness, "launch", None)
    if start is not None:
        return cast(Ranks, start(world_size))
    return ProcessRanks(world_size, cast(ProcessSetup, harness))
