"""The suite notices what is wrong: verbs of the simulated platform are broken on purpose, each in its own way."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from hyper_conformance import find_harness, launch
from hyper_conformance.plugin import cases_of, skip_of
from hyper_conformance.run import check
from hyper_dtensor import Platform
from tests.support import simulated as sim
from tests.support.simulated import ops, tape
from tests.support.simulated.platform import SimulatedPlatform
from tests.support.simulated.world import current_world

SIMULATED = "tests.support.simulated.harness:SimulatedHarness"
Method = Callable[..., Any]


def reversed_pieces(x: Any, dim: int, n: int) -> Any:
    return ops.cat(list(reversed(ops.chunk(x, n, dim))), dim)


def written(x: Any) -> Any:
    """The tensor, overwritten by a careless collective."""
    x.array[...] = 0
    return x


@contextlib.contextmanager
def never_restored(self: Any, seed: int, device: Any) -> Iterator[None]:
    sim.manual_seed(seed)
    yield


@contextlib.contextmanager
def unseeded(self: Any, seed: int, device: Any) -> Iterator[None]:
    with SEEDED(self, 0, device):
        yield


@contextlib.contextmanager
def leaves_only_after_success(self: Any, enter: Any, leave: Any) -> Iterator[None]:
    entered: list[Any] = []

    def remember(module: Any) -> None:
        entered.append(module)
        enter(module)

    def forget(module: Any) -> None:
        entered.remove(module)
        if sys.exc_info()[0] is None:
            leave(module)

    with WATCH(self, remember, forget):
        yield


@contextlib.contextmanager
def watches_nothing(self: Any, enter: Any, leave: Any) -> Iterator[None]:
    yield


def tracked_backward(self: Any, x: Any, forward: Any, backward: Any, value: Any = None) -> Any:
    """Right gradients, but no second derivative."""
    if not self.tracks_gradient(x):
        return LINEAR(self, x, forward, backward, value)
    with tape.no_grad():
        out = ops.detach(forward(ops.detach(x)) if value is None else value)
    return tape.record(out, "linear", (x,), lambda g: (ops.detach(backward(ops.detach(g))),))


def replace_parameter(self: Any, module: Any, name: str, value: Any) -> None:
    """A new object: ties and optimizers keep the old one."""
    value.requires_grad = module.own_parameters[name].requires_grad
    module.own_parameters[name] = value


def all_below(self: Any, module: Any) -> dict[str, Any]:
    return dict(module.named_parameters())


def same_place_dict(self: Any, x: Any) -> dict[Any, Any]:
    return SHARED


SHARED: dict[Any, Any] = {}
KEPT: list[Any] = []
NUMBERS = itertools.count()
P = SimulatedPlatform
LINEAR, SEEDED, WATCH = P.linear, P.seeded, P.watch_modules
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL = (
    P.all_reduce,
    P.all_gather,
    P.reduce_scatter,
    P.all_to_all,
)
BROADCAST, SCATTER, OBJECTS, CREATE = P.broadcast, P.scatter, P.all_gather_object, P.create
BEFORE, AFTER, MEMO, START, SEED = P.before_forward, P.after_forward, P.memo, P.start, P.draw_seed
BACKWARD, DETACH, WRAP, CHILDREN = P.backward, P.detach, P.wrap, P.children


def narrowed(x: Any) -> Any:
    """What sending 64 bits as 32 does to the values."""
    narrow = {"float64": np.float32, "int64": np.int32}.get(x.array.dtype.name)
    return x if narrow is None else sim.tensor(x.array.astype(narrow).astype(x.array.dtype))


# What is broken: the verb, what it does now, and the chapters that must notice.
MUTANTS: dict[str, tuple[str, Method, str]] = {
    "ranks counted backwards": ("rank", lambda self: sim.world_size() - 1 - current_world()[1], "processes"),
    "a world of one": ("world_size", lambda self: 1, "processes"),
    "any device type starts": ("start", lambda self, device_type: None, "processes"),
    "no device to be seen": ("device_count", lambda self, device_type: 0, "processes"),
    "groups are sorted": ("group", lambda self, ranks: tuple(sorted(ranks)), "processes"),
    "no native group": ("native_group", lambda self, group: None, "processes"),
    "ranks of a group are sorted": ("group_ranks", lambda self, group: tuple(sorted(group)), "processes"),
    "always a sum": (
        "all_reduce",
        lambda self, x, op, group: ALL_REDUCE(self, x, "sum", group),
        "collectives",
    ),
    "reduced in 32 bits": (
        "all_reduce",
        lambda self, x, op, group: narrowed(ALL_REDUCE(self, narrowed(x), op, group)),
        "collectives",
    ),
    "the input is reduced in place": (
        "all_reduce",
        lambda self, x, op, group: (ALL_REDUCE(self, x, op, group), written(x))[0],
        "collectives",
    ),
    "a max loses NaN": (
        "all_reduce",
        lambda self, x, op, group: (
            sim.tensor(np.fmax.reduce(OBJECTS(self, x.array, group)))
            if op == "max"
            else ALL_REDUCE(self, x, op, group)
        ),
        "collectives",
    ),
    "the reduction of a group of one is no copy": (
        "all_reduce",
        lambda self, x, op, group: x if len(group) == 1 else ALL_REDUCE(self, x, op, group),
        "processes",
    ),
    "gathered in the order of ranks, backwards": (
        "all_gather",
        lambda self, x, dim, group: reversed_pieces(ALL_GATHER(self, x, dim, group), dim, len(group)),
        "collectives",
    ),
    "gathered by rank, not by position": (
        "all_gather",
        lambda self, x, dim, group: ALL_GATHER(self, x, dim, tuple(sorted(group))),
        "collectives",
    ),
    "gathered along the first dim": (
        "all_gather",
        lambda self, x, dim, group: ALL_GATHER(self, x, 0, group),
        "collectives",
    ),
    "gathered in 32 bits": (
        "all_gather",
        lambda self, x, dim, group: ALL_GATHER(self, narrowed(x), dim, group),
        "collectives",
    ),
    "gathered by adding zeros": (
        "all_gather",
        lambda self, x, dim, group: (lambda out: out + 0.0 if out.dtype.kind == "f" else out)(
            ALL_GATHER(self, x, dim, group)
        ),
        "collectives",
    ),
    "the wrong piece of a reduction is kept": (
        "reduce_scatter",
        lambda self, x, dim, op, group: REDUCE_SCATTER(
            self, reversed_pieces(x, dim, len(group)), dim, op, group
        ),
        "collectives",
    ),
    "a scattered mean instead of a sum": (
        "reduce_scatter",
        lambda self, x, dim, op, group: (
            REDUCE_SCATTER(self, x, dim, op, group) / (len(group) if op == "sum" else 1)
        ),
        "collectives",
    ),
    "pieces are exchanged backwards": (
        "all_to_all",
        lambda self, x, s, c, group: reversed_pieces(ALL_TO_ALL(self, x, s, c, group), c, len(group)),
        "collectives",
    ),
    "the two dims are swapped": (
        "all_to_all",
        lambda self, x, s, c, group: ALL_TO_ALL(self, x, min(s, c), max(s, c), group),
        "collectives",
    ),
    "always from the first": (
        "broadcast",
        lambda self, x, source, group: BROADCAST(self, x, 0, group),
        "collectives",
    ),
    "the source keeps its own tensor": (
        "broadcast",
        lambda self, x, source, group: (lambda out: x if self.rank() == group[source] else out)(
            BROADCAST(self, x, source, group)
        ),
        "collectives",
    ),
    "scattered from the first": (
        "scatter",
        lambda self, x, dim, source, group: SCATTER(self, x, dim, 0, group),
        "collectives",
    ),
    "scattered along the first dim": (
        "scatter",
        lambda self, x, dim, source, group: SCATTER(self, x, 0, source, group),
        "collectives",
    ),
    "objects backwards": (
        "all_gather_object",
        lambda self, value, group: OBJECTS(self, value, group)[::-1],
        "processes",
    ),
    "the backward of a map is the identity": (
        "linear",
        lambda self, x, forward, backward, value=None: LINEAR(self, x, forward, lambda g: g, value),
        "pairs",
    ),
    "the backward of a map is its forward": (
        "linear",
        lambda self, x, forward, backward, value=None: LINEAR(self, x, forward, forward, value),
        "pairs",
    ),
    "a known value is computed again": (
        "linear",
        lambda self, x, forward, backward, value=None: LINEAR(self, x, forward, backward),
        "autograd",
    ),
    "no second derivative": ("linear", tracked_backward, "pairs"),
    "a gradient is tracked where none is": ("tracks_gradient", lambda self, x: x.requires_grad, "autograd"),
    "no gradient is ever tracked": ("tracks_gradient", lambda self, x: False, "autograd"),
    "gradients are always on": ("grad_enabled", lambda self: True, "autograd"),
    "a deferred gradient is never reduced": (
        "deferred_view",
        lambda self, t, axes: t._local,
        "gradient_states",
    ),
    "writes are not counted": ("version", lambda self, x: 0, "autograd gradient_states"),
    "every look is a new stamp": ("gradient_stamp", lambda self, x: next(NUMBERS), "autograd"),
    "a stamp without the writes": (
        "gradient_stamp",
        lambda self, x: 0 if self.tracks_gradient(x) else None,
        "gradient_states",
    ),
    "detached tensors keep their history": ("detach", lambda self, x: x, "autograd"),
    "a detached tensor is a copy": ("detach", lambda self, x: DETACH(self, ops.clone(x)), "tensors"),
    "no backward": ("backward", lambda self, x, gradient, **options: None, "autograd"),
    "twice the gradient": (
        "backward",
        lambda self, x, gradient, **options: BACKWARD(self, x, gradient * 2.0, **options),
        "autograd",
    ),
    "the local shape is shown": (
        "wrap",
        lambda self, x, spec, shape: WRAP(self, x, spec, x.shape),
        "tensors",
    ),
    "everything is a tensor": ("is_tensor", lambda self, value: True, "tensors"),
    "one dtype": ("dtype_name", lambda self, x: "f32", "tensors"),
    "eight bytes": ("itemsize", lambda self, x: 8, "tensors"),
    "nothing is meta": ("is_meta", lambda self, x: False, "tensors"),
    "memory is never shared": ("shares_memory", lambda self, x, y: False, "tensors"),
    "memory is always shared": ("shares_memory", lambda self, x, y: True, "tensors"),
    "integers float": ("is_floating", lambda self, x: x.dtype.kind in "fi", "tensors"),
    "scaling does nothing": ("scale_", lambda self, x, factor: None, "tensors"),
    "one memo for all": ("memo", same_place_dict, "autograd"),
    "a memo keeps its tensor": ("memo", lambda self, x: (KEPT.append(x), MEMO(self, x))[1], "autograd"),
    "no memo that lasts": ("memo", lambda self, x: {}, "autograd"),
    "ranks draw differently": ("draw_seed", lambda self, device: SEED(self, device) ^ self.rank(), "random"),
    "always the same seed": ("draw_seed", lambda self, device: 3, "random"),
    "the default generator is disturbed": ("seeded", never_restored, "random"),
    "the seed is ignored": ("seeded", unseeded, "random creation"),
    "built-ins are rebuilt": ("python_body", lambda self, func: func, "autograd"),
    "nothing is random": ("is_random", lambda self, func: False, "autograd"),
    "no children": ("children", lambda self, module: {}, "modules"),
    "children backwards": (
        "children",
        lambda self, module: dict(reversed(list(CHILDREN(self, module).items()))),
        "modules",
    ),
    "parameters of all below": ("parameters", all_below, "modules"),
    "absent parameters": ("parameters", lambda self, module: dict(module.own_parameters), "modules"),
    "no buffers": ("buffers", lambda self, module: {}, "modules"),
    "a new parameter object": ("set_parameter", replace_parameter, "parameters"),
    "a buffer is not replaced": ("set_buffer", lambda self, module, name, value: None, "modules"),
    "keywords are not shown": (
        "before_forward",
        lambda self, module, hook: BEFORE(
            self, module, lambda m, args, kwargs: (hook(m, args, {})[0], kwargs)
        ),
        "hooks",
    ),
    "keywords are dropped": (
        "before_forward",
        lambda self, module, hook: BEFORE(
            self, module, lambda m, args, kwargs: (hook(m, args, kwargs)[0], {})
        ),
        "hooks",
    ),
    "the output is not replaced": (
        "after_forward",
        lambda self, module, hook: AFTER(self, module, lambda m, a, k, out: (hook(m, a, k, out), out)[1]),
        "hooks",
    ),
    "only the first output": (
        "after_forward",
        lambda self, module, hook: AFTER(
            self, module, lambda m, a, k, out: hook(m, a, k, out[0] if isinstance(out, tuple) else out)
        ),
        "hooks",
    ),
    "nobody watches": ("watch_modules", watches_nothing, "modules"),
    "a module that raises is not left": ("watch_modules", leaves_only_after_success, "modules"),
    "nothing is linear": ("is_linear_module", lambda self, module: False, "modules"),
    "everything is linear": ("is_linear_module", lambda self, module: True, "modules"),
    "no embeddings": ("is_embedding_module", lambda self, module: False, "modules"),
    "created in another dtype": (
        "create",
        lambda self, kind, shape, device_type, **options: CREATE(
            self, kind, shape, device_type, **{**options, "dtype": "float64"}
        ),
        "creation",
    ),
    "filled with zeros": (
        "create",
        lambda self, kind, shape, device_type, **options: CREATE(
            self, "zeros" if kind == "full" else kind, shape, device_type, dtype=options.get("dtype")
        ),
        "creation",
    ),
}


def first_failure(chapters: list[str]) -> str | None:
    """The first case of the chapters that fails on the platform as it is now, with the error."""
    harness = find_harness(SIMULATED)
    for case in cases_of(harness):
        if case.name.partition(".")[0] not in chapters or skip_of(harness, case):
            continue
        for size in case.ranks:
            try:
                check(launch(harness, size), SIMULATED, case)
            except BaseException as error:
                return f"{case.name} on {size}: {type(error).__name__}: {error}"
    return None


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_verb_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verb, broken, chapters = MUTANTS[name]
    SHARED.clear()
    KEPT.clear()
    monkeypatch.setattr(SimulatedPlatform, verb, broken)
    assert first_failure(chapters.split()) is not None, f"{name}: nothing in {chapters} noticed"


def test_every_verb_has_a_mutant() -> None:
    verbs = {
        name for name in vars(Platform) if not name.startswith("_") and callable(getattr(Platform, name))
    }
    assert {verb for verb, _, _ in MUTANTS.values()} == verbs
