"""The linear layer, `x @ weight.T + bias`; a bias is added once.

For `x: ...k`, `weight: nk`, `bias: n` on one mesh axis::

    S(.) R    R    -> S(.)          a leading dim of x
    R    S(0) S(0) -> S(-1)         column parallel
    S(-1) S(1) +   -> P(sum)        row parallel: the bias enters once, and costs no backward collective
    P R + -> P    R P + -> P        linear in x and in weight; a Partial bias is added to a Partial product
    R R P -> P                      the product enters once

A weight without `n` (a vector) gives a result without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from hyper_dispatch import Row, RowsOp, register_strategy, to_locals
from hyper_dtensor import get_platform
from hyper_dtensor.collectives import enter_once
from hyper_ops.contraction import addend_letters, check_sizes, contraction_rows, product_once, result_sizes
from hyper_ops.matmul import factors_of


@register_strategy("linear")
class Linear(RowsOp):
    """cache_values: the layouts of x, weight and bias (None without one), equation, letters of the bias."""

    needs_signature = True
    shapes_follow = True
    preprocess_is_pure = True

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, weight, bias = self.bind(args, kwargs).values()
        local_args, local_kwargs = to_locals(args, kwargs)
        equation = linear_equation(x._layout.ndim, weight._layout.ndim)
        check_sizes(self.op_name, equation, (x, weight))
        if bias is None:
            return local_args, local_kwargs, [x._layout, weight._layout, None, equation, None]
        letters = self._bias_letters(x, weight, bias, equation)
        return local_args, local_kwargs, [x._layout, weight._layout, bias._layout, equation, letters]

    def _bias_letters(self, x: Any, weight: Any, bias: Any, equation: str) -> str:
        if len(weight.shape) == 2 and bias.shape == weight.shape[:1]:
            return "n"
        sizes = result_sizes(equation, [x.shape, weight.shape])
        return addend_letters(self.op_name, tuple(bias.shape), equation.partition("->")[2], sizes)

    def rows(self, cache_values: Sequence[Any]) -> Sequence[Row]:
        return contraction_rows(*cache_values[-2:])

    def output_ndims(self, cache_values: Sequence[Any]) -> tuple[int]:
        return (len(cache_values[-2].partition("->")[2]),)

    def letters(self, cache_values: Sequence[Any]) -> list[str]:
        *_, equation, bias = cache_values
        return [*factors_of(equation), *([] if bias is None else [bias])]

    def get_expand_impl(
        self, func: Callable[..., Any] | None, infer_result: Any, cache_values: Sequence[Any]
    ) -> Callable[..., Any] | None:
        x, weight, bias, *_ = cache_values
        axes = [] if bias is None else product_once([x, weight], bias)
        if not axes:
            return None

        def impl(input: Any, weight: Any, bias: Any) -> Any:
            ops = get_platform().ops
            product = ops.linear(input, weight)
            for axis in axes:
                product = enter_once(product, x.mesh, axis, varying=True)
            return ops.add(product, bias)

        return impl


@lru_cache(maxsize=64)
def linear_equation(x: int, weight: int) -> str:
    """The equation for operands of these ranks.

    Raises:
        ValueError: If x has no dim, or weight not one or two.
    """
    if not x or weight not in (1, 2):
        raise ValueError(
            f"linear takes an input of at least one dim and a weight of one or two, got {x} and {weight}"
        )
    batch, columns = "abcdefgh"[: x - 1], "n" if weight == 2 else ""
    return f"{batch}k,{columns}k->{batch}{columns}"
