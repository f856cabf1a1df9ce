"""In-place operations on local tensors.

MindSpore's own in-place arithmetic leaves its tensor as it is on CPU, and many in-place operations have no
kernel there. So the result is computed and then copied into the tensor. What MindSpore cannot do right is
refused: a write that takes part in gradients, and one into a view that is no block of memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindspore import Tensor, mint, ops
from mindspore._c_expression import _unsafe_set_version_counter

from hyper_platform_ms.autograd import grad_enabled
from hyper_platform_ms.local_basics import full, masked_fill

__all__ = ["IN_PLACE", "check_writable", "raise_version"]


def check_writable(x: Tensor, *values: Any) -> None:
    """Refuse a write that MindSpore would lose.

    Raises:
        NotImplementedError: Says why, and names the out-of-place form.
    """
    if grad_enabled() and any(isinstance(each, Tensor) and each._requires_grad for each in (x, *values)):
        raise NotImplementedError(
            "MindSpore does not differentiate writing in place: inside of a gradient computation use the "
            "out-of-place form (mint.where, mint.scatter, x + y)"
        )
    if not x.is_contiguous() or x.untyped_storage().nbytes() != x.nbytes:
        raise NotImplementedError(
            "writing in place into a view (of x[i], narrow, transpose ...) does not reach the tensor on "
            "MindSpore: write through the index of the tensor itself (x[i] = value)"
        )


def raise_version(x: Tensor) -> None:
    """Say that ``x`` was written: MindSpore counts copies, but not assignments through an index."""
    _unsafe_set_version_counter([x], [x._version + 1])


def _in_place(name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(x: Tensor, *values: Any, **options: Any) -> Tensor:
        check_writable(x, *values)
        result = function(x, *values, **options)
        x.copy_(result if result.shape == x.shape else mint.broadcast_to(result, x.shape))
        return x

    run.__name__ = name
    return run


def _added(x: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    return mint.add(x, other if alpha == 1 else mint.mul(other, alpha))


def _subtracted(x: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    return mint.sub(x, other if alpha == 1 else mint.mul(other, alpha))


def _copied(x: Tensor, source: Any, non_blocking: bool = False) -> Tensor:
    return source.astype(x.dtype)


def _filled(x: Tensor, value: Any) -> Tensor:
    return value.astype(x.dtype) if isinstance(value, Tensor) else full((), value, dtype=x.dtype)


IN_PLACE: dict[str, Callable[..., Tensor]] = {
    name: _in_place(name, function)
    for name, function in {
        "add_": _added,
        "sub_": _subtracted,
        "mul_": mint.mul,
        "div_": mint.div,
        "copy_": _copied,
        "fill_": _filled,
        "zero_": ops.zeros_like,
        "masked_fill_": masked_fill,
        "clamp_": mint.clamp,
        "exp_": mint.exp,
    }.items()
}
"""By PyTorch's name."""
