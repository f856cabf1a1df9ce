"""The MindSpore DTensor: a tensor class over this rank's part, with the global shape."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import mindspore
from mindspore import Parameter, Tensor, mint, ops
from mindspore._c_expression import NoFallbackGuard, TensorPy

from hyper_dispatch import dispatcher
from hyper_dtensor import DTensor, Spec
from hyper_dtensor.copied import mark_copied
from hyper_dtensor.dtensor import wrap
from hyper_dtensor.gradients import gradient_spec, plain_views
from hyper_dtensor.parts import check_part, part_of
from hyper_layout import Layout, LayoutError
from hyper_platform_ms.autograd import computation, grad_enabled
from hyper_platform_ms.composed import COMPOSED, LEGACY
from hyper_platform_ms.local_basics import clone
from hyper_platform_ms.local_ops import LOCAL_OPS
from hyper_platform_ms.local_writes import check_writable, raise_version
from hyper_platform_ms.names import describe

__all__ = ["MindSporeDTensor", "become_distributed"]

_make_subclass: Callable[..., Any] = Tensor._make_subclass


class MindSporeDTensor(DTensor, Tensor):
    """A `hyper_dtensor.DTensor` that MindSpore takes for a tensor.

    Its storage is the local tensor's: optimizers, checkpoints and gradients see this rank's part. Python sees
    the global shape, and every operator call reaches the dispatcher through ``__fallback__``.

    A parameter that is a DTensor is both this class and ``mindspore.Parameter``.
    """

    def __new__(
        cls, local: Any, spec: Spec | None = None, shape: tuple[int, ...] | None = None
    ) -> MindSporeDTensor:
        """Wrap ``local`` (made by the platform; ``Parameter(d)`` calls this with a DTensor alone)."""
        held = local
        if spec is None:  # a parameter is to be made, whose local part is a view of itself
            spec, shape, local, held = local._spec, local._shape, clone(local._local), None
        self: MindSporeDTensor = _make_subclass(cls, local)
        self.__dict__["_spec"] = spec
        self.__dict__["_global"] = tuple(shape)  # type: ignore[arg-type]
        self.__dict__["_held"] = held
        return self

    def __init__(self, *_: Any, **__: Any) -> None:
        """Everything is done in ``__new__``."""

    def __fallback__(
        self, func: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Every operation on a DTensor goes to the dispatcher."""
        name = func.name
        if args and isinstance(args[0], mindspore.ops.Primitive):
            primitive, name, args = args[0], args[1], tuple(args[2])
            composed = LEGACY.get(name)
            if composed is not None:
                return composed(primitive, *args)
            call: Callable[..., Any] = _Legacy(func, primitive, name)
        else:
            composed = COMPOSED.get(name)
            if composed is not None:
                return composed(*args, **(kwargs or {}))
            call = func
        kwargs = kwargs or {}
        kind = type(func).__name__
        known = describe(name, kind == "TensorOverloadCall")
        if known is None:
            if call is func:
                # MindSpore makes a new object for each call; calls of one form must be found again.
                call = _first_calls.setdefault((name, kind), func)
            return dispatcher.dispatch(name, call, args, kwargs)
        if known.arrange is not None:
            args, kwargs = known.arrange(args, kwargs)
        return dispatcher.dispatch(known.name, known.func, args, kwargs)

    # -- the local tensor -----------------------------------------------------------------------------
    @property
    def _local(self) -> Any:
        """This rank's part.

        Of a parameter it is an alias that gradients flow through to the parameter; it is made anew where
        another gradient computation runs, or the parameter got other data.
        """
        held = self.__dict__["_held"]
        if held is not None:
            return held
        stamp = (computation(), grad_enabled(), self.requires_grad, self._data_ptr())
        known = self.__dict__.get("_alias")
        if known is not None and known[0] == stamp:
            return known[1]
        with NoFallbackGuard():
            # A view, because it leaves the shape of the gradient to the parameter's data; it follows writes.
            alias = mint.reshape(self, self._local_shape)
        self.__dict__["_alias"] = (stamp, alias)
        return alias

    @_local.setter
    def _local(self, value: Any) -> None:
        self.__dict__["_held"] = value

    @property
    def _shape(self) -> tuple[int, ...]:
        """The global shape; MindSpore's tensors have an attribute of this name, of the data."""
        return self.__dict__["_global"]

    @property
    def _local_shape(self) -> tuple[int, ...]:
        return tuple(TensorPy.shape.__get__(self))

    # -- what it is -----------------------------------------------------------------------------------
    @property
    def size(self) -> int:
        """Number of elements of the whole tensor."""
        return self.numel()

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tensor."""
        return self.numel() * int(self.itemsize)

    @property
    def strides(self) -> Any:
        """Of a tensor that is Replicate everywhere, else as `item`."""
        return self._whole("strides").strides

    def nelement(self) -> int:
        """Number of elements of the whole tensor."""
        return self.numel()

    def ndimension(self) -> int:
        """Number of dims."""
        return self.ndim

    __str__ = DTensor.__repr__
    __hash__ = Tensor.__hash__

    # -- gradients -------------------------------------------------------------------------------------
    @property
    def requires_grad(self) -> bool:
        """Whether the tensor takes part in gradient computations."""
        if isinstance(self, Parameter):
            return bool(self.param_info.requires_grad)
        return bool(self.__dict__["_held"]._requires_grad)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if value and any(op in ("max", "min", "prod") for op in self._spec.layout.partial):
            raise LayoutError(
                f"a tensor laid out as {self._spec.layout.notation} carries no gradient on its Partial axes"
            )
        if isinstance(self, Parameter):
            Parameter.requires_grad.__set__(self, value)
        else:
            self.__dict__["_held"].requires_grad_(value)

    @property
    def grad(self) -> DTensor | None:
        """The gradient that ``backward()`` left on a leaf, laid out as design section 3 says."""
        source = self if isinstance(self, Parameter) else self.__dict__["_held"]
        gradient = source._grad
        if gradient is None:
            return None
        return wrap(_make_subclass(Tensor, gradient), gradient_spec(self._spec), self._shape)

    @grad.setter
    def grad(self, value: Any) -> None:
        source = self if isinstance(self, Parameter) else self.__dict__["_held"]
        if value is None:
            source._grad = None
            return
        wanted = gradient_spec(self._spec).layout
        if not isinstance(value, MindSporeDTensor) or value.layout is not wanted:
            raise LayoutError(
                f"the gradient of {self!r} is laid out as {wanted.notation}, got {value!r}; redistribute or "
                "distribute_tensor it first"
            )
        source._grad = value._local

    def register_hook(self, hook: Callable[[DTensor], DTensor | None]) -> Any:
        """Call ``hook(gradient)`` with the gradient as a DTensor; what it returns replaces the gradient.

        Raises:
            RuntimeError: If an op used the tensor through an aliasing view already (rule 4).
        """
        plain_views(self)
        spec, shape = gradient_spec(self._spec), self._shape

        def local_hook(gradient: Tensor) -> Tensor | None:
            result = hook(wrap(gradient, spec, shape))
            if result is None:
                return None
            if not isinstance(result, MindSporeDTensor) or result._spec.layout is not spec.layout:
                raise LayoutError(
                    f"a gradient hook must return a DTensor laid out as {spec.layout.notation}, got "
                    f"{result!r}"
                )
            return result._local

        if isinstance(self, Parameter):
            return Parameter.register_hook(self, local_hook)
        return Tensor.register_hook(self.__dict__["_held"], local_hook)

    # -- indexing -----------------------------------------------------------------------------------------
    def __getitem__(self, index: Any) -> Any:
        return dispatcher.dispatch("getitem", operator.getitem, (self, index), {})

    def __setitem__(self, index: Any, value: Any) -> None:
        local = self._local
        check_writable(local, value._local if isinstance(value, MindSporeDTensor) else value)
        dispatcher.dispatch("setitem", operator.setitem, (self, index, value), {})
        raise_version(local)

    def __iter__(self) -> Iterator[Any]:
        if not self._shape:
            raise TypeError("iteration over a 0-d tensor")
        return iter([self[index] for index in range(self._shape[0])])

    def __contains__(self, value: Any) -> bool:
        return bool(self._whole("asnumpy()").__contains__(value))

    # -- values -----------------------------------------------------------------------------------------
    def asnumpy(self) -> Any:
        """The values as a NumPy array, if Replicate everywhere; never communicates."""
        return self._whole("asnumpy()").asnumpy()

    def __array__(self, dtype: Any = None) -> Any:
        return self.asnumpy() if dtype is None else self.asnumpy().astype(dtype, copy=False)

    def fill(self, value: Any) -> Any:
        """A tensor laid out alike, filled with a value."""
        return dispatcher.dispatch("full_like", LOCAL_OPS["full_like"], (self, value), {})

    # -- exchanging and copying ------------------------------------------------------------------------
    @property
    def data(self) -> Any:
        """The tensor without history, on the same storage."""
        made = wrap(ops.stop_gradient(self._local), Spec.of(self._spec.layout), self._shape)
        return mark_copied(made, self) if self._spec.copied else made

    @data.setter
    def data(self, value: Any) -> None:
        self.set_data(value)

    def set_data(self, data: Any, slice_shape: bool = False) -> Any:
        """Exchange the data of a parameter.

        Args:
            data: A DTensor laid out alike, this rank's part, or the whole tensor, of which it keeps its part.
            slice_shape: MindSpore's own.

        Raises:
            TypeError: If this is no parameter, or ``data`` no tensor.
            ValueError: If the shape or layout differs.
        """
        if not isinstance(self, Parameter):
            raise TypeError("set_data is a method of parameters: use copy_ for a DTensor that is none")
        if isinstance(data, MindSporeDTensor):
            if data._spec.layout is not self._spec.layout or data._shape != self._shape:
                raise LayoutError(f"{self!r} cannot take the data of {data!r}: redistribute it first")
            data = data._local
        if not isinstance(data, Tensor):
            raise TypeError(f"the data of {self!r} is a tensor, got {type(data).__name__}")
        given = tuple(data.shape)
        if given == self._shape != self._local_shape:
            data = data[self._spec.layout.local_slice(given)]
        elif given != self._local_shape:
            raise ValueError(
                f"the data of {self!r} is the whole tensor or this rank's part of shape {self._local_shape}, "
                f"got shape {given}"
            )
        Tensor.assign_value(self, data.astype(self.dtype) if data.dtype != self.dtype else clone(data))
        return self

    assign_value = set_data

    def set_dtype(self, dtype: Any) -> Any:
        """Change the dtype of a parameter in place.

        Raises:
            TypeError: If this is no parameter, whose local tensor would keep its dtype.
        """
        if not isinstance(self, Parameter):
            raise TypeError("set_dtype is a method of parameters: use astype for a DTensor that is none")
        changed = Tensor.set_dtype(self, dtype)
        self._views = self._origin = self._meta = None
        return changed

    def init_data(self, *args: Any, **kwargs: Any) -> Any:
        """The parameter itself: its data is there."""
        return self

    def value(self) -> Any:
        """The tensor itself."""
        return self

    def clone(self, init: Any = "same") -> Any:
        """A copy; of a parameter a plain one of this rank's part, as optimizers make for their states."""
        if isinstance(self, Parameter):
            local = Parameter(clone(ops.stop_gradient(self._local)), name=self.name)
            local.requires_grad = self.requires_grad
            return local.clone(init)
        return dispatcher.dispatch("clone", clone, (self,), {})

    copy = clone

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made = _rebuilt(*self._parts())
        memo[id(self)] = made
        return made

    def __copy__(self) -> Any:
        return _rebuilt(*self._parts())

    def __reduce_ex__(self, protocol: Any) -> Any:
        local, layout, varying, shape, name, requires_grad = self._parts()
        return _unpickled, (
            local.asnumpy(),
            layout.to_dict(),
            part_of(layout),
            varying,
            shape,
            name,
            requires_grad,
            str(self.dtype),
        )

    def _parts(self) -> tuple[Any, ...]:
        local = clone(ops.stop_gradient(self._local))
        name = self.name if isinstance(self, Parameter) else None
        return local, self._spec.layout, self._spec.varying, self._shape, name, self.requires_grad


def _whole_only(name: str) -> Callable[..., Any]:
    def method(self: MindSporeDTensor, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._whole(f"{name}()"), name)(*args, **kwargs)

    method.__name__, method.__doc__ = name, "Of the data where it is the whole tensor, else as `item`."
    return method


def _refused(name: str) -> Callable[..., Any]:
    def method(self: MindSporeDTensor, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"{name} of {self!r} has no distributed rule: use a function of mint or ops that has one, or "
            "local_map for a function of local tensors"
        )

    method.__name__, method.__doc__ = name, "Refused."
    return method


# What MindSpore answers from the storage, or makes without asking the tensor's class.
for _name in ("data_ptr", "get_bytes", "storage", "untyped_storage", "to_dlpack", "stride", "storage_offset"):
    setattr(MindSporeDTensor, _name, _whole_only(_name))
for _name in ("cauchy", "isreal", "itemset", "log_normal", "resize_", "set_"):
    setattr(MindSporeDTensor, _name, _refused(_name))


class _Legacy:
    """A legacy primitive as a function of its inputs; those of one primitive are equal."""

    def __init__(self, func: Any, primitive: Any, name: str) -> None:
        self._func, self._primitive, self.name = func, primitive, name

    def __call__(self, *args: Any) -> Any:
        return self._func(self._primitive, self.name, args)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Legacy) and other._primitive is self._primitive

    def __hash__(self) -> int:
        return id(self._primitive)


_first_calls: dict[tuple[str, str], Any] = {}


@functools.cache
def _parameter_class() -> type:
    """The class of parameters that are DTensors, as ``Parameter(d)`` makes it."""
    return Parameter._get_combined_class(MindSporeDTensor)


def become_distributed(parameter: Any, value: DTensor) -> None:
    """Turn a plain parameter into a DTensor, in place: it stays the same object with the same name."""
    local = clone(ops.stop_gradient(value._local))
    Tensor.assign_value(parameter, local)
    parameter.__class__ = _parameter_class()
    parameter.__dict__.update(_spec=value._spec, _global=value._shape, _held=None)
    parameter.__dict__.update(_views=None, _origin=None, _meta=None)
    parameter.__dict__.pop("_alias", None)


def _rebuilt(
    local: Any, layout: Layout, varying: int, shape: tuple[int, ...], name: str | None, requires_grad: bool
) -> Any:
    made = MindSporeDTensor(local, Spec.of(layout, varying), shape)
    if name is None:
        return made
    parameter = Parameter(local, name=name, requires_grad=requires_grad)
    become_distributed(parameter, made)
    return parameter


def _unpickled(
    local: Any,
    layout: dict[str, Any],
    part: tuple[int, ...] | None,
    varying: int,
    shape: tuple[int, ...],
    name: Any,
    needs: bool,
    dtype: str,
) -> Any:
    """The DTensor that was pickled: this rank's part. All arguments are plain values.

    Raises:
        LayoutError: If it is the part of another rank.
    """
    laid_out = Layout.from_dict(layout)
    check_part(laid_out, part)
    tensor = Tensor(local).astype(getattr(mindspore, dtype.lower().removeprefix("mindspore.")))
    return _rebuilt(tensor, laid_out, varying, shape, name, needs)
