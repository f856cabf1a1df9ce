"""The collectives, as rank pictures, for every dtype that the platform has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hyper_conformance.case import case
from hyper_conformance.here import NUMPY, Here
from hyper_conformance.pictures import Picture

Array: TypeAlias = NDArray[Any]
Tensor: TypeAlias = Any
Call: TypeAlias = Callable[[Tensor, Any], Tensor]

DTYPES = tuple(NUMPY)

# What each verb does, drawn for two ranks and for four.
PICTURES = {
    "all_reduce sum": (
        "[a] [b] -> [a+b] [a+b]",
        "[a] [b] [c] [d] -> [a+b+c+d] [a+b+c+d] [a+b+c+d] [a+b+c+d]",
    ),
    "all_reduce max": (
        "[a] [b] -> [max(a,b)] [max(a,b)]",
        "[a] [b] [c] [d] -> [max(a,b,c,d)] [max(a,b,c,d)] [max(a,b,c,d)] [max(a,b,c,d)]",
    ),
    "all_reduce min": (
        "[a] [b] -> [min(a,b)] [min(a,b)]",
        "[a] [b] [c] [d] -> [min(a,b,c,d)] [min(a,b,c,d)] [min(a,b,c,d)] [min(a,b,c,d)]",
    ),
    "all_reduce prod": (
        "[a] [b] -> [a*b] [a*b]",
        "[a] [b] [c] [d] -> [a*b*c*d] [a*b*c*d] [a*b*c*d] [a*b*c*d]",
    ),
    "all_gather": (
        "[a] [b] -> [a b] [a b]",
        "[a] [b] [c] [d] -> [a b c d] [a b c d] [a b c d] [a b c d]",
    ),
    "reduce_scatter sum": (
        "[a0 a1] [b0 b1] -> [a0+b0] [a1+b1]",
        "[a0 a1 a2 a3] [b0 b1 b2 b3] [c0 c1 c2 c3] [d0 d1 d2 d3]"
        " -> [a0+b0+c0+d0] [a1+b1+c1+d1] [a2+b2+c2+d2] [a3+b3+c3+d3]",
    ),
    "reduce_scatter max": (
        "[a0 a1] [b0 b1] -> [max(a0,b0)] [max(a1,b1)]",
        "[a0 a1 a2 a3] [b0 b1 b2 b3] [c0 c1 c2 c3] [d0 d1 d2 d3]"
        " -> [max(a0,b0,c0,d0)] [max(a1,b1,c1,d1)] [max(a2,b2,c2,d2)] [max(a3,b3,c3,d3)]",
    ),
    "reduce_scatter min": (
        "[a0 a1] [b0 b1] -> [min(a0,b0)] [min(a1,b1)]",
        "[a0 a1 a2 a3] [b0 b1 b2 b3] [c0 c1 c2 c3] [d0 d1 d2 d3]"
        " -> [min(a0,b0,c0,d0)] [min(a1,b1,c1,d1)] [min(a2,b2,c2,d2)] [min(a3,b3,c3,d3)]",
    ),
    "reduce_scatter prod": (
        "[a0 a1] [b0 b1] -> [a0*b0] [a1*b1]",
        "[a0 a1 a2 a3] [b0 b1 b2 b3] [c0 c1 c2 c3] [d0 d1 d2 d3]"
        " -> [a0*b0*c0*d0] [a1*b1*c1*d1] [a2*b2*c2*d2] [a3*b3*c3*d3]",
    ),
    "all_to_all": (
        "[a0 a1] [b0 b1] -> [a0 b0] [a1 b1]",
        "[a0 a1 a2 a3] [b0 b1 b2 b3] [c0 c1 c2 c3] [d0 d1 d2 d3]"
        " -> [a0 b0 c0 d0] [a1 b1 c1 d1] [a2 b2 c2 d2] [a3 b3 c3 d3]",
    ),
    "broadcast 0": (
        "[a] [?] -> [a] [a]",
        "[a] [?] [?] [?] -> [a] [a] [a] [a]",
    ),
    "broadcast 1": (
        "[?] [a] -> [a] [a]",
        "[?] [a] [?] [?] -> [a] [a] [a] [a]",
    ),
    "scatter 0": (
        "[a0 a1] [? ?] -> [a0] [a1]",
        "[a0 a1 a2 a3] [? ? ? ?] [? ? ? ?] [? ? ? ?] -> [a0] [a1] [a2] [a3]",
    ),
    "scatter 1": (
        "[? ?] [a0 a1] -> [a0] [a1]",
        "[? ? ? ?] [a0 a1 a2 a3] [? ? ? ?] [? ? ? ?] -> [a0] [a1] [a2] [a3]",
    ),
}
REDUCTIONS = ("sum", "max", "min", "prod")
BLOCK = (2, 3)
DEEP_BLOCK = (2, 3, 2)


def _block(number: int, dtype: str, large: bool, shape: tuple[int, ...] = BLOCK) -> Array:
    """Values whose sums and products are exact in ``dtype``; ``large`` ones fill its bits."""
    random = np.random.default_rng([number, *shape])
    kind, numpy_dtype = np.dtype(NUMPY[dtype]).kind, NUMPY[dtype]
    if kind == "b":
        return random.integers(0, 2, shape).astype(numpy_dtype)
    floating = [-2, -1, -0.5, 0.5, 1, 3]
    choices = np.asarray({"i": [-2, -1, 0, 1, 3], "u": [0, 1, 2, 3]}.get(kind, floating))
    values: Array = random.choice(choices, shape).astype(numpy_dtype)
    if kind == "c":
        return np.asarray(values + 1j * random.choice(choices, shape), numpy_dtype)
    if large and dtype in ("i64", "i32"):
        values = values + np.asarray(2**53 + 1 if dtype == "i64" else 2**24 + 1, numpy_dtype)
    if large and dtype == "f64":
        values = values * (1 + 2.0**-40)
    return values


def _tensors(picture: Picture, dtype: str, large: bool, shape: tuple[int, ...] = BLOCK) -> list[Array]:
    """The tensors of all ranks before: a block per name, and other values for each ``?``."""
    blocks: dict[str, Array] = {}
    tensors: list[Array] = []
    for box in picture.before:
        pieces = []
        for name in box:
            fresh = _block(len(blocks) + 100 * len(tensors), dtype, large, shape)
            pieces.append(fresh if name == "?" else blocks.setdefault(name, fresh))
        tensors.append(pieces[0] if len(pieces) == 1 else np.concatenate(pieces, picture.before_dim))
    return tensors


def _verb(here: Here, name: str, dim: int, other_dim: int) -> Call:
    """The verb of a picture's name, on a tensor and a group."""
    platform = here.platform
    verb, _, detail = name.partition(" ")
    calls: dict[str, Call] = {
        "all_reduce": lambda x, group: platform.all_reduce(x, detail, group),
        "all_gather": lambda x, group: platform.all_gather(x, dim, group),
        "reduce_scatter": lambda x, group: platform.reduce_scatter(x, dim, detail, group),
        "all_to_all": lambda x, group: platform.all_to_all(x, dim, other_dim, group),
        "broadcast": lambda x, group: platform.broadcast(x, int(detail), group),
        "scatter": lambda x, group: platform.scatter(x, dim, int(detail), group),
    }
    return calls[verb]


def _dims(name: str, ndim: int) -> list[tuple[int, int]]:
    """The dims that a verb is tried along; two where it takes two."""
    if name == "all_to_all":
        return [(d, e) for d in range(ndim) for e in range(ndim)]
    if name.startswith(("all_reduce", "broadcast")):
        return [(0, 0)]
    return [(d, d) for d in range(ndim)]


def _check(
    here: Here,
    name: str,
    dtype: str,
    ranks: Sequence[int],
    *,
    shape: tuple[int, ...] = BLOCK,
    prepare: Callable[[Tensor], Tensor] | None = None,
) -> None:
    """Run a picture along every dim; the input must not be written, the result must be fresh."""
    group, position = here.group(tuple(ranks)), list(ranks).index(here.rank)
    text = PICTURES[name][len(ranks) // 4]
    for dim, other in _dims(name, len(shape)):
        picture = Picture(text, dim, other if name == "all_to_all" else dim)
        tensors = _tensors(picture, dtype, not name.endswith("prod"), shape)
        expected = picture.apply(tensors)[position]
        x = here.harness.tensor(tensors[position], dtype)
        if prepare is not None:
            x = prepare(x)
        result = _verb(here, name, dim, other)(x, group)
        what = f"{name} along {dim}, {other}: {text}"
        here.identical(result, expected, what)
        here.identical(x, tensors[position], f"{what}: the input was written")
        kept = "i64" if dtype == "b" and name.endswith("sum") else dtype
        here.equal(here.platform.dtype_name(result), kept, f"{what}: {here.platform.dtype_name(result)}")
        if result is x or (np.prod(shape) and here.platform.shares_memory(x, result)):
            raise AssertionError(f"{what}: the result is the input, and must be fresh")


def _names(verb: str, dtype: str) -> list[str]:
    """The pictures of a verb that have a meaning for ``dtype``."""
    names = [name for name in PICTURES if name.partition(" ")[0] == verb]
    return [name for name in names if not dtype.startswith("c") or name.endswith(("sum", verb, "0", "1"))]


@case(1, dtypes=DTYPES)
def all_reduce(here: Here, dtype: str) -> None:
    """[a] [b] -> [a+b] [a+b]; sum, max, min, prod. A sum of bool counts, as i64."""
    for name in _names("all_reduce", dtype):
        _check(here, name, dtype, range(here.size))


@case(1, dtypes=DTYPES)
def all_gather(here: Here, dtype: str) -> None:
    """[a] [b] -> [a b] [a b]; along every dim."""
    _check(here, "all_gather", dtype, range(here.size))


@case(1, dtypes=DTYPES)
def reduce_scatter(here: Here, dtype: str) -> None:
    """[a0 a1] [b0 b1] -> [a0+b0] [a1+b1]; along every dim; sum, max, min, prod."""
    for name in _names("reduce_scatter", dtype):
        _check(here, name, dtype, range(here.size))


@case(1, dtypes=DTYPES)
def all_to_all(here: Here, dtype: str) -> None:
    """[a0 a1] [b0 b1] -> [a0 b0] [a1 b1]; for every pair of dims."""
    _check(here, "all_to_all", dtype, range(here.size))


@case(1, dtypes=DTYPES)
def broadcast(here: Here, dtype: str) -> None:
    """[a] [?] -> [a] [a]; from the first rank and from another."""
    for name in _names("broadcast", dtype):
        _check(here, name, dtype, range(here.size))


@case(1, dtypes=DTYPES)
def scatter(here: Here, dtype: str) -> None:
    """[a0 a1] [? ?] -> [a0] [a1]; along every dim; from the first rank and from another."""
    for name in _names("scatter", dtype):
        _check(here, name, dtype, range(here.size))


EACH = {name.replace(" ", "_"): (name,) for name in PICTURES}


@case(1, over=EACH)
def along_every_dim(here: Here, name: str) -> None:
    """A tensor of three dims: blocks are taken and joined along the dims that are named."""
    _check(here, name, "f32", range(here.size), shape=DEEP_BLOCK)


@case(1, over=EACH)
def in_the_order_of_the_group(here: Here, name: str) -> None:
    """A group lists its ranks in any order: pieces go by position, not by rank."""
    orders: dict[int, list[tuple[int, ...]]] = {2: [(1, 0)], 4: [(2, 0, 3, 1), (3, 2, 1, 0)]}
    for ranks in orders[here.size]:
        _check(here, name, "f32", ranks)


@case(1, ranks=(4,), over=EACH)
def along_rows_and_columns(here: Here, name: str) -> None:
    """On the groups of a 2 x 2 mesh, in turns."""
    mesh = here.square()
    for axis in ("dp", "tp", "dp"):
        _check(here, name, "f32", mesh.ranks_along(axis))


@case(1, over=EACH)
def of_a_view(here: Here, name: str) -> None:
    """An input whose elements do not lie in a row: a transposed view."""
    ops = here.platform.ops

    def transposed(x: Tensor) -> Tensor:
        backwards = tuple(range(len(x.shape)))[::-1]
        stored = here.harness.tensor(np.ascontiguousarray(here.array(x).T), "f32")
        return ops.permute(stored, backwards)

    _check(here, name, "f32", range(here.size), prepare=transposed)


@case(
    1,
    over={name: (name,) for name in ("all_reduce sum", "all_reduce max", "broadcast 1")},
    dtypes=("f32", "i64"),
)
def without_dims(here: Here, name: str, dtype: str) -> None:
    """A 0-d tensor is reduced and sent like any other."""
    _check(here, name, dtype, range(here.size), shape=())


@case(1, over=EACH)
def without_elements(here: Here, name: str) -> None:
    """A batch may be empty: nothing is sent, and the shapes are right."""
    _check(here, name, "f32", range(here.size), shape=(2, 0, 2))


SPECIAL = {
    "f64": [np.inf, -np.inf, np.nan, 0.0, 1e300, 5e-324, 1 + 2.0**-52, 0.1],
    "f32": [np.inf, -np.inf, np.nan, 0.0, 1e38, 1e-45, 1 + 2.0**-23, 0.1],
    "f16": [np.inf, -np.inf, np.nan, 0.0, 65504, 6e-8, 1 + 2.0**-10, 0.1],
    "bf16": [np.inf, -np.inf, np.nan, 0.0, 2.0**127, 2.0**-126, 1 + 2.0**-7, 3.0],
    "i64": [2**63 - 1, -(2**63), 2**53 + 1, -(2**53) - 1, 2**32, 0],
    "i32": [2**31 - 1, -(2**31), 2**24 + 1, -(2**24) - 1, 2**16, 0],
    "i16": [2**15 - 1, -(2**15), 255, 256],
    "i8": [127, -128, -1, 0],
    "u8": [255, 128, 127, 0],
}


def _every_way(here: Here, array: Array, dtype: str) -> None:
    """What every verb that only moves does to ``array``: each bit arrives."""
    platform, group, n = here.platform, here.everyone(), here.size
    x = here.harness.tensor(array, dtype)
    array = here.array(x)  # a conversion may choose another NaN
    many = here.harness.tensor(np.concatenate([array] * n), dtype)
    here.identical(platform.all_gather(x, 0, group), np.concatenate([array] * n), "all_gather")
    here.identical(platform.all_to_all(many, 0, 0, group), np.concatenate([array] * n), "all_to_all")
    here.identical(platform.broadcast(x, n - 1, group), array, "broadcast")
    here.identical(platform.scatter(many, 0, n - 1, group), array, "scatter")


@case(1, dtypes=tuple(SPECIAL))
def every_bit_arrives(here: Here, dtype: str) -> None:
    """Infinities, NaN, the largest, the smallest, and what a narrower dtype would round."""
    _every_way(here, np.asarray(SPECIAL[dtype], NUMPY[dtype]), dtype)


@case(1, dtypes=("f64", "f32"))
def a_negative_zero_arrives(here: Here, dtype: str) -> None:
    """-0.0 is not 0.0: a verb that adds zeros to move a value loses the sign."""
    _every_way(here, np.asarray([-0.0, 0.0], NUMPY[dtype]), dtype)


@case(1, over={op: (op,) for op in ("max", "min", "sum", "prod")}, dtypes=("f64", "f32", "f16", "bf16"))
def a_nan_of_any_rank_stays(here: Here, op: str, dtype: str) -> None:
    """Reductions keep the NaN of one rank, whichever rank it is."""
    group = here.everyone()
    for owner in range(here.size):
        mine = [np.nan if here.rank == owner else 1.0, 2.0]
        x = here.harness.tensor(np.asarray(mine, NUMPY[dtype]), dtype)
        reduced = here.array(here.platform.all_reduce(x, op, group))
        here.equal(np.isnan(reduced).tolist(), [True, False], f"NaN of rank {owner}: {reduced}")
        many = here.harness.tensor(np.asarray(mine * here.size, NUMPY[dtype]), dtype)
        reduced = here.array(here.platform.reduce_scatter(many, 0, op, group))
        here.equal(np.isnan(reduced).tolist(), [True, False], f"NaN of rank {owner}: {reduced}")


@case(1, over=EACH)
def results_are_fresh(here: Here, name: str) -> None:
    """Two calls give two tensors: what is written into one is not seen in the other or in the input."""
    group, platform = here.everyone(), here.platform
    x = here.harness.tensor(np.ones((4, 4), np.float32), "f32")
    first, second = (_verb(here, name, 0, 1)(x, group) for _ in range(2))
    before = here.array(second).copy()
    assert not platform.shares_memory(first, second)
    platform.scale_(first, here.harness.tensor(np.asarray(5.0, np.float32), "f32"))
    here.identical(x, np.ones((4, 4), np.float32), "the input")
    here.identical(second, before, "the second result")


@case(1)
def objects(here: Here) -> None:
    """``all_gather_object``: picklable values of any size, in the order of the group."""
    everyone = tuple(range(here.size))
    for ranks in (everyone, everyone[::-1]):
        mine = {"rank": here.rank, "text": "x" * (10 ** (here.rank + 1)), "nothing": None}
        got = here.platform.all_gather_object(mine, here.group(ranks))
        here.equal([value["rank"] for value in got], list(ranks))
        here.equal([len(value["text"]) for value in got], [10 ** (rank + 1) for rank in ranks])
