"""A step of the transformer block under MindSpore, its forward and its gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, mint, nn

import hyper_parallel
from benchmarks.case import OURS, PLAIN, Case
from benchmarks.on_mindspore import cells, hand_written
from benchmarks.on_mindspore.libraries import RANKS, Ours
from benchmarks.plans import BATCH, BLOCK, FEATURES, HEADS, HIDDEN, SEQUENCE, dispatched, plan
from benchmarks.timing import Side
from hyper_dtensor import get_platform

__all__ = ["blocks", "step_of"]


def blocks(ours: Ours) -> Iterator[Case]:
    """The block with plain styles, and with sequence parallelism."""
    for sequence in (False, True):
        by_hand = hand_written.Block(get_platform(), RANKS, HIDDEN, HEADS, FEATURES, sequence=sequence)
        here = hyper_parallel.parallelize_module(
            cells.Block(), ours.mesh, dict(plan(hyper_parallel, hyper_parallel, sequence=sequence))
        )
        length = SEQUENCE // RANKS if sequence else SEQUENCE
        local = Tensor(np.random.default_rng(0).standard_normal((BATCH, length, HIDDEN)), mindspore.float32)
        sides = {
            PLAIN: _again(step_of(by_hand, by_hand.finish), local),
            OURS: _again(step_of(here), ours.wrap(local, 1) if sequence else local),
        }
        with_forward = f"{dispatched(sides[OURS])} dispatched operations per step"
        note = f"{with_forward}; value_and_grad of the sum; plain: hand-written collectives"
        name = "sequence parallelism" if sequence else "plain styles"
        yield Case(BLOCK, name, sides, grad=False, one_call=True, warm=True, note=note)


def step_of(
    block: nn.Cell, finish: Callable[[Sequence[Tensor]], Sequence[Tensor]] = lambda gradients: gradients
) -> Callable[[Any], tuple[Any, Sequence[Tensor]]]:
    """``step(x)``: the sum of the output, and the gradients of all parameters."""
    function = mindspore.value_and_grad(lambda x: mint.sum(block(x)), None, block.trainable_params())

    def step(x: Any) -> tuple[Any, Sequence[Tensor]]:
        value, gradients = function(x)
        return value, finish(gradients)

    return step


def _again(step: Callable[[Any], object], x: Any) -> Side:
    return lambda count: itertools.repeat(lambda: step(x), count)
