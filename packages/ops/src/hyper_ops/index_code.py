"""An index as the layout cache knows it: one token per element, without the values.

Tokens, for an index that has one element per dim of the tensor and one per new dim:

- `i`: an integer, or a tensor of one without dims; the dim goes. `I` if it is a tensor.
- `:`: a slice that each rank can take of its own part: any slice of a dim that is not split, a full one of a
  split dim, or one with a step that takes the same from every block.
- `|`: any other slice of a split dim.
- `n`: None, a new dim of size 1.
- `t` and `l`: an integer tensor (`l`: a list of integers, the same on all ranks), then one character per dim
  of it, `1` for size 1 and `.` for more.
- `m` and a number: a boolean tensor over as many dims.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import index as to_index
from typing import Any

from hyper_dtensor import get_platform, is_dtensor
from hyper_layout import Layout, LayoutError

INTEGERS = frozenset("iI")
DISTRIBUTED = frozenset("Itm")
ADVANCED = frozenset("tlm")
"""First characters of tokens: of integers; of distributed tensors, which count as operands; of those whose
result is a copy, on a single device too."""


@dataclass(frozen=True, slots=True)
class Element:
    """One element of an index and where it stands.

    Attributes:
        token: Its token.
        dim: The (first) dim of the tensor that it reads; the number of dims read so far for a new dim.
        out: The first dim of the result that it gives; -1 for none.
    """

    token: str
    dim: int
    out: int


@dataclass(frozen=True, slots=True)
class IndexCode:
    """What an index does with dims.

    Attributes:
        elements: Its elements, in order.
        ndim: Rank of the result.
        block: Place of the dims that the tensors of the index give together; -1 if there are none.
        block_ndim: How many these are.
    """

    elements: tuple[Element, ...]
    ndim: int
    block: int
    block_ndim: int

    @property
    def advanced(self) -> bool:
        """Whether tensors are among the elements."""
        return self.block >= 0


def normal_index(x: Any, index: Any) -> tuple[tuple[Any, ...], str, list[Layout]]:
    """An index with one element per dim.

    Args:
        x: The distributed tensor that is indexed.
        index: The index as written: an element or a tuple of elements.

    Returns:
        The elements with local tensors and slices that each rank can take where there are such, their tokens
        as one string, and the layouts of the tensors among them.

    Raises:
        IndexError: If the index names too many dims, or an integer is out of range.
        LayoutError: If an element is of a kind that has no meaning on a distributed tensor.
    """
    layout: Layout = x.layout
    shape = x.shape
    items: list[Any] = []
    tokens: list[str] = []
    layouts: list[Layout] = []
    dim = 0
    for element in _without_ellipsis(index, layout.ndim):
        kind = type(element)
        if element is None:
            token = "n"
        elif kind is slice:
            _check_dim(dim, layout.ndim)
            element, token = _slice(element, layout, dim, shape[dim])
            dim += 1
        elif kind is int or _is_integer(element):
            _check_dim(dim, layout.ndim)
            if is_dtensor(element):
                # Its value is not looked at here: calls of one form differ in it.
                layouts.append(element.layout)
                element, token = element.to_local(), "I"
            else:
                element, token = checked_integer(element, shape[dim], dim), "i"
            dim += 1
        else:
            element, token, found = _tensor(element, x)
            if found is not None:
                layouts.append(found)
            dim += int(token[1:]) if token[0] == "m" else 1
            _check_dim(dim - 1, layout.ndim)
        items.append(element)
        tokens.append(token)
    return tuple(items), " ".join(tokens), layouts


@lru_cache(maxsize=1024)
def read_code(code: str) -> IndexCode:
    """What the tokens say about dims."""
    tokens = code.split()
    # Integers are taken first; then dims from tensors stand where these are, if they are side by side.
    standing = [token for token in tokens if token not in INTEGERS]
    places = [place for place, token in enumerate(standing) if token[0] in ADVANCED]
    block = -1
    if places:
        block = places[0] if places[-1] - places[0] == len(places) - 1 else 0
    block_ndim = max(
        (1 if token[0] == "m" else len(token) - 1 for token in standing if token[0] in ADVANCED), default=0
    )
    elements, dim, out = [], 0, 0
    if block == 0:
        out = block_ndim
    for token in tokens:
        if token[0] in ADVANCED:
            elements.append(Element(token, dim, block))
            dim += int(token[1:]) if token[0] == "m" else 1
            if block > 0 and out == block:
                out += block_ndim
            continue
        elements.append(Element(token, dim, -1 if token in INTEGERS else out))
        dim += token != "n"
        out += token not in INTEGERS
    return IndexCode(tuple(elements), out, block, block_ndim)


def tensor_dim(token: str, block_ndim: int, out: int) -> int | None:
    """The dim of an index tensor that gives dim `out` of the block, or None where it is broadcast there."""
    dim = out - (block_ndim - (len(token) - 1))
    return dim if dim >= 0 and token[1 + dim] != "1" else None


def _without_ellipsis(index: Any, ndim: int) -> Sequence[Any]:
    """The elements with full slices for `...` and for dims that are not named."""
    given = index if isinstance(index, tuple) else (index,)
    missing, places = ndim, []
    for place, element in enumerate(given):
        missing -= _dims_read(element)
        if element is ...:
            places.append(place)
    if len(places) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if missing < 0:
        raise IndexError(f"too many indices for tensor of dimension {ndim}")
    full = (slice(None),) * missing
    if places:
        return (*given[: places[0]], *full, *given[places[0] + 1 :])
    return (*given, *full) if full else given


def _dims_read(element: Any) -> int:
    if element is None or element is ...:
        return 0
    if hasattr(element, "shape") and len(element.shape) and _is_boolean(element):
        return len(element.shape)
    return 1


def _check_dim(dim: int, ndim: int) -> None:
    if dim >= ndim:
        raise IndexError(f"too many indices for tensor of dimension {ndim}")


def _slice(element: slice, layout: Layout, dim: int, size: int) -> tuple[slice, str]:
    """A slice of one dim, in terms of this rank's part where that is possible."""
    count = layout.shard_counts[dim]
    if count == 1:
        if {type(element.start), type(element.stop), type(element.step)} <= {int, type(None)}:
            return element, ":"
        return slice(*element.indices(size)), ":"
    start, stop, step = element.indices(size)
    if step < 1:
        raise ValueError("step must be greater than zero")
    if step == 1 and start == 0 and stop >= size:
        return slice(None), ":"
    whole = start < step and len(range(start, stop, step)) == size // step
    if step > 1 and whole and size // count % step == 0:
        # Every block is as long as a number of steps, so that all begin at the same place of a step.
        return slice(start, None, step), ":"
    return slice(start, stop, step), "|"


def _is_integer(element: Any) -> bool:
    """Integers of other kinds: NumPy's, and tensors without dims that are no booleans."""
    if isinstance(element, bool):
        raise LayoutError("a bool as an index is not supported on a DTensor: use unsqueeze and a mask")
    shape = getattr(element, "shape", None)
    if shape is None:
        return hasattr(element, "__index__")
    return len(shape) == 0 and not _is_boolean(element)


def checked_integer(element: Any, size: int, dim: int) -> int:
    """An integer index counted from the front.

    Raises:
        IndexError: If it is out of range; worded as PyTorch does.
    """
    value = to_index(element)
    if not -size <= value < size:
        raise IndexError(f"index {value} is out of bounds for dimension {dim} with size {size}")
    return value + size if value < 0 else value


def _tensor(element: Any, x: Any) -> tuple[Any, str, Layout | None]:
    """An index tensor: its local, its token and its layout (none for a list, which all ranks write alike)."""
    platform = get_platform()
    layout: Layout | None = None
    if is_dtensor(element):
        sizes, layout = tuple(element.shape), element.layout
        local = element.to_local()
    else:
        # What is no nested list of numbers is refused by the framework.
        local = platform.ops.as_tensor(element, device=x.to_local().device)
        sizes = tuple(local.shape)
    kind = platform.dtype_name(local)
    if kind == "b":
        if layout is None or not sizes:
            raise LayoutError("a bool or a list of bools as an index is not supported: use a mask tensor")
        return local, f"m{len(sizes)}", layout
    if kind not in ("i64", "i32"):
        raise IndexError(f"tensors used as indices must be int32, int64 or bool tensors, got {kind}")
    return local, ("l" if layout is None else "t") + "".join("1" if n == 1 else "." for n in sizes), layout


def _is_boolean(element: Any) -> bool:
    local = element.to_local() if is_dtensor(element) else element
    platform = get_platform()
    return platform.is_tensor(local) and platform.dtype_name(local) == "b"
