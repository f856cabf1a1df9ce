"""The PyTorch DTensor: a wrapper subclass with the global size over a local tensor."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from hyper_dispatch import dispatcher
from hyper_dtensor import DTensor, Spec
from hyper_dtensor.copied import mark_copied
from hyper_dtensor.gradients import gradient_spec, plain_views
from hyper_dtensor.parts import check_part, part_of
from hyper_layout import Layout, LayoutError
from hyper_platform_torch import checkpoint, second_leaves
from hyper_platform_torch.composed import COMPOSED
from hyper_platform_torch.gradient_calls import autograd_backward, autograd_grad
from hyper_platform_torch.names import Known, describe
from hyper_platform_torch.refusals import (
    GradientNode,
    check_not_in_function,
    foreign_history,
    refuse_wrappers,
    slipped_past,
)

__all__ = ["TorchDTensor", "dispatcher"]

# As Any: its attributes are looked up on the class, where stubs show the values of an instance.
_Base: Any = torch._C.TensorBase
_make_wrapper = torch.Tensor._make_wrapper_subclass
_Size = torch.Size
_strided = torch.strided
_known: dict[Any, tuple[Any, ...]] = {
    torch.autograd.grad: Known(None, autograd_grad),
    torch.autograd.backward: Known(None, autograd_backward),
    **{function: Known(None, composed) for function, composed in COMPOSED.items()},
    # Asked by Module.to and Module.to_empty: whether ``.data =`` does, which keeps the parameter object.
    torch._has_compatible_shallow_copy_type: Known(
        None, lambda x, y: isinstance(x, TorchDTensor) and isinstance(y, TorchDTensor)
    ),
}

# What a DTensor is made of; any other attribute is the user's.
_STATE = (
    "_local",
    "_spec",
    "_shape",
    "_gradient",
    "_is_gradient",
    "_meta",
    "_views",
    "_origin",
    "_untracked",
    "_copy_of",
)


def _of_wrapper(member: Callable[..., Any], *args: Any) -> Any:
    """A member of the C++ tensor, asked of the wrapper itself; otherwise it would be dispatched."""
    with torch._C.DisableTorchFunctionSubclass():
        return member(*args)


class TorchDTensor(DTensor, torch.Tensor):  # type: ignore[misc]  # layout and repr are DTensor's
    """A `hyper_dtensor.DTensor` that PyTorch takes for a tensor of the global shape.

    Its storage is empty: the data is the local tensor, on which autograd runs. The wrapper's own C++
    ``requires_grad`` flag mirrors the local's, so that code which records a history on the wrapper (a
    user's ``autograd.Function``, a reentrant checkpoint) is noticed and refused (design rule 7).
    """

    _shape: torch.Size
    _gradient: TorchDTensor | None = None
    """What `grad` showed last."""
    _is_gradient: bool = False
    """Whether it was shown as the gradient of another one, by which it is laid out."""

    def __new__(cls, *_: Any, **__: Any) -> TorchDTensor:
        """Refused: `DTensor.from_local` and its neighbours make DTensors.

        Raises:
            TypeError: Always; names them.
        """
        raise TypeError(
            "a DTensor is made by DTensor.from_local (from this rank's part), distribute_tensor (from the "
            "whole tensor), or a factory function such as hyper_parallel.zeros"
        )

    # A static method: PyTorch asks every operand for it, every item of a list included, and a class method is
    # bound anew each time.
    @staticmethod
    def __torch_function__(
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Every operation on a DTensor goes to the dispatcher."""
        known = _known.get(func)
        if known is None:
            known = _known[func] = tuple(describe(func))
        name, call, arrange = known
        if kwargs is None:
            kwargs = {}
        if name is None:
            return call(*args, **kwargs)
        if arrange is not None:
            args, kwargs = arrange(args, kwargs)
        try:
            result = dispatcher.dispatch(name, call, args, kwargs)
        except (ValueError, NotImplementedError) as error:
            refuse_wrappers(error)
            raise
        if args and (result is args[0] or result is None) and torch.is_grad_enabled():  # written in place
            for t in args[0] if isinstance(args[0], (list, tuple)) else args[:1]:
                if isinstance(t, TorchDTensor):
                    t._show_gradient_need()
        return result

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse what reached the C++ dispatcher: it would take the wrapper for the data."""
        raise slipped_past(func)

    # -- what it is -----------------------------------------------------------------------------------
    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the local tensor."""
        return self._local.dtype  # type: ignore[no-any-return]

    @property
    def device(self) -> torch.device:
        """The device of the local tensor."""
        return self._local.device  # type: ignore[no-any-return]

    @property
    def is_sparse(self) -> bool:
        """Whether the local tensor is sparse."""
        return self._local.is_sparse  # type: ignore[no-any-return]

    def is_complex(self) -> bool:
        """Whether the dtype is complex."""
        return self._local.is_complex()  # type: ignore[no-any-return]

    def is_floating_point(self) -> bool:
        """Whether the dtype is floating."""
        return self._local.is_floating_point()  # type: ignore[no-any-return]

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tensor."""
        return self.numel() * self._local.element_size()  # type: ignore[no-any-return]

    def nelement(self) -> int:
        """Number of elements of the whole tensor."""
        return self.numel()

    def ndimension(self) -> int:
        """Number of dims."""
        return self.ndim

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

    def untyped_storage(self) -> Any:
        """Storage of the local data where it is the whole tensor, else as `data_ptr`."""
        return self._whole("untyped_storage()").untyped_storage()

    def __dlpack__(self, **options: Any) -> Any:
        return self._whole("__dlpack__()").__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._whole("__dlpack__()").__dlpack_device__()

    def __complex__(self) -> complex:
        return complex(self._whole("item()").item())

    # A tensor's own: a parameter that becomes a DTensor in place is found again in dictionaries, for example
    # in the state of an optimizer.
    __hash__ = torch.Tensor.__hash__

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
        self._show_gradient_need()
        return self

    def _show_gradient_need(self) -> None:
        """Let the wrapper's flag say what the local's does, after it changed."""
        needs = self._local.requires_grad
        if _of_wrapper(_Base.requires_grad.__get__, self) is not needs and not self._has_foreign_history():
            _of_wrapper(_Base.requires_grad.__set__, self, needs)

    @property
    def grad(self) -> DTensor | None:
        """The gradient of a leaf (or after ``retain_grad``), laid out as design section 3 says."""
        known = self._gradient
        gradient = self._local.grad
        if known is not None and known._local is gradient:
            return known
        if gradient is None:
            self._gradient = None
            return None
        shown = self._gradient = make(gradient, gradient_spec(self._spec), self._shape)
        shown._is_gradient = True
        return shown

    @grad.setter
    def grad(self, value: Any) -> None:
        self._gradient = None  # or the memory of the gradient would stay until somebody asks for the next one
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
        self.grad = None

    @property
    def is_leaf(self) -> bool:
        """Whether the local tensor is a leaf of the graph."""
        return self._local.is_leaf  # type: ignore[no-any-return]

    @property
    def grad_fn(self) -> Any:
        """The node that made the local tensor, to look at; ``None`` for a leaf.

        Raises:
            RuntimeError: If the framework recorded a history on the wrapper (rule 7).
        """
        if self._has_foreign_history():
            raise foreign_history()
        node = self._local.grad_fn
        return None if node is None else GradientNode(node)

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

    def detach_(self) -> TorchDTensor:
        """Cut the tensor off from the graph that made it."""
        self._local.detach_()
        self._views = self._origin = None
        self._show_gradient_need()
        return self

    def backward(
        self,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Gradients of the leaves, as the single-device program has them (``DTensor.backward``)."""
        autograd_backward(self, gradient, retain_graph, create_graph, inputs)

    def register_hook(self, hook: Callable[[DTensor], DTensor | None]) -> Any:
        """Call ``hook(gradient)`` with the gradient as a DTensor; what it returns replaces the gradient.

        Raises:
            RuntimeError: If an op used the tensor through an aliasing view already (rule 4).
        """
        plain_views(self)
        spec, shape = gradient_spec(self._spec), self._shape

        def local_hook(gradient: torch.Tensor) -> torch.Tensor | None:
            result = hook(make(gradient, spec, shape))
            if result is None:
                return None
            if not isinstance(result, TorchDTensor) or result._spec.layout is not spec.layout:
                raise LayoutError(
                    f"a gradient hook must return a DTensor laid out as {spec.layout.notation}, got "
                    f"{result!r}"
                )
            return result._local  # type: ignore[no-any-return]

        leaves = second_leaves.of(self._local)
        if getattr(hook, "__globals__", None) is vars(torch.autograd.graph):
            leaves.reduce_in_graph()  # register_multi_grad_hook counts what one run of the engine reaches
        return self._local.register_hook(leaves.gradient_hook(local_hook))

    def register_post_accumulate_grad_hook(self, hook: Callable[[DTensor], None]) -> Any:
        """Call ``hook(self)`` after a gradient was accumulated into this leaf."""

        # Holds this object and no weak reference to it: one would forbid to change its dtype in place.
        def local_hook(_: torch.Tensor) -> None:
            hook(self)

        hooked = second_leaves.of(self._local).accumulated_hook(local_hook)
        return self._local.register_post_accumulate_grad_hook(hooked)

    def _has_foreign_history(self) -> bool:
        return _of_wrapper(_Base.grad_fn.__get__, self) is not None

    def _check_use(self) -> None:
        if self._untracked or self._spec.copied:
            super()._check_use()
        if not torch.is_grad_enabled() and (self._untracked or self._local.requires_grad):
            check_not_in_function(f"{self!r} was turned into local tensors")

    # -- exchanging and copying ----------------------------------------------------------------------
    @property
    def data(self) -> TorchDTensor:
        """The tensor without history, on the same storage."""
        made = make(self._local.detach(), Spec.of(self._spec.layout), self._shape)
        return mark_copied(made, self) if self._spec.copied else made  # type: ignore[return-value]

    @data.setter
    def data(self, value: Any) -> None:
        if not isinstance(value, TorchDTensor):
            raise TypeError(
                f".data of a DTensor takes a DTensor, got {type(value).__name__}: wrap this rank's part with "
                "DTensor.from_local, or the whole tensor with distribute_tensor"
            )
        local, new = self._local, value._local.detach()
        layout = value._spec.layout
        if layout is not self._spec.layout or value._shape != self._shape:
            if local.grad is not None:
                raise LayoutError(
                    f"{self!r} cannot become {value!r}: it has a gradient, which would keep the layout it "
                    "has; set .grad = None first"
                )
            if self._is_gradient:
                raise LayoutError(
                    f"{self!r} cannot become {value!r}: it is a gradient, to which the next one is added; "
                    "redistribute the new values first"
                )
        if (value.dtype, value.device, value._shape) != (
            _of_wrapper(_Base.dtype.__get__, self),
            _of_wrapper(_Base.device.__get__, self),
            self._shape,
        ):
            self._renew_wrapper(value)
        if torch._has_compatible_shallow_copy_type(local, new):
            local.data = new
        else:  # from the meta device: the same parameter, on another kind of tensor
            self._local = new.requires_grad_(local.requires_grad)
        if layout is not self._spec.layout:
            self._spec = Spec.of(layout, self._spec.varying & layout.replicate_axes)
        # The views alias the data that was there before, and no version says so (rule 3).
        self._views = self._origin = self._meta = None

    def _renew_wrapper(self, like: TorchDTensor) -> None:
        """Give this object a wrapper of another size, dtype or device; a C++ tensor cannot change its own.

        Raises:
            RuntimeError: If somebody holds a weak reference or a C++ handle to this object.
        """
        fresh = make(like._local, self._spec, like._shape, type(self))
        fresh.__dict__.update(self.__dict__)
        _copy_state(self, fresh)
        fresh._shape = like._shape
        if self._local.requires_grad:
            _of_wrapper(_Base.requires_grad.__set__, fresh, True)
        try:
            torch.utils.swap_tensors(self, fresh)
        except RuntimeError as error:
            raise RuntimeError(
                f"{self!r} cannot become {like!r} in place, because something else refers to it ({error}); "
                "convert it before it is used, or make a new parameter"
            ) from error

    def _use_count(self) -> int:
        return int(_of_wrapper(_Base._use_count, self))

    def _attributes(self) -> dict[str, Any]:
        return {
            name: value for name, value in self.__dict__.items() if name not in _STATE and name != "_is_param"
        }

    def __deepcopy__(self, memo: dict[int, Any]) -> TorchDTensor:
        if id(self) in memo:
            return memo[id(self)]  # type: ignore[no-any-return]
        is_parameter = "_is_param" in self.__dict__
        if is_parameter:  # as for torch.nn.Parameter: the gradient is not copied
            local = self._local.detach().clone().requires_grad_(self._local.requires_grad)
        else:
            local = copy.deepcopy(self._local, memo)
        made = make(local, Spec.of(self._spec.layout, self._spec.varying), self._shape)
        memo[id(self)] = made
        if is_parameter:
            made._is_param = True
        made.__dict__.update(copy.deepcopy(self._attributes(), memo))
        return made

    def __copy__(self) -> TorchDTensor:
        made = _made_of(*self._content())
        return mark_copied(made, self) if self._spec.copied else made  # type: ignore[return-value]

    # What `torch.distributed.checkpoint` asks of a tensor subclass.
    __create_write_items__ = checkpoint.blocks_to_write
    __create_chunk_list__ = checkpoint.blocks_to_read
    __get_tensor_shard__ = checkpoint.block_of

    def __reduce_ex__(self, protocol: Any) -> Any:
        return rebuild, (part_of(self._spec.layout), *self._content())

    def _content(self) -> tuple[Any, ...]:
        return (
            self._local.detach(),
            self._spec.layout.to_dict(),
            self._spec.varying,
            tuple(self._shape),
            self.requires_grad,
            "_is_param" in self.__dict__,
            self._attributes(),
        )


# PyTorch looks at it to see whether somebody wrote an ordinary method; where there is none it makes an error.
TorchDTensor.__torch_function__.__self__ = None  # type: ignore[attr-defined]


class SlottedDTensor(TorchDTensor):
    """The class of all DTensors but exchanged parameters: its state costs half to make, read and free.

    PyTorch makes a dictionary of all attributes of a tensor when it ends or is looked at by the garbage
    collector. A slot is at a fixed place in the object instead. That is also why no `torch.nn.Parameter`
    can become an object of this class: one that is exchanged in place becomes a plain `TorchDTensor`.
    """

    __slots__ = _STATE


def make(
    local: torch.Tensor, spec: Spec, shape: tuple[int, ...], kind: type[TorchDTensor] = SlottedDTensor
) -> TorchDTensor:
    """The DTensor over ``local``; ``shape`` is global."""
    # By position, in the order of torch's signature: reading keyword names takes a quarter of the call.
    t: TorchDTensor = _make_wrapper(
        kind,
        shape,
        None,  # strides
        None,  # storage offset
        None,  # memory format
        local.dtype,
        _strided,
        local.device,
        False,  # pinned memory
        local.requires_grad,
    )
    t._local = local
    t._spec = spec
    t._shape = shape if type(shape) is _Size else _Size(shape)
    t._meta = t._views = t._origin = t._gradient = t._copy_of = None
    t._untracked = t._is_gradient = False
    return t


def _copy_state(source: TorchDTensor, target: TorchDTensor) -> None:
    for name in _STATE:
        setattr(target, name, getattr(source, name))


def _of_class(x: TorchDTensor, made: Any) -> Any:
    """What was made of ``x``, of its class."""
    if type(made) is type(x) or not isinstance(made, TorchDTensor):
        return made
    like = make(made._local, made._spec, made._shape, type(x))
    _copy_state(made, like)
    return like


def _detach(x: TorchDTensor) -> Any:
    """``x.detach()``, of the class of ``x``: ``nn.Parameter(x)`` insists on it."""
    return _of_class(x, dispatcher.dispatch("detach", torch.Tensor.detach, (x,), {}))


def _conversion(function: Callable[..., Any]) -> Callable[..., Any]:
    """A conversion of an exchanged parameter, of its class where a module swaps the two.

    Only two tensors of one class can be swapped (``torch.__future__``).
    """

    def convert(x: TorchDTensor, *args: Any, **kwargs: Any) -> Any:
        made = function(x, *args, **kwargs)
        return _of_class(x, made) if torch.__future__.get_swap_module_params_on_conversion() else made

    return functools.update_wrapper(convert, function)


def rebuild(part: tuple[int, ...] | None, *content: Any) -> TorchDTensor:
    """The DTensor that was pickled: this rank's part, as a leaf. All but its local are plain values.

    Raises:
        LayoutError: If it is the part of another rank.
    """
    t = _made_of(*content)
    check_part(t._spec.layout, part)
    return t


def _made_of(
    local: torch.Tensor,
    layout: dict[str, Any],
    varying: int,
    shape: Sequence[int],
    requires_grad: bool,
    is_parameter: bool,
    attributes: dict[str, Any],
) -> TorchDTensor:
    t = make(local, Spec.of(Layout.from_dict(layout), varying), torch.Size(shape))
    if requires_grad:
        t.requires_grad_()
    if is_parameter:
        t._is_param = True
    t.__dict__.update(attributes)
    return t


# torch.load(weights_only=True) calls only what is listed as safe.
torch.serialization.add_safe_globals([rebuild])


def _own_members() -> dict[Any, Known]:
    """PyTorch's functions for what the class answers itself: ``torch.numel(x)`` is ``x.numel()``."""
    found: dict[Any, Known] = {}
    for owner in (DTensor, TorchDTensor):
        for name, member in vars(owner).items():
            theirs = getattr(torch.Tensor, name, None)
            if theirs is None or name in (
                "__init__",
                "__new__",
                "__class__",
                "__dict__",
                "__doc__",
                "__module__",
            ):
                continue
            if isinstance(member, property):
                assert member.fget is not None
                if hasattr(theirs, "__get__"):
                    found[theirs.__get__] = Known(None, lambda x, *_, get=member.fget: get(x))
                    if member.fset is not None:
                        found[theirs.__set__] = Known(None, member.fset)
            elif callable(member):
                for function in (theirs, getattr(torch, name, None)):
                    if function is not None:
                        found[function] = Known(None, member)
    return found


_known.update({function: tuple(known) for function, known in _own_members().items()})
_known[torch.Tensor.detach] = Known(None, _detach)
for _name in ("to", "type", "float", "double", "half", "bfloat16", "cpu", "cuda"):  # as torch.nn.Module does
    _theirs = getattr(torch.Tensor, _name)
    setattr(TorchDTensor, _name, _conversion(_theirs))
    setattr(SlottedDTensor, _name, _theirs)
