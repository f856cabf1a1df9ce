"""The platform-neutral distributed tensor (design section 3)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from hyper_dtensor import gradients
from hyper_dtensor import redistribute as redistribution
from hyper_dtensor.copied import check_current, mark_copied
from hyper_dtensor.meta import TensorMeta, global_shape
from hyper_dtensor.platform import get_platform
from hyper_dtensor.rank_check import agree_on_value
from hyper_dtensor.spec import Spec
from hyper_layout import DeviceMesh, Layout, LayoutError, Placement, Replicate, format_layout

__all__ = ["DTensor", "adopt", "dispatching", "is_dtensor", "wrap"]

Tensor: TypeAlias = Any


class _Dispatching(threading.local):
    """Whether this thread runs an operator strategy: then ``to_local()`` returns the bare local (section 4).

    Per thread: another rank, or a backward thread of the framework, is not inside of it.
    """

    depth = 0
    """How many strategies run, one inside of the other: who runs one adds one until it has ended."""
    values_read = 0
    """How often a strategy asked a distributed tensor for its value."""


dispatching = _Dispatching()


class DTensor:
    """A tensor laid out on a mesh of devices; each rank holds its local part.

    Autograd runs on the local tensor; the collectives of `redistribute` and of the operators are
    differentiable, so that gradients equal those of the single-device program.

    ``shape``, ``size()``, ``numel()`` and ``ndim`` are global. An instance is made by `from_local`,
    `distribute_tensor`, a factory function or an operator, and is of the platform's own class.
    """

    _local: Tensor
    _spec: Spec
    _shape: tuple[int, ...]
    _meta: TensorMeta | None = None
    """Remembered by `meta_of`."""
    _views: dict[Any, Any] | None = None
    _origin: Callable[[Tensor, int], Tensor | None] | None = None
    _untracked: bool = False
    _copy_of: tuple[Tensor, int] | None = None
    """Of a *copied* tensor (see `Spec`): the local tensor whose values it has, and its version then."""

    # -- making and leaving ----------------------------------------------------------------------------
    @classmethod
    def from_local(
        cls,
        local: Tensor,
        device_mesh: DeviceMesh,
        placements: Sequence[Placement] | None = None,
        *,
        run_check: bool = False,
        grad_placements: Sequence[Placement] | None = None,
    ) -> DTensor:
        """A DTensor over this rank's part; no communication.

        Args:
            local: This rank's local tensor. On a Replicate axis every rank must hold the same values.
            device_mesh: The mesh.
            placements: One per mesh axis; Replicate everywhere if not given.
            run_check: Compare the values over the Replicate axes, once, at the price of communication.
            grad_placements: ``Partial()`` on a Replicate axis says that the ranks use ``local``'s producer
                differently, so that the gradient that flows into it is a summand (a *varying* tensor).

        Returns:
            A DTensor whose global shape is that of ``local`` times the number of shards.

        Raises:
            TypeError: If ``local`` is not a local tensor.
            ValueError: If the placements do not fit the mesh or the tensor.
        """
        platform = get_platform()
        if not platform.is_tensor(local):
            what = "a DTensor already" if isinstance(local, DTensor) else f"{type(local).__name__}"
            raise TypeError(
                f"DTensor.from_local takes this rank's local tensor of {platform.framework}, got {what}"
            )
        if not isinstance(device_mesh, DeviceMesh):
            raise TypeError(f"DTensor.from_local takes a DeviceMesh, got {type(device_mesh).__name__}")
        ndim = len(local.shape)
        if placements is None:
            placements = (Replicate(),) * device_mesh.ndim
        layout = Layout.from_placements(device_mesh, placements, ndim)
        varying = 0
        if grad_placements is not None:
            for axis, grad in enumerate(gradients.check_grad_placements(layout, grad_placements)):
                if grad.is_partial():
                    if layout.placements[axis].is_partial():
                        raise ValueError(
                            "grad_placements: the gradient of a Partial tensor is Replicate, not Partial"
                        )
                    varying |= 1 << axis
        t = adopt(local, Spec.of(layout, varying))
        if run_check:
            check_replicated(t)
        return t

    def to_local(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """This rank's local tensor; differentiable.

        Args:
            grad_placements: What the gradient of the returned tensor will be on each axis; Replicate by
                default. Pass ``Partial()`` where the ranks of an axis use a Replicate tensor differently
                (design section 3, ``docs/gradients.md``).

        Raises:
            ValueError: If ``grad_placements`` does not fit.
        """
        if dispatching.depth:
            return self._local
        self._check_use()
        if grad_placements is None and self._spec.is_plain:
            return self._local
        return gradients.to_local(self, grad_placements)

    def full_tensor(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """The whole tensor on every rank (a plain tensor of the global shape); differentiable.

        Args:
            grad_placements: As for `to_local`, of the gathered tensor.
        """
        return self.redistribute([Replicate()] * self.device_mesh.ndim).to_local(
            grad_placements=grad_placements
        )

    def redistribute(
        self, placements: Sequence[Placement] | DeviceMesh | None = None, *args: Any, **by_axis: Placement
    ) -> DTensor:
        """This tensor in another layout; differentiable.

        Args:
            placements: One per mesh axis (a leading mesh is accepted for PyTorch compatibility, and must
                be the tensor's own).
            *args: The placements, where a mesh came first.
            **by_axis: Or only what changes, by axis name: ``x.redistribute(tp=Shard(0))``.

        Raises:
            ValueError: If a placement, axis or size does not fit.
            LayoutError: If the tensor carries no gradient in its layout and needs one.
        """
        self._check_use()
        return redistribution.redistribute(
            self, redistribution.target_layout(self, placements, args, by_axis)
        )

    # -- what it is -----------------------------------------------------------------------------------
    @property
    def layout(self) -> Layout:
        """Mesh, placements and rank of the tensor."""
        return self._spec.layout

    @property
    def _layout(self) -> Layout:
        return self._spec.layout

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh."""
        return self._spec.layout.mesh

    @property
    def placements(self) -> tuple[Placement, ...]:
        """One placement per mesh axis."""
        return self._spec.layout.placements

    @property
    def shape(self) -> Any:
        """The global shape."""
        return self._shape

    @property
    def ndim(self) -> int:
        """Number of dims."""
        return len(self._shape)

    def dim(self) -> int:
        """Number of dims."""
        return len(self._shape)

    def size(self, dim: int | None = None) -> Any:
        """The global shape, or the global size of one dim."""
        return self._shape if dim is None else self._shape[dim]

    def numel(self) -> int:
        """Number of elements of the whole tensor."""
        count = 1
        for length in self._shape:
            count *= length
        return count

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("len() of a 0-d tensor")
        return self._shape[0]

    # -- gradients -------------------------------------------------------------------------------------
    @property
    def requires_grad(self) -> bool:
        """Whether the local tensor takes part in gradients."""
        return bool(self._local.requires_grad)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._local.requires_grad = value

    @property
    def grad(self) -> DTensor | None:
        """The gradient, a DTensor laid out as the table of design section 3 says."""
        local = self._local.grad
        if local is None:
            return None
        return wrap(local, gradients.gradient_spec(self._spec), self._shape)

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is None:
            self._local.grad = None
            return
        wanted = gradients.gradient_spec(self._spec).layout
        if not isinstance(value, DTensor) or value.layout is not wanted:
            raise LayoutError(
                f"the gradient of {self!r} is laid out as {wanted.notation}, got {value!r}; "
                "redistribute or distribute_tensor it first"
            )
        self._local.grad = value._local

    @property
    def data(self) -> DTensor:
        """The tensor without history, on the same storage."""
        made = wrap(get_platform().detach(self._local), Spec.of(self._spec.layout), self._shape)
        return mark_copied(made, self) if self._spec.copied else made

    @data.setter
    def data(self, value: Any) -> None:
        if not isinstance(value, DTensor):
            raise TypeError(f".data of a DTensor takes a DTensor, got {type(value).__name__}")
        self._local.data = get_platform().detach(value._local)
        self._spec, self._shape, self._meta = Spec.of(value._spec.layout), value._shape, None
        # The views alias the data that was there before, and no version says so (rule 3).
        self._views = self._origin = None

    def backward(self, gradient: Any = None, **options: Any) -> None:
        """Gradients of the leaves with respect to this tensor, as the single-device program has them.

        Args:
            gradient: ``None`` for a scalar; a plain tensor of the global shape counts as Replicate.
            **options: The framework's own (``retain_graph``, ``create_graph``, ``inputs``).

        Raises:
            RuntimeError: If ``gradient`` is missing and the tensor is not a scalar, or it is not tracked.
        """
        self._check_use()
        platform = get_platform()
        if any(op in ("max", "min", "prod") for op in self.layout.partial):
            gradients.refuse_gradient(self, "backward")
        platform.backward(self._local, gradients.sensitivity(self, gradient), **options)

    def _check_use(self) -> None:
        if self._untracked and get_platform().grad_enabled():
            gradients.check_tracked(self)
        if self._spec.copied:
            check_current(self)

    def _has_foreign_history(self) -> bool:
        """Whether the framework recorded a history on the wrapper itself, which is never followed."""
        return False

    # -- values -----------------------------------------------------------------------------------------
    def _whole(self, what: str) -> Tensor:
        """The local where it is the whole tensor.

        Raises:
            RuntimeError: If the tensor is not Replicate on every axis; names ``full_tensor()``.
        """
        if not self._spec.layout.is_replicated:
            raise RuntimeError(
                f"{what} needs the whole tensor, and this rank holds a part of it "
                f"({self._spec.layout.notation}); nothing is communicated behind your back: call "
                f"full_tensor() on every rank first, for example x.full_tensor().{what}"
            )
        if dispatching.depth:
            dispatching.values_read += 1
        return get_platform().detach(self._local)

    def item(self) -> Any:
        """The value of a one-element tensor that is Replicate everywhere; never communicates."""
        return self._whole("item()").item()

    def tolist(self) -> Any:
        """The values as nested lists, if Replicate everywhere; never communicates."""
        return self._whole("tolist()").tolist()

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        """The values as a NumPy array, if Replicate everywhere; never communicates."""
        return self._whole("numpy()").numpy(*args, **kwargs)

    def __float__(self) -> float:
        return float(self._whole("item()"))

    def __int__(self) -> int:
        return int(self._whole("item()"))

    def __bool__(self) -> bool:
        return bool(self._whole("item()"))

    def __index__(self) -> int:
        return int(self._whole("item()").__index__())

    def __repr__(self, **_: Any) -> str:
        dtype = get_platform().dtype_name(self._local)
        return f"DTensor({format_layout(dtype, tuple(self._shape), self._spec.layout)})"

    def __format__(self, spec: str) -> str:
        if spec and self.ndim == 0:
            return format(self._whole("item()").item(), spec)
        return repr(self)


def adopt(local: Tensor, spec: Spec) -> DTensor:
    """The DTensor over a local tensor from outside, as `DTensor.from_local` makes it after its checks."""
    platform = get_platform()
    shape = local.shape
    t = platform.wrap(local, spec, shape if spec.shard_counts is None else global_shape(shape, spec))
    t._views = platform.memo(local)
    if not platform.grad_enabled():
        # Perhaps made in a function whose history the framework keeps (rule 7).
        gradients.untrack(t)
    return t


def wrap(local: Tensor, spec: Spec, shape: tuple[int, ...] | None = None) -> DTensor:
    """The platform's DTensor over ``local``; the global shape follows from the layout if not given."""
    return get_platform().wrap(local, spec, global_shape(local.shape, spec) if shape is None else shape)


def is_dtensor(value: Any) -> bool:
    """Whether ``value`` is a DTensor of any platform."""
    return isinstance(value, DTensor)


def check_replicated(t: DTensor) -> None:
    """Raise on every rank of the mesh if ranks hold different values along a Replicate axis.

    Raises:
        RuntimeError: Names the axis and the ranks.
    """
    platform = get_platform()
    axes = gradients.axes_of(t.layout.replicate_axes)
    digest = platform.ops.fingerprint(platform.detach(t._local))
    agree_on_value(platform, t.device_mesh, axes, f"{t!r} is not the same on all ranks", digest)
