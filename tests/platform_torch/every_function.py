"""Calls every function that PyTorch lets a tensor class override, with simple arguments, on one rank."""

from __future__ import annotations

import contextlib
import inspect
import io
import itertools
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from hyper_dtensor import DTensor, distribute_tensor, init_device_mesh
from hyper_layout import DeviceMesh, Partial, Placement, Replicate, Shard

PLACEMENTS: dict[str, Placement] = {
    "S(0)": Shard(0),
    "S(1)": Shard(1),
    "P": Partial(),
    "R": Replicate(),
}

# Their answers differ between two equal tensors, or between two calls.
NO_COMPARISON = {
    *("__hash__", "__repr__", "__format__", "__dir__", "__dlpack__"),
    *(
        "__deepcopy__",
        "data_ptr",
        "const_data_ptr",
        "_cdata",
        "_backward_hooks",
        "_post_accumulate_grad_hooks",
        "_version",
    ),
    *("layout", "grad_fn", "_use_count", "untyped_storage", "storage", "_typed_storage", "_storage"),
    *("empty_like", "new_empty", "new_empty_strided", "resize_", "resize_as_", "set_", "new"),
    # Random.
    *("rand_like", "randn_like", "randint_like", "normal", "normal_", "uniform_", "random_", "exponential_"),
    *(
        "cauchy_",
        "log_normal_",
        "geometric_",
        "bernoulli",
        "bernoulli_",
        "multinomial",
        "poisson",
        "binomial",
    ),
    *("dropout", "dropout_", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "alpha_dropout_"),
    *("feature_dropout", "feature_dropout_", "feature_alpha_dropout", "feature_alpha_dropout_"),
    *("native_dropout", "rrelu", "rrelu_", "kaiming_uniform_", "gumbel_softmax", "svd_lowrank"),
    *("pca_lowrank", "fractional_max_pool2d", "fractional_max_pool3d", "_fused_dropout"),
    *("fractional_max_pool2d_with_indices", "fractional_max_pool3d_with_indices", "_sobol_engine_draw"),
    # Unique up to signs.
    *("linalg_eig", "linalg_svd", "svd", "linalg_qr", "qr", "linalg_eigh", "geqrf"),
}
LEFT_OUT = {
    # They leave the process in another state, or need a device.
    *("cuda", "xpu", "ipu", "mtia", "hpu", "npu", "maia", "share_memory_", "module_load", "pin_memory"),
    # Pickling: this rank's part is what is saved.
    *("__reduce_ex__", "__setstate__"),
    *("record_stream", "_cudnn_init_dropout_state", "__cuda_array_interface__"),
    # Slow where they refuse.
    *("lobpcg", "binary_cross_entropy"),
}


@dataclass
class Tally:
    """What came out of the calls on one rank; names are those of functions."""

    equal: set[str] = field(default_factory=set)
    refused: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def values() -> dict[str, torch.Tensor]:
    """The tensors that the calls are made with; distinct, in (0, 1), so that most functions take them."""
    generator = torch.Generator().manual_seed(1)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64) * 0.8 + 0.1

    return {
        "x": uniform(4, 4),
        "y": uniform(4, 4),
        "z": uniform(4, 4),
        "x3": uniform(2, 4, 4),
        "y3": uniform(2, 4, 4),
        "x4": uniform(2, 2, 4, 4),
        "v": uniform(4),
        "i": torch.randint(0, 4, (4, 4), generator=generator),
        "j": torch.randint(0, 4, (4,), generator=generator),
        "b": torch.rand((4, 4), generator=generator) > 0.4,
    }


TEMPLATES: tuple[tuple[Any, ...], ...] = (
    ("x",),
    ("x", "y"),
    ("x", "y", "z"),
    ("x", 2),
    ("x", 0),
    ("x", 1),
    ("x", -1),
    ("x", 0.5),
    ("x", 0, 1),
    ("x", 2, 0),
    ("x", 2, 1),
    ("x", (0,)),
    ("x", (2, 2, 4)),
    ("x", 2, 8),
    ("x", (4, 4)),
    ("x", [1, 3]),
    ("x", 0, "j"),
    ("x", 1, "j"),
    ("x", 0, "i"),
    ("x", 1, "i"),
    ("x", 0, "i", "y"),
    ("x", 1, "i", "y"),
    ("x", 0, "j", "y"),
    ("x", 0, "j", 0.5),
    ("x", "j"),
    ("x", "i"),
    ("x", "b"),
    ("x", "b", 0.5),
    ("x", "b", "y"),
    ("b", "x", "y"),
    ("x", "v"),
    ("v",),
    ("v", "v"),
    ("v", 2),
    ("i",),
    ("i", "i"),
    ("i", 2),
    ("j",),
    ("i", "x"),
    ("j", "x"),
    ("b",),
    ("b", "b"),
    ("x3",),
    ("x3", "y3"),
    ("x3", "x"),
    ("x3", 0),
    ("x3", 1),
    ("x3", 2),
    ("x3", "x3", "x3"),
    ("x4",),
    ("x4", 2),
    ("x4", "x4"),
    ("x4", "x4", "x4"),
    (2.0, "x"),
    (2, "i"),
    (("x", "y"),),
    (("x", "y"), 1),
    (("x", "y"), 0),
    (("x", "y"), 2.0),
    (("x", "y"), ("y", "z")),
    (("x", "y"), ("y", "z"), ("z", "x")),
    ("ij,jk->ik", "x", "y"),
    ("ij->j", "x"),
    ("x", torch.float32),
    ("x", None),
    ("x", (2,)),
    ("x", (1, 1)),
    ("x", 1, 0, 2),
    ("x", 0, 1, 2),
)

Convert = Callable[[torch.Tensor, int], Any]


def filled(
    template: Any, tensors: dict[str, torch.Tensor], convert: Convert, count: itertools.count[int]
) -> Any:
    if isinstance(template, str) and template in tensors:
        return convert(tensors[template].clone(), next(count))
    if (
        isinstance(template, tuple)
        and template
        and any(item in tensors for item in template if isinstance(item, str))
    ):
        return [filled(item, tensors, convert, count) for item in template]
    return template


def functions() -> Iterator[tuple[str, Callable[..., Any], list[tuple[Any, ...]]]]:
    """Name, function, and the templates of as many arguments as it takes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = torch.overrides.get_testing_overrides()
    for function, dummy in found.items():
        name = getattr(function, "__name__", repr(function))
        if name in ("__get__", "__set__", "__delete__"):
            name = getattr(function.__self__, "__name__", name)
            if function.__name__ != "__get__":
                continue
        collective = getattr(function, "__module__", "").startswith("torch.distributed")
        if name not in LEFT_OUT and not collective:
            parameters = inspect.signature(dummy).parameters.values()
            positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
            least = sum(p.default is p.empty for p in positional)
            most = 9 if any(p.kind is p.VAR_POSITIONAL for p in parameters) else len(positional)
            yield name, function, [t for t in TEMPLATES if least <= len(t) <= most]


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


def difference(expected: Any, got: Any) -> str | None:
    """What is wrong with ``got``; ``None`` if it is the distributed form of ``expected``."""
    if isinstance(expected, torch.Tensor):
        if not isinstance(got, torch.Tensor):
            return f"{type(got).__name__} instead of a tensor"
        if not isinstance(got, DTensor):
            return f"a plain tensor of shape {tuple(got.shape)}"
        if tuple(got.shape) != tuple(expected.shape):
            return f"shape {tuple(got.shape)} instead of {tuple(expected.shape)}"
        try:
            full = got.full_tensor()
        except (RuntimeError, ValueError) as error:
            return f"no full tensor: {error}"
        if tuple(full.shape) != tuple(expected.shape) or full.dtype != expected.dtype:
            return f"{full.dtype}{tuple(full.shape)} instead of {expected.dtype}{tuple(expected.shape)} ({got!r})"
        rtol, atol = (1e-9, 1e-12) if full.dtype in (torch.float64, torch.complex128) else (1e-5, 1e-6)
        if any(p.is_partial() for p in got.placements):
            # 0 / 0 is no number on the ranks whose summand is zero, whatever the sum divided by 0 is.
            full = torch.where(expected.isfinite(), full, expected)
        if not torch.allclose(full.to_dense(), expected.to_dense(), rtol=rtol, atol=atol, equal_nan=True):
            return f"other values ({got!r})"
        return None
    if isinstance(expected, (list, tuple)):
        if not isinstance(got, (list, tuple)) or len(got) != len(expected):
            return f"{got!r} instead of {type(expected).__name__} of {len(expected)}"
        return next(filter(None, map(difference, expected, got)), None)
    if isinstance(got, torch.Tensor):
        return f"a tensor instead of {expected!r}"
    if isinstance(expected, float) and isinstance(got, float) and math.isnan(expected) and math.isnan(got):
        return None
    return (
        None
        if type(got) is type(expected) and bool(np.all(got == expected))
        else f"{got!r} instead of {expected!r}"
    )


def walk(layouts: Sequence[tuple[str, str]], every: bool) -> Tally:
    """Call every function with every template.

    Args:
        layouts: Of the first tensor, and of further ones.
        every: All layouts with every call, which takes minutes; else they take turns, and a function that was
            refused a few times is left.
    """
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),), mesh_dim_names=("tp",))
    tally = Tally()
    tensors = values()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
        warnings.simplefilter("ignore")
        for turn, (name, function, templates) in enumerate(functions()):
            refused = 0
            for number, template in enumerate(templates):
                args = [
                    filled(item, tensors, lambda tensor, _: tensor, itertools.count()) for item in template
                ]
                torch.default_generator.manual_seed(3)
                try:
                    expected = function(*args)
                except Exception:
                    continue
                chosen = layouts if every else [layouts[(turn + number) % len(layouts)]]
                for layout in chosen:
                    known = tally.refused[name]
                    one_call(tally, mesh, tensors, name, function, template, layout, (args, expected))
                    refused += tally.refused[name] - known
                if refused > 3 and not every:
                    break
    return tally


def one_call(
    tally: Tally,
    mesh: DeviceMesh,
    tensors: dict[str, torch.Tensor],
    name: str,
    function: Callable[..., Any],
    template: tuple[Any, ...],
    layout: tuple[str, str],
    plain: tuple[list[Any], Any],
) -> None:
    """Call ``function`` on DTensors and compare with what the ``plain`` call returned and wrote."""

    def convert(tensor: torch.Tensor, number: int) -> DTensor:
        placement = PLACEMENTS[layout[min(number, 1)]]
        if placement.is_shard() and placement.dim >= tensor.ndim:
            placement = Shard(0)
        if placement.is_partial() and not tensor.is_floating_point():
            placement = Replicate()
        return distribute_tensor(tensor, mesh, [placement], src_data_rank=None)

    args, expected = plain
    count = itertools.count()
    dargs = [filled(item, tensors, convert, count) for item in template]
    versions = [t._local._version for t in tensors_in(dargs)]
    torch.default_generator.manual_seed(3)
    try:
        got = function(*dargs)
    except RecursionError as error:
        tally.wrong.append(f"{name}{template} {layout}: {error}")
        return
    except (ValueError, NotImplementedError, RuntimeError, TypeError, AttributeError):
        tally.refused[name] += 1
        return
    if got is NotImplemented:
        tally.refused[name] += 1
        return
    if name in NO_COMPARISON:
        wrong = "a plain tensor" if any(not isinstance(t, DTensor) for t in tensors_in(got)) else None
    else:
        wrong = difference(expected, got)
        after = list(tensors_in(dargs))
        if wrong is None and versions != [t._local._version for t in after]:
            wrong = difference(list(tensors_in(args)), after)
            wrong = wrong and f"an argument afterwards: {wrong}"
    if wrong is None:
        tally.equal.add(name)
    else:
        tally.wrong.append(f"{name}{template} {layout}: {wrong}")
