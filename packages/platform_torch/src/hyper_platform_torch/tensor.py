"""The PyTorch DTensor: a wrapper subclass with the global size over a local tensor."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any

import torch

from hyper_dispatch import OpDispatcher
from hyper_dtensor import DTensor, Spec
from hyper_dtensor.copied import mark_copied
from hyper_dtensor.gradients import gradient_spec, plain_views
from hyper_layout import LayoutError
from hyper_platform_torch.gradient_calls import autograd_backward, autograd_grad
from hyper_platform_torch.names import Known, describe
from hyper_platform_torch.refusals import slipped_past

__all__ = ["TorchDTensor"]

_make_wrapper = torch.Tensor._make_wrapper_subclass


def _own(read: Callable[..., Any], *args: Any) -> Any:
    """Call a C++ property of the wrapper itself, which would otherwise be dispatched."""
    with torch._C.DisableTorchFunctionSubclass():
        return read(*args)


_known: dict[Any, Known] = {}
dispatcher = OpDispatcher()
_TRANSLATED: dict[Any, Callable[..., Any]] = {
    torch.autograd.grad: autograd_grad,
    torch.autograd.backward: autograd_backward,
}


class TorchDTensor(DTensor, torch.Tensor):
    """A `hyper_dtensor.DTensor` that PyTorch takes for a tensor of the global shape.

    Its storage is empty: the data is the local tensor, on which autograd runs. The wrapper's own C++
    ``requires_grad`` flag mirrors the local's, so that code which records a history on the wrapper (a
    user's ``autograd.Function``, a reentrant checkpoint) is noticed and refused (design rule 7).
    """

    _shape: torch.Size

    @staticmethod
    def __new__(cls, local: torch.Tensor, spec: Spec, shape: tuple[int, ...]) -> TorchDTensor:
        """Wrap ``local`` (made by the platform; users call ``DTensor.from_local``)."""
        self: TorchDTensor = _make_wrapper(
            cls, shape, dtype=local.dtype, device=local.device, requires_grad=local.requires_grad
        )
        self._local = local
        self._spec = spec
        self._shape = shape if type(shape) is torch.Size else torch.Size(shape)
        return self

    def __init__(self, *_: Any) -> None:
        """Everything is done in ``__new__``."""

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Every operation on a DTensor goes to the dispatcher."""
        known = _known.get(func)
        if known is None:
            translated = _TRANSLATED.get(func)
            if translated is not None:
                return translated(*args, **(kwargs or {}))
            known = _known[func] = describe(func)
        name, call, arrange = known
        if kwargs is None:
            kwargs = {}
        if arrange is not None:
            args, kwargs = arrange(args, kwargs)
        return dispatcher.dispatch(name, call, args, kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse what reached the C++ dispatcher: it would take the wrapper for the data."""
        raise slipped_past(func)

    # -- what it is -----------------------------------------------------------------------------------
    @property
    def dtype(self) -> torch.dtype:  # type: ignore[override]
        """The dtype of the local tensor."""
        return self._local.dtype

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device of the local tensor."""
        return self._local.device

    def stride(self, dim: int | None = None) -> Any:
        """Strides of a contiguous tensor of the global shape, in the memory order of the local."""
        order = sorted(range(self.ndim), key=lambda d: (-self._local.stride(d), d))
        strides, step = [0] * self.ndim, 1
        for d in reversed(order):
            strides[d] = 0 if self._local.stride(d) == 0 and self._local.shape[d] != 1 else step
            step *= self._shape[d] if strides[d] or self._local.stride(d) else 1
        return tuple(strides) if dim is None else strides[dim]

    def data_ptr(self) -> int:
        """Address of the local data where it is the whole tensor.

        Raises:
            RuntimeError: If the tensor is not Replicate everywhere.
        """
        return int(self._whole("data_ptr()").data_ptr())

    __hash__ = object.__hash__

    # -- gradients -------------------------------------------------------------------------------------
    @property
    def requires_grad(self) -> bool:
        """Whether the local tensor takes part in gradients."""
        return self._local.requires_grad  # type: ignore[no-any-return]

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> TorchDTensor:
        """Set whether this leaf needs a gradient.

        Raises:
            LayoutError: For Partial(max, min, prod), which carries none.
        """
        if requires_grad and any(op in ("max", "min", "prod") for op in self._spec.layout.partial):
            raise LayoutError(
                f"a tensor laid out as {self._spec.layout.notation} carries no gradient on its Partial axes"
            )
        self._local.requires_grad_(requires_grad)
        _own(_CPP_FLAG.__set__, self, requires_grad)
        return self

    @property
    def grad(self) -> DTensor | None:  # type: ignore[override]
        """The gradient of a leaf (or after ``retain_grad``), laid out as design section 3 says."""
        gradient = self._local.grad
        if gradient is None:
            self.__dict__.pop("_grad", None)
            return None
        known = self.__dict__.get("_grad")
        if known is None or known._local is not gradient:
            known = self.__dict__["_grad"] = TorchDTensor(gradient, gradient_spec(self._spec), self._shape)
        return known  # type: ignore[no-any-return]

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is None:
            self._local.grad = None
            return
        wanted = gradient_spec(self._spec)
        if not isinstance(value, TorchDTensor) or value._spec.layout is not wanted.layout:
            shown = repr(value) if isinstance(value, TorchDTensor) else f"a {type(value).__name__}"
            raise LayoutError(
                f"the gradient of {self!r} is laid out as {wanted.layout.notation}, got {shown}; "
                "redistribute or distribute_tensor it first"
            )
        self._local.grad = value._local

    @grad.deleter
    def grad(self) -> None:
        self._local.grad = None

    @property
    def is_leaf(self) -> bool:
        """Whether the local tensor is a leaf of the graph."""
        return self._local.is_leaf  # type: ignore[no-any-return]

    @property
    def grad_fn(self) -> Any:
        """The node that made the local tensor."""
        return self._local.grad_fn

    @property
    def _version(self) -> int:
        return self._local._version  # type: ignore[no-any-return]

    @property
    def retains_grad(self) -> bool:
        """Whether the local keeps its gradient though it is not a leaf."""
        return self._local.retains_grad  # type: ignore[no-any-return]

    def retain_grad(self) -> None:
        """Keep the gradient of a non-leaf.

        Raises:
            RuntimeError: If an op used the tensor through an aliasing view already (rule 4).
        """
        plain_views(self)
        self._local.retain_grad()

    def register_hook(self, hook: Callable[[DTensor], DTensor | None]) -> Any:
        """Call ``hook(gradient)`` with the gradient as a DTensor; what it returns replaces the gradient.

        Raises:
            RuntimeError: If an op used the tensor through an aliasing view already (rule 4).
        """
        plain_views(self)
        spec, shape = gradient_spec(self._spec), self._shape

        def local_hook(gradient: torch.Tensor) -> torch.Tensor | None:
            result = hook(TorchDTensor(gradient, spec, shape))
            if result is None:
                return None
            if not isinstance(result, TorchDTensor) or result._spec.layout is not spec.layout:
                raise LayoutError(
                    f"a gradient hook must return a DTensor laid out as {spec.layout.notation}, got "
                    f"{result!r}"
                )
            return result._local

        return self._local.register_hook(local_hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[DTensor], None]) -> Any:
        """Call ``hook(self)`` after a gradient was accumulated into this leaf."""
        reference = weakref.ref(self)

        def local_hook(_: torch.Tensor) -> None:
            t = reference()
            if t is not None:
                hook(t)

        return self._local.register_post_accumulate_grad_hook(local_hook)

    def _has_foreign_history(self) -> bool:
        return _own(_CPP_HISTORY.__get__, self) is not None

    # -- exchanging and copying ----------------------------------------------------------------------
    @property
    def data(self) -> TorchDTensor:  # type: ignore[override]
        """The tensor without history, on the same storage."""
        made = TorchDTensor(self._local.detach(), Spec.of(self._spec.layout), self._shape)
        return mark_copied(made, self) if self._spec.copied else made  # type: ignore[return-value]

    @data.setter
    def data(self, value: Any) -> None:
        if not isinstance(value, TorchDTensor):
            raise TypeError(
                f".data of a DTensor takes a DTensor, got {type(value).__name__}: wrap this rank's part with "
                "DTensor.from_local, or the whole tensor with distribute_tensor"
            )
        local = self._local
        local.data = value._local.detach()
        self._views = self._origin = None
        if value._spec.layout is not self._spec.layout or (value.dtype, value.device, value._shape) != (
            _own(_CPP_DTYPE.__get__, self),
            _own(_CPP_DEVICE.__get__, self),
            self._shape,
        ):
            # The wrapper's own size, dtype and device are fixed: put a fresh one into this object.
            attributes = {
                k: v for k, v in self.__dict__.items() if k not in ("_local", "_spec", "_shape", "_grad")
            }
            fresh = TorchDTensor(local, Spec.of(value._spec.layout), value._shape)
            fresh.__dict__.update(attributes)
            torch.utils.swap_tensors(self, fresh)

    def __deepcopy__(self, memo: dict[int, Any]) -> TorchDTensor:
        if id(self) in memo:
            return memo[id(self)]  # type: ignore[no-any-return]
        spec = Spec.of(self._spec.layout, self._spec.varying)
        made = TorchDTensor(copy.deepcopy(self._local, memo), spec, self._shape)
        memo[id(self)] = made
        private = ("_local", "_spec", "_shape", "_grad", "_views", "_origin", "_untracked", "_copy_of")
        for name, value in self.__dict__.items():
            if name not in private:
                made.__dict__[name] = copy.deepcopy(value, memo)
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        local = self._local.detach()
        return rebuild, (
            local,
            Spec.of(self._spec.layout, self._spec.varying),
            tuple(self._shape),
            self.requires_grad,
            bool(getattr(self, "_is_param", False)),
        )


_CPP_FLAG = torch._C.TensorBase.requires_grad
_CPP_HISTORY = torch._C.TensorBase.grad_fn
_CPP_DTYPE = torch._C.TensorBase.dtype
_CPP_DEVICE = torch._C.TensorBase.device


def rebuild(
    local: torch.Tensor, spec: Spec, shape: tuple[int, ...], requires_grad: bool, is_parameter: bool
) -> TorchDTensor:
    """The DTensor that was pickled: this rank's part, as a leaf."""
    t = TorchDTensor(local, spec, shape)
    if requires_grad:
        t.requires_grad_()
    if is_parameter:
        t._is_param = True  # type: ignore[attr-defined]
    return t
