"""What a case is given: the platform, the harness, and a few helpers on arrays, meshes and values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hyper_conformance.harness import Harness
from hyper_dtensor import DTensor, Platform, Spec, init_device_mesh, wrap
from hyper_dtensor.gradients import gradient_spec
from hyper_layout import DeviceMesh, Layout, Placement

__all__ = ["NUMPY", "Here"]

Array: TypeAlias = NDArray[Any]
Tensor: TypeAlias = Any

NUMPY = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": np.float32,  # NumPy has none; the values that the cases use are exact in both
    "i64": np.int64,
    "i32": np.int32,
    "i16": np.int16,
    "i8": np.int8,
    "u8": np.uint8,
    "b": np.bool_,
    "c64": np.complex64,
    "c128": np.complex128,
}
"""The NumPy dtype that holds the values of each dtype."""


class Here:
    """One rank that runs a case.

    Args:
        platform: The platform of this process.
        harness: Its harness.

    Attributes:
        precise: The floating dtype of cases about gradients: f64, or f32 where the platform lacks it.
    """

    def __init__(self, platform: Platform, harness: Harness) -> None:
        self.platform, self.harness = platform, harness
        self.rank, self.size = platform.rank(), platform.world_size()
        self.precise = "f64" if "f64" in harness.dtypes else "f32"

    # -- arrays and tensors ------------------------------------------------------------------------------
    def tensor(self, array: Any, dtype: str | None = None) -> Tensor:
        """A fresh local tensor; floating unless the array or ``dtype`` says otherwise."""
        array = np.asarray(array)
        if dtype is None:
            kinds = {"f": self.precise, "i": "i64", "b": "b"}
            dtype = kinds[array.dtype.kind]
        return self.harness.tensor(array.astype(NUMPY[dtype]), dtype)

    def array(self, x: Any) -> Array:
        """The values of a local tensor, or of the whole of a DTensor; an array as it is."""
        if isinstance(x, np.ndarray):
            return x
        if isinstance(x, DTensor):
            with self.harness.no_grad():
                x = x.full_tensor()
        return np.asarray(self.harness.array(x))

    def values(self, *shape: int, seed: int = 0) -> Array:
        """Numbers that are the same on every rank; not to be written."""
        return _values(seed, shape)

    # -- meshes ------------------------------------------------------------------------------------------
    def line(self) -> DeviceMesh:
        """All ranks along one axis, ``tp``."""
        return init_device_mesh(self.harness.device_type, (self.size,), mesh_dim_names=("tp",))

    def square(self) -> DeviceMesh:
        """Four ranks as 2 x 2, ``dp`` and ``tp``."""
        return init_device_mesh(self.harness.device_type, (2, 2), mesh_dim_names=("dp", "tp"))

    def everyone(self) -> Any:
        """The group of all ranks."""
        return self.group(tuple(range(self.size)))

    def group(self, ranks: tuple[int, ...]) -> Any:
        """The group of these ranks, this one among them."""
        self.platform.start(self.harness.device_type)
        return self.platform.group(ranks)

    def share(self) -> float:
        """A number of this rank; those of all ranks sum to one."""
        return self.share_along(self.size, self.rank)

    def share_along(self, size: int, position: int) -> float:
        """A number of one position; those of all ``size`` positions sum to one."""
        numbers = np.random.default_rng(3).standard_normal(size)
        numbers[-1] = 1 - numbers[:-1].sum()
        return float(numbers[position])

    # -- distributed tensors -----------------------------------------------------------------------------
    def part(self, value: Array, layout: Layout) -> Array:
        """What this rank holds of ``value``. Partial axes get uneven addends of mixed signs."""
        coordinate = layout.mesh.get_coordinate()
        assert coordinate is not None
        before: list[int] = []
        for axis, op in enumerate(layout.partial):
            if op is None:
                continue
            value = _addend(value, op, layout.mesh_shape[axis], coordinate[axis], [axis, *before])
            before.append(coordinate[axis])
        return value[layout.local_slice(value.shape)].copy()

    def distributed(
        self, value: Array, mesh: DeviceMesh, placements: Sequence[Placement], *, varying: int = 0
    ) -> DTensor:
        """``value`` in a layout and gradient state, without communication."""
        layout = Layout(mesh, tuple(placements), value.ndim)
        return wrap(self.tensor(self.part(value, layout)), Spec.of(layout, varying), value.shape)

    def whole_gradient(self, spec: Spec, shape: tuple[int, ...], gradient: Any) -> Array:
        """The whole gradient of a tensor of ``spec``, of which ``gradient`` is this rank's part."""
        if not isinstance(gradient, DTensor):
            gradient = wrap(gradient, gradient_spec(spec), shape)
        return self.array(gradient)

    # -- comparison --------------------------------------------------------------------------------------
    def equal(self, actual: Any, expected: Any, what: str = "") -> None:
        """Equal as Python values; says both, where an assertion on a rank would show its line alone."""
        assert actual == expected, f"{what}: on rank {self.rank} {actual!r} instead of {expected!r}"

    def identical(self, actual: Any, expected: Array, what: str = "") -> None:
        """Equal in shape, dtype and every bit."""
        actual = self.array(actual)
        assert actual.dtype == expected.dtype, f"{what}: dtype {actual.dtype} instead of {expected.dtype}"
        assert actual.shape == expected.shape, f"{what}: shape {actual.shape} instead of {expected.shape}"
        assert np.ascontiguousarray(actual).tobytes() == np.ascontiguousarray(expected).tobytes(), (
            f"{what}: on rank {self.rank}\n{actual}\ninstead of\n{expected}"
        )

    def close(self, actual: Any, expected: Any, what: str = "") -> None:
        """Equal within rounding."""
        actual, expected = self.array(actual), np.asarray(expected)
        assert actual.shape == expected.shape, f"{what}: shape {actual.shape} instead of {expected.shape}"
        tolerance = 1e-11 if self.precise == "f64" else 2e-4
        if actual.dtype != np.bool_ and np.all(
            np.abs(actual - expected) <= tolerance * (1 + np.abs(expected))
        ):
            return
        np.testing.assert_allclose(  # slower, and says where
            actual, expected, rtol=tolerance, atol=tolerance, err_msg=f"{what}: on rank {self.rank}"
        )

    def refused(self, call: Callable[[], Any], *kinds: type[BaseException], says: str = "") -> str:
        """``call`` raises one of ``kinds`` on every rank, with the same message; returns it.

        Args:
            call: What is refused.
            *kinds: Exception types.
            says: What the message contains.
        """
        try:
            result = call()
            said = f"returned {result!r}"
            raised = False
        except kinds as error:
            said, raised = str(error), True
        answers = self.platform.all_gather_object((raised, said), self.everyone())
        assert all(raised for raised, _ in answers), f"not refused by every rank: {answers}"
        assert len({said for _, said in answers}) == 1, f"refused with different messages: {answers}"
        assert says in said, f"the message does not say {says!r}: {said}"
        return said


@functools.cache
def _values(seed: int, shape: tuple[int, ...]) -> Array:
    values = np.random.default_rng([seed, *shape]).standard_normal(shape)
    values.flags.writeable = False
    return values


def _addend(value: Array, op: str, size: int, place: int, seed: Sequence[int]) -> Array:
    """What one of ``size`` ranks holds, so that all together reduce to ``value``."""
    noise = np.random.default_rng([7, *seed]).standard_normal((size, *value.shape))
    if op in ("sum", "avg"):
        noise[-1] = value - noise[:-1].sum(0)
        return np.asarray(noise[place] * (size if op == "avg" else 1))
    if op == "prod":
        noise = np.sign(noise) + noise  # away from zero, so that nothing is lost by the division
        noise[-1] = value / noise[:-1].prod(0)
        return np.asarray(noise[place])
    below = -1 if op == "max" else 1
    return np.asarray(value + (0 if place == size - 1 else below * np.abs(noise[place])))
