"""Matrix products: matmul of every rank, mm, bmm, mv, dot, outer, and those with an addend (addmm ...).

The rows follow from the letters, `mk,kn->mn` (`contraction`)::

    S(m) R -> S(m)    R S(n) -> S(n)    S(k) S(k) -> P(sum)    P R -> P    R P -> P

A batch dim of size 1 that is repeated is Replicate. An addend is split like the dims of the result it has,
and enters a Partial result once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from hyper_dispatch import Row, RowsOp, register_strategy, to_locals
from hyper_dtensor import get_platform
from hyper_dtensor.collectives import enter_once
from hyper_layout import Layout
from hyper_ops.broadcasting import broadcast_letters
from hyper_ops.contraction import addend_letters, check_sizes, contraction_rows, product_once, result_sizes


@register_strategy("matmul")
class Matmul(RowsOp):
    """A product of two tensors. cache_values: their layouts and the equation."""

    needs_signature = True
    shapes_follow = True
    preprocess_is_pure = True

    def __init__(self, op_name: str, equation: str | None = None) -> None:
        """Make the strategy.

        Args:
            op_name: Name of the operation.
            equation: Its letters where they do not depend on the ranks of the operands (`mk,kn->mn`).
        """
        super().__init__(op_name)
        self._equation = equation

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        left, right = self.bind(args, kwargs).values()
        equation = self._equation or matmul_equation(self.op_name, left.shape, right.shape)
        check_sizes(self.op_name, equation, (left, right))
        local_args, local_kwargs = to_locals(args, kwargs)
        return local_args, local_kwargs, [left._layout, right._layout, equation]

    def rows(self, cache_values: Sequence[Any]) -> Sequence[Row]:
        check_ranks(self.op_name, cache_values[-1], cache_values[:-1])
        return contraction_rows(cache_values[-1])

    def output_ndims(self, cache_values: Sequence[Any]) -> tuple[int]:
        return (len(cache_values[-1].partition("->")[2]),)

    def letters(self, cache_values: Sequence[Any]) -> list[str]:
        return factors_of(cache_values[-1])


@register_strategy("addmm")
class AddMatmul(RowsOp):
    """`beta * input + alpha * product`. cache_values: layouts, equation, letters of the addend."""

    shapes_follow = True
    preprocess_is_pure = True

    def __init__(self, op_name: str, equation: str) -> None:
        """Make the strategy.

        Args:
            op_name: Name of the operation.
            equation: Letters of the product (`mk,kn->mn`).
        """
        super().__init__(op_name)
        self._equation = equation

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        addend, left, right, *_ = self.bind(args, kwargs).values()
        layouts = [addend._layout, left._layout, right._layout]
        check_ranks(self.op_name, self._equation, layouts[1:])
        check_sizes(self.op_name, self._equation, (left, right))
        sizes = result_sizes(self._equation, [left.shape, right.shape])
        letters = addend_letters(self.op_name, tuple(addend.shape), self._equation.partition("->")[2], sizes)
        if self.inplace and tuple(addend.shape) != sizes:
            raise ValueError(
                f"{self.op_name}: the target has shape {tuple(addend.shape)}, the result {sizes}"
            )
        local_args, local_kwargs = to_locals(args, kwargs)
        return local_args, local_kwargs, [*layouts, self._equation, letters]

    def rows(self, cache_values: Sequence[Any]) -> Sequence[Row]:
        *_, equation, addend = cache_values
        found = contraction_rows(equation, addend)
        return [Row((row.inputs[-1], *row.inputs[:-1]), row.outputs) for row in found]

    def output_ndims(self, cache_values: Sequence[Any]) -> tuple[int]:
        return (len(cache_values[-2].partition("->")[2]),)

    def letters(self, cache_values: Sequence[Any]) -> list[str]:
        return [cache_values[-1], *factors_of(cache_values[-2])]

    def get_expand_impl(
        self, func: Callable[..., Any] | None, infer_result: Any, cache_values: Sequence[Any]
    ) -> Callable[..., Any] | None:
        addend, *factors = cache_values[:3]
        axes = product_once(factors, addend)
        if not axes:
            return None
        mesh, equation, inplace = addend.mesh, self._equation, self.inplace

        def impl(input: Any, left: Any, right: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
            ops = get_platform().ops
            product = ops.mul(ops.einsum(equation, left, right), alpha)
            for axis in axes:
                product = enter_once(product, mesh, axis, varying=True)
            if inplace:
                return ops.add_(ops.mul_(input, beta), product)
            return ops.add(ops.mul(input, beta), product)

        return _by_position(self, impl)


def _by_position(op: RowsOp, impl: Callable[..., Any]) -> Callable[..., Any]:
    """`impl` for calls in any form: tensors by keyword under the names of the signature become positional."""
    names = op.signature.names[:3] if op.signature is not None else ()

    def any_form(*args: Any, **kwargs: Any) -> Any:
        args = (*args, *(kwargs.pop(name) for name in names[len(args) :]))
        return impl(*args, **kwargs)

    return any_form


def factors_of(equation: str) -> list[str]:
    """Letters of the factors."""
    return equation.partition("->")[0].split(",")


def check_ranks(op_name: str, equation: str, layouts: Sequence[Layout]) -> None:
    """Refuse operands of another rank than the equation has letters.

    Raises:
        ValueError: Names the ranks.
    """
    wanted = [len(own) for own in factors_of(equation)]
    got = [layout.ndim for layout in layouts]
    if wanted != got:
        raise ValueError(f"{op_name} takes tensors of ranks {wanted} ({equation}), got {got}")


def matmul_equation(op_name: str, left: Sequence[int], right: Sequence[int]) -> str:
    """The equation of `matmul` for these global shapes.

    Raises:
        ValueError: For a 0-d operand, or batch dims that cannot be broadcast.
    """
    if len(left) <= 2 or len(right) <= 2:
        return _one_batch(op_name, len(left), len(right))
    return _two_batches(op_name, tuple(left[:-2]), tuple(right[:-2]))


@lru_cache(maxsize=256)
def _one_batch(op_name: str, left: int, right: int) -> str:
    if not left or not right:
        raise ValueError(f"{op_name} takes tensors of at least one dim, got ranks {left} and {right}")
    batch = "abcdefgh"[: max(left, right, 2) - 2]
    rows, columns = ("m" if left > 1 else ""), ("n" if right > 1 else "")
    own = (batch if left > 2 else "", batch if right > 2 else "")
    return f"{own[0]}{rows}k,{own[1]}k{columns}->{batch}{rows}{columns}"


@lru_cache(maxsize=1024)
def _two_batches(op_name: str, left: tuple[int, ...], right: tuple[int, ...]) -> str:
    own = broadcast_letters(op_name, (left, right)).split(",")
    batch = "abcdefgh"[: max(len(left), len(right))]
    return f"{own[0]}mk,{own[1]}kn->{batch}mn"
