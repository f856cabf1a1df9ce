"""Local tensors made from nothing, and distributed ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from hyper_conformance.case import case
from hyper_conformance.here import NUMPY, Here
from hyper_dtensor import full, ones, zeros
from hyper_layout import Replicate, Shard

FILLED = {"zeros": ("zeros", 0), "ones": ("ones", 1), "full": ("full", 3)}


@case(1, ranks=(2,), over=FILLED, dtypes=("f64", "f32", "f16", "i64", "i32", "b"))
def create(here: Here, kind: str, value: int, dtype: str) -> None:
    """``create``: shape, dtype and values; a fresh tensor each time."""
    framework_dtype = here.harness.tensor(np.zeros((), NUMPY[dtype]), dtype).dtype
    fill = {"fill_value": bool(value) if dtype == "b" else value} if kind == "full" else {}
    for shape in ((2, 3), (), (0, 2)):
        first, second = (
            here.platform.create(kind, shape, here.harness.device_type, dtype=framework_dtype, **fill)
            for _ in range(2)
        )
        here.identical(first, np.full(shape, value, NUMPY[dtype]), f"{kind} {shape}")
        here.equal(here.platform.dtype_name(first), dtype)
        if np.prod(shape):
            assert not here.platform.shares_memory(first, second)


@case(1, ranks=(2,))
def create_empty(here: Here) -> None:
    """``empty`` has a shape; its values are not set."""
    x = here.platform.create("empty", (2, 3), here.harness.device_type)
    here.equal(tuple(x.shape), (2, 3))


@case(1, ranks=(2,))
def the_default_dtype_is_floating(here: Here) -> None:
    """Without a dtype the framework's own floating default is used."""
    for kind in ("zeros", "ones"):
        assert here.platform.is_floating(
            here.platform.create(kind, (2,), here.harness.device_type, dtype=None)
        )


@case(1, ranks=(2,))
def created_random_numbers(here: Here) -> None:
    """``rand`` lies in [0, 1); ``randn`` has mean 0 and variance 1; the seed decides."""
    seen: dict[tuple[str, int], Any] = {}
    for kind in ("rand", "randn"):
        for seed in (1, 1, 2):
            with here.platform.seeded(seed, here.harness.device_type):
                x = here.array(here.platform.create(kind, (64, 64), here.harness.device_type))
            if (kind, seed) in seen:
                np.testing.assert_array_equal(x, seen[kind, seed])
            seen[kind, seed] = x
    uniform, normal = seen["rand", 1], seen["randn", 1]
    assert uniform.min() >= 0 and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.05
    assert abs(normal.mean()) < 0.1 and abs(normal.var() - 1) < 0.1
    assert not np.array_equal(seen["rand", 1], seen["rand", 2])


@case(1)
def factories(here: Here) -> None:
    """``zeros``, ``ones``, ``full`` with a mesh and placements: global shape, local parts."""
    mesh = here.line()
    for make, value in ((zeros, 0.0), (ones, 1.0)):
        t = make(8, 4, device_mesh=mesh, placements=[Shard(0)])
        here.equal(tuple(t.shape), (8, 4))
        here.equal(tuple(t.to_local().shape), (8 // here.size, 4))
        here.close(t, np.full((8, 4), value))
    here.close(full((8, 4), 2.5, device_mesh=mesh, placements=[Replicate()]), np.full((8, 4), 2.5))
