"""Local functions of layers: activations, softmax, norms, embedding, dropout, losses; PyTorch's meaning."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mindspore
from mindspore import Tensor, mint, ops

from hyper_platform_ms.local_basics import masked_fill, unsqueeze, where
from hyper_platform_ms.random_state import bernoulli_mask, uniform

__all__ = ["LAYERS"]


def relu(x: Tensor, inplace: bool = False) -> Tensor:
    """Zero below zero."""
    return ops.relu(x)


def silu(x: Tensor, inplace: bool = False) -> Tensor:
    """``x * sigmoid(x)``."""
    return ops.silu(x)


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """``x`` times the normal distribution up to it, or its approximation by tanh."""
    if approximate == "tanh":
        inner = mint.mul(mint.add(x, mint.mul(mint.mul(x, mint.square(x)), 0.044715)), math.sqrt(2 / math.pi))
        return mint.mul(mint.mul(x, 0.5), mint.add(mint.tanh(inner), 1))
    return mint.mul(mint.mul(x, 0.5), mint.add(mint.erf(mint.mul(x, math.sqrt(0.5))), 1))


def leaky_relu(x: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """``x``, below zero times the slope."""
    return where(mint.gt(x, 0), x, mint.mul(x, negative_slope))


def elu(x: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """``x``, below zero ``alpha * (exp(x) - 1)``."""
    below = mint.mul(mint.sub(mint.exp(mint.minimum(x, ops.zeros_like(x))), 1), alpha)
    return where(mint.gt(x, 0), x, below)


def softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """``log(1 + exp(beta * x)) / beta``."""
    scaled = mint.mul(x, beta)
    safe = where(mint.gt(scaled, threshold), 0.0, scaled)
    return where(mint.gt(scaled, threshold), x, mint.div(mint.log(mint.add(mint.exp(safe), 1)), beta))


def mish(x: Tensor, inplace: bool = False) -> Tensor:
    """``x * tanh(softplus(x))``."""
    return mint.mul(x, mint.tanh(softplus(x)))


def softmax(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """Exponentials over their sum."""
    return mint.softmax(x if dtype is None else x.astype(dtype), dim)


def log_softmax(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """The logarithm of softmax; composed, because MindSpore's kernel on CPU is off by 1e-6."""
    x = x if dtype is None else x.astype(dtype)
    shifted = mint.sub(x, ops.stop_gradient(mint.amax(x, (dim,), True)) if x.shape else x)
    return mint.sub(shifted, mint.log(mint.sum(mint.exp(shifted), dim, True))) if x.shape else shifted


# -- norms -----------------------------------------------------------------------------------------------
def native_layer_norm(
    x: Tensor, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The normalised tensor, the mean and the variance, as MindSpore's primitive returns them."""
    # The primitive rounds float64 on CPU, and its gradient fails where a parameter is a view.
    dims = tuple(range(len(x.shape) - len(normalized_shape), len(x.shape)))
    mean = mint.mean(x, dims, True)
    centred = mint.sub(x, mean)
    variance = mint.mean(mint.square(centred), dims, True)
    result = mint.mul(centred, mint.rsqrt(mint.add(variance, eps)))
    result = result if weight is None else mint.mul(result, weight)
    return (result if bias is None else mint.add(result, bias)), mean, variance


def layer_norm(
    x: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
    cudnn_enable: bool = True,
) -> Tensor:
    """Of mean 0 and variance 1 over the last dims, then scaled and shifted."""
    return native_layer_norm(x, normalized_shape, weight, bias, eps)[0]


def rms_norm(x: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: Any = None) -> Tensor:
    """Over the root of the mean square of the last dims, then scaled."""
    dims = tuple(range(len(x.shape) - len(normalized_shape), len(x.shape)))
    eps = _smallest(x) if eps is None else eps
    result = mint.mul(x, mint.rsqrt(mint.add(mint.mean(mint.square(x), dims, True), eps)))
    return result if weight is None else mint.mul(result, weight)


def _smallest(x: Tensor) -> float:
    """The distance of 1 to the next number of the dtype."""
    return {8: 2.0**-52, 4: 2.0**-23}.get(x.itemsize, 2.0**-10)


def embedding(
    ids: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of the weight; that of ``padding_idx`` gets no gradient.

    Raises:
        NotImplementedError: For ``max_norm``, ``scale_grad_by_freq`` and ``sparse``.
    """
    if max_norm is not None or scale_grad_by_freq or sparse:
        raise NotImplementedError("embedding on MindSpore takes no max_norm, scale_grad_by_freq or sparse")
    found = ops.gather(weight, ids, 0)
    if padding_idx is None:
        return found
    padding = unsqueeze(mint.eq(ids, padding_idx % weight.shape[0]), -1)
    return mint.where(padding, ops.stop_gradient(found), found)


# -- random ----------------------------------------------------------------------------------------------
def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero with probability ``p``, the rest scaled up, while training."""
    if not training or p == 0:
        return mint.mul(x, 1)
    if p == 1:
        return mint.mul(x, 0)
    return mint.mul(mint.mul(x, bernoulli_mask(x.shape, 1 - p, x.dtype)), 1 / (1 - p))


def bernoulli(x: Tensor, p: float | None = None, *, generator: Any = None) -> Tensor:
    """One with the probabilities that ``x`` holds, or ``p``."""
    drawn = uniform(x.shape, mindspore.float64)
    return mint.lt(drawn, x.astype(mindspore.float64) if p is None else p).astype(x.dtype)


# -- losses ----------------------------------------------------------------------------------------------
def _reduced(each: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return each
    return mint.sum(each) if reduction == "sum" else mint.mean(each)


def nll_loss(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Minus the log-probability of the target, weighted by class."""
    classes = 1 if len(x.shape) > 1 else 0
    ignored = mint.eq(target, ignore_index)
    safe = masked_fill(target, ignored, 0)
    picked = mint.squeeze(mint.gather(x, classes, unsqueeze(safe, classes)), classes)
    weights = ops.ones_like(picked) if weight is None else ops.gather(weight, safe, 0)
    weights = masked_fill(weights, ignored, 0)
    # Not a product: an infinite loss that does not count is zero.
    each = masked_fill(mint.neg(mint.mul(picked, weights)), ignored, 0)
    if reduction != "mean":
        return _reduced(each, reduction)
    return mint.div(mint.sum(each), mint.sum(weights))


def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Minus the log-probability of the target under softmax; the target may be probabilities."""
    classes = 1 if len(x.shape) > 1 else 0
    scores = log_softmax(x, classes)
    number = x.shape[classes]
    shape = [1] * len(x.shape)
    shape[classes] = -1
    by_class = None if weight is None else mint.reshape(weight, tuple(shape))

    def of_probabilities(probabilities: Any) -> Tensor:
        weighted = scores if by_class is None else mint.mul(scores, by_class)
        return mint.neg(mint.sum(mint.mul(weighted, probabilities), classes))

    if len(target.shape) == len(x.shape):
        smooth = mint.add(mint.mul(target, 1 - label_smoothing), label_smoothing / number)
        each = of_probabilities(smooth if label_smoothing else target)
        if reduction != "mean":
            return _reduced(each, reduction)
        return mint.div(mint.sum(each), each.size)
    options: dict[str, Any] = {"ignore_index": ignore_index, "reduction": reduction}
    hard = nll_loss(scores, target, weight, **options)
    if not label_smoothing:
        return hard
    ignored = mint.eq(target, ignore_index)
    soft = masked_fill(of_probabilities(1.0 / number), ignored, 0)
    if reduction == "mean":
        ones = (
            ops.ones_like(soft) if weight is None else ops.gather(weight, masked_fill(target, ignored, 0), 0)
        )
        soft = mint.div(mint.sum(soft), mint.sum(masked_fill(ones, ignored, 0)))
    else:
        soft = _reduced(soft, reduction)
    return mint.add(mint.mul(hard, 1 - label_smoothing), mint.mul(soft, label_smoothing))


def mse_loss(x: Tensor, target: Tensor, *, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """Squared differences."""
    each = mint.square(mint.sub(x, target))
    if weight is None:
        return _reduced(each, reduction)
    each = mint.mul(each, weight)
    if reduction != "mean":
        return _reduced(each, reduction)
    return mint.div(mint.sum(each), mint.sum(mint.broadcast_to(weight, x.shape)))


def l1_loss(x: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """Absolute differences."""
    return _reduced(mint.abs(mint.sub(x, target)), reduction)


def smooth_l1_loss(x: Tensor, target: Tensor, *, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """Squared differences up to ``beta``, absolute ones beyond."""
    apart = mint.abs(mint.sub(x, target))
    near = mint.div(mint.mul(mint.square(apart), 0.5), beta if beta else 1.0)
    return _reduced(where(mint.lt(apart, beta), near, mint.sub(apart, 0.5 * beta)), reduction)


LAYERS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        relu, silu, gelu, leaky_relu, elu, softplus, mish, softmax, log_softmax, native_layer_norm,
        layer_norm, rms_norm, embedding, dropout, bernoulli, nll_loss, cross_entropy, mse_loss, l1_loss,
        smooth_l1_loss,
    )
}  # fmt: skip
"""By PyTorch's name."""
