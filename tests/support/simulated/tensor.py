"""``SimTensor``: a NumPy array with a place on the tape. Its functions live in ``ops``."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.simulated import tape

__all__ = ["SimParameter", "SimTensor"]

Array = NDArray[Any]


class Version:
    """How often a storage was written in place; shared by all tensors that share the storage."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class SimTensor:
    """A tensor of one simulated rank.

    Args:
        data: The values; an array is not copied.
        requires_grad: Whether this is a leaf that needs a gradient.
        meta: Whether it has a shape but no data (the array is then one broadcast zero).

    Attributes:
        array: The values.
        grad: The gradient, once a backward has reached this leaf.
    """

    array: Array
    grad: SimTensor | None
    is_meta: bool

    def __init__(self, data: Any, *, requires_grad: bool = False, meta: bool = False) -> None:
        self.array = np.asarray(data)
        self.grad = None
        self.is_meta = meta
        self.counter = Version()
        self.memo: dict[Any, Any] | None = None
        self._node: tape.Node | None = None
        self._is_leaf_with_grad = False
        self._accumulator: weakref.ref[tape.Node] | None = None
        # A view follows its base: an in-place op on the base gives it a new history.
        self._base: SimTensor | None = None
        self._base_node: tape.Node | None = None
        self._as_view: Callable[[SimTensor], SimTensor] | None = None
        if requires_grad:
            self.requires_grad = True

    # -- place on the tape -----------------------------------------------------------------------------
    @property
    def node(self) -> tape.Node | None:
        """Where the gradient of this tensor goes; None if it needs none."""
        base = self._base
        if base is not None and self._as_view is not None and base.node is not self._base_node:
            with tape.grad_mode(True):
                self._node = self._as_view(base)._node
            self._base_node = base.node
        if self._node is not None or not self._is_leaf_with_grad:
            return self._node
        node = self._accumulator() if self._accumulator is not None else None
        if node is None:
            node = tape.Node("accumulate", (), None, leaf=self)
            self._accumulator = weakref.ref(node)
        return node

    def set_node(self, node: tape.Node | None) -> None:
        """Give this tensor a history (after an operation, or an in-place one)."""
        self._node = node

    def follow(self, base: SimTensor, as_view: Callable[[SimTensor], SimTensor]) -> None:
        """Make this a view of ``base``, with which it shares storage and version."""
        self._base, self._base_node, self._as_view = base, base.node, as_view
        self.counter = base.counter

    @property
    def is_leaf(self) -> bool:
        """Whether no operation made this tensor."""
        return self.node is None or self._is_leaf_with_grad

    @property
    def is_view(self) -> bool:
        """Whether this tensor is a differentiable view of another."""
        return self._base is not None

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient is computed for this tensor."""
        return self._is_leaf_with_grad or self.node is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if not self._is_leaf_with_grad and self.node is not None:
            raise RuntimeError("requires_grad can be changed on leaves only; use detach()")
        if value and self.array.dtype.kind != "f":
            raise RuntimeError("only floating tensors can require gradients")
        self._is_leaf_with_grad = value

    def register_hook(self, hook: Callable[[SimTensor], SimTensor | None]) -> None:
        """Call ``hook`` with the gradient of this tensor; what it returns is used instead.

        On a leaf the hook goes when the graph goes.
        """
        node = self.node
        if node is None:
            raise RuntimeError("a hook needs a tensor that requires gradients")
        node.hooks.append(hook)
        if self._is_leaf_with_grad:
            self._kept_accumulator = node

    def retain_grad(self) -> None:
        """Keep the gradient of this non-leaf in ``grad``."""
        me = weakref.ref(self)

        def keep(gradient: SimTensor) -> None:
            tensor = me()
            if tensor is not None:
                tensor.grad = gradient if tensor.grad is None else tensor.grad + gradient

        if not self._is_leaf_with_grad:
            self.register_hook(keep)

    def backward(
        self,
        gradient: SimTensor | None = None,
        *,
        retain_graph: bool | None = None,
        create_graph: bool = False,
    ) -> None:
        """Gradients of the leaves with respect to this tensor."""
        if gradient is None:
            if self.array.size != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            gradient = SimTensor(np.ones_like(self.array))
        tape.backward(self, gradient, retain_graph=retain_graph, create_graph=create_graph)

    # -- data ------------------------------------------------------------------------------------------
    @property
    def data(self) -> SimTensor:
        """An alias without history and with a version of its own."""
        return SimTensor(self.array)

    @data.setter
    def data(self, other: SimTensor) -> None:
        self.array = other.array  # the version does not change: nobody is told

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return self.array.shape

    @property
    def ndim(self) -> int:
        """Number of dims."""
        return self.array.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype."""
        return self.array.dtype

    @property
    def device(self) -> str:
        """``cpu`` or ``meta``."""
        return "meta" if self.is_meta else "cpu"

    def is_complex(self) -> bool:
        """Never: there are no complex dtypes here."""
        return False

    def dim(self) -> int:
        """Number of dims."""
        return self.array.ndim

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one dim."""
        return self.array.shape if dim is None else self.array.shape[dim]

    def numel(self) -> int:
        """Number of elements."""
        return self.array.size

    def item(self) -> Any:
        """The value of a one-element tensor."""
        return self.array.item()

    def tolist(self) -> Any:
        """The values as nested lists."""
        return self.array.tolist()

    def numpy(self) -> Array:
        """The values; refused where a gradient would be lost."""
        if self.requires_grad:
            raise RuntimeError("can't call numpy() on a tensor that requires grad; use detach()")
        return self.array

    def __float__(self) -> float:
        return float(self.array.item())

    def __int__(self) -> int:
        return int(self.array.item())

    def __bool__(self) -> bool:
        return bool(self.array.item())

    def __index__(self) -> int:
        return self.array.__index__()

    def __len__(self) -> int:
        return len(self.array)

    def __repr__(self) -> str:
        grad = ", requires_grad=True" if self.requires_grad else ""
        return f"SimTensor({self.array!r}{grad})"

    # -- operations: every function of ``ops`` is a method too ------------------------------------------
    def __getattr__(self, name: str) -> Any:
        from tests.support.simulated import ops

        function = None if name.startswith("__") else getattr(ops, name, None)
        if function is None or name not in ops.METHODS:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return functools.partial(function, self)

    def __add__(self, other: Any) -> Any:
        return _apply("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return _apply("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return _apply("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return _apply("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return _apply("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return _apply("mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return _apply("div", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _apply("div", other, self)

    def __pow__(self, exponent: Any) -> Any:
        return _apply("pow", self, exponent)

    def __neg__(self) -> Any:
        return _apply("neg", self)

    def __matmul__(self, other: Any) -> Any:
        return _apply("matmul", self, other)

    def __lt__(self, other: Any) -> Any:
        return _apply("lt", self, other)

    def __le__(self, other: Any) -> Any:
        return _apply("le", self, other)

    def __gt__(self, other: Any) -> Any:
        return _apply("gt", self, other)

    def __ge__(self, other: Any) -> Any:
        return _apply("ge", self, other)

    def __and__(self, other: Any) -> Any:
        return _apply("logical_and", self, other)

    def __or__(self, other: Any) -> Any:
        return _apply("logical_or", self, other)

    def __invert__(self) -> Any:
        return _apply("logical_not", self)

    def __iadd__(self, other: Any) -> Any:
        return _apply("add_", self, other)

    def __imul__(self, other: Any) -> Any:
        return _apply("mul_", self, other)

    def __getitem__(self, index: Any) -> Any:
        return _apply("getitem", self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        _apply("setitem", self, index, value)


class SimParameter(SimTensor):
    """A leaf that ``SimModule`` registers as a parameter."""

    def __init__(self, data: Any, *, requires_grad: bool = True) -> None:
        array = data.array if isinstance(data, SimTensor) else np.asarray(data)
        super().__init__(array, requires_grad=requires_grad, meta=getattr(data, "is_meta", False))


def _apply(name: str, *args: Any) -> Any:
    from tests.support.simulated import ops

    if any(not isinstance(arg, SimTensor) and hasattr(arg, "_spec") for arg in args):
        return NotImplemented  # the distributed operand answers
    return getattr(ops, name)(*args)
