"""Methods that are nothing or a few others, for DTensors; a complex tensor keeps the framework's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

__all__ = ["COMPOSED"]

# As Any: properties are looked up on the class, where stubs show the values of an instance.
_Tensor: Any = torch.Tensor


def _same_if_real(otherwise: Callable[..., Any]) -> Callable[[Any], Any]:
    """``x`` itself where it is real, as PyTorch returns it.

    Raises:
        NotImplementedError: From the returned function, for a complex DTensor: there is no rule for those.
    """

    def run(x: Any) -> Any:
        if x.dtype.is_complex:
            raise NotImplementedError(
                f"{getattr(otherwise, '__name__', otherwise)} of a complex DTensor {x!r} has no distributed "
                "rule: use local_map for a function of local tensors"
            )
        return x

    return run


def _adjoint(x: Any) -> Any:
    return _same_if_real(torch.adjoint)(x).mT


def _type(x: Any, dtype: Any = None, non_blocking: bool = False) -> Any:
    if dtype is None:
        return x._local.type()
    if isinstance(dtype, torch.dtype):
        return x.to(dtype, non_blocking=non_blocking)
    raise TypeError(f"type() of a DTensor takes a torch.dtype, got {dtype!r}: use x.to(dtype)")


COMPOSED: Final[dict[Callable[..., Any], Callable[..., Any]]] = {
    torch.Tensor.type: _type,
    torch.adjoint: _adjoint,
    torch.Tensor.adjoint: _adjoint,
    _Tensor.H.__get__: _adjoint,
    _Tensor.mH.__get__: _adjoint,
    **{
        function: _same_if_real(function)
        for function in (
            torch.conj,
            torch.Tensor.conj,
            torch.real,
            _Tensor.real.__get__,
            torch.resolve_conj,
            torch.Tensor.resolve_conj,
            torch.resolve_neg,
            torch.Tensor.resolve_neg,
        )
    },
}
"""By the function that is intercepted."""
