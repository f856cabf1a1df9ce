"""The tape: nodes, gradient mode, and the backward engine.

Nodes point to nodes, never to their outputs, so that a tensor is freed with its last user. A backward visits
nodes from the newest to the oldest, which is the same order on every rank that built the same graph. The
gradients it hands out are read-only arrays: a backward that writes into what it was given raises.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.simulated.tensor import SimTensor

__all__ = ["Node", "backward", "enable_grad", "grad", "grad_enabled", "grad_mode", "no_grad", "record"]

Gradients = Sequence["SimTensor | None"]


class _Mode(threading.local):
    enabled = True


_mode = _Mode()
_numbers = itertools.count()


class Node:
    """One operation on the tape.

    Args:
        name: For messages.
        inputs: The nodes of the operands; None for an operand without gradient.
        backward: Maps the gradient of the output to those of the operands, built of differentiable
            operations. None for a leaf.
        saved: Tensors that ``backward`` reads; they must not be written until then.
        leaf: The tensor whose ``grad`` accumulates what arrives here.
    """

    __slots__ = ("__weakref__", "backward", "hooks", "inputs", "leaf", "name", "number", "saved")

    def __init__(
        self,
        name: str,
        inputs: Sequence[Node | None],
        backward: Callable[[SimTensor], Gradients] | None,
        saved: Sequence[SimTensor] = (),
        leaf: SimTensor | None = None,
    ) -> None:
        self.number = next(_numbers)
        self.name = name
        self.inputs = tuple(inputs)
        self.backward = backward
        self.saved = [(tensor, tensor.counter.count) for tensor in saved]
        self.leaf = leaf
        self.hooks: list[Callable[[SimTensor], SimTensor | None]] = []

    def run(self, gradient: SimTensor, keep: bool) -> Gradients:
        """The gradients of the operands.

        Raises:
            RuntimeError: If the node was freed, or a saved tensor was written in place.
        """
        if self.backward is None:
            raise RuntimeError(
                f"{self.name}: trying to backward through the graph a second time; use retain_graph=True"
            )
        for tensor, version in self.saved:
            if tensor.counter.count != version:
                raise RuntimeError(f"{self.name}: a tensor needed for the gradient was modified in place")
        gradients = self.backward(gradient)
        if self.saved and not keep:
            self.backward, self.saved = None, []
        return gradients


def grad_enabled() -> bool:
    """Whether operations of this thread are recorded."""
    return _mode.enabled


@contextmanager
def grad_mode(enabled: bool) -> Iterator[None]:
    """Record operations, or do not, inside the block."""
    before = _mode.enabled
    _mode.enabled = enabled
    try:
        yield
    finally:
        _mode.enabled = before


def no_grad() -> Any:
    """A block or decorator without recording."""
    return grad_mode(False)


def enable_grad() -> Any:
    """A block or decorator with recording."""
    return grad_mode(True)


def record(
    output: SimTensor,
    name: str,
    operands: Sequence[Any],
    backward: Callable[[SimTensor], Gradients],
    saved: Sequence[Any] = (),
) -> SimTensor:
    """Put ``output`` on the tape as made of ``operands``, if gradients are on and one needs them."""
    from tests.support.simulated.tensor import SimTensor

    if _mode.enabled and output.array.dtype.kind == "f":
        nodes = [operand.node if isinstance(operand, SimTensor) else None for operand in operands]
        if any(node is not None for node in nodes):
            kept = [tensor for tensor in saved if isinstance(tensor, SimTensor)]
            output.set_node(Node(name, nodes, backward, kept))
    return output


def backward(
    output: SimTensor,
    gradient: SimTensor,
    *,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Sequence[SimTensor] | None = None,
) -> None:
    """Accumulate gradients into the leaves (only into ``inputs``, if given)."""
    wanted = None if inputs is None else {id(tensor) for tensor in inputs}
    for node, found in _sweep([(output, gradient)], retain_graph, create_graph, ()):
        leaf = node.leaf
        if leaf is not None and (wanted is None or id(leaf) in wanted):
            _accumulate(leaf, found, create_graph)


def grad(
    outputs: Sequence[SimTensor],
    inputs: Sequence[SimTensor],
    gradients: Sequence[SimTensor],
    *,
    retain_graph: bool | None = None,
    create_graph: bool = False,
) -> list[SimTensor | None]:
    """Gradients of ``inputs``, which may be non-leaves; None for one that was not reached."""
    targets = [tensor.node for tensor in inputs]
    wanted = {node for node in targets if node is not None}
    start = list(zip(outputs, gradients, strict=True))
    found = {node: g for node, g in _sweep(start, retain_graph, create_graph, wanted) if node in wanted}
    return [found.get(node) if node is not None else None for node in targets]


def _sweep(
    start: Sequence[tuple[SimTensor, SimTensor]],
    retain_graph: bool | None,
    create_graph: bool,
    wanted: Any,
) -> Iterator[tuple[Node, SimTensor]]:
    """Visit the graph from the newest node to the oldest; yields leaves and wanted nodes with gradients."""
    keep = create_graph if retain_graph is None else retain_graph
    arrived: dict[Node, SimTensor] = {}
    queue: list[tuple[int, Node]] = []

    def deliver(node: Node, gradient: SimTensor) -> None:
        if node in arrived:
            arrived[node] = arrived[node] + gradient
        else:
            arrived[node] = gradient
            heapq.heappush(queue, (-node.number, node))

    with grad_mode(create_graph):
        for output, gradient in start:
            node = output.node
            if node is None:
                raise RuntimeError("the tensor does not require grad and has no history")
            if gradient.shape != output.shape:
                raise RuntimeError(f"the gradient has shape {gradient.shape}, the tensor {output.shape}")
            deliver(node, gradient)
        while queue:
            _, node = heapq.heappop(queue)
            gradient = _read_only(arrived.pop(node))
            for hook in node.hooks:
                replaced = hook(gradient)
                gradient = gradient if replaced is None else _read_only(replaced)
            if node.leaf is not None or node in wanted:
                yield node, gradient
            if node.leaf is not None:
                continue
            for source, part in zip(node.inputs, node.run(gradient, keep), strict=True):
                if source is not None and part is not None:
                    deliver(source, part)


def _read_only(gradient: SimTensor) -> SimTensor:
    from tests.support.simulated.tensor import SimTensor

    frozen = SimTensor(gradient.array.view())
    frozen.array.flags.writeable = False
    frozen.set_node(gradient.node)
    frozen.counter = gradient.counter
    return frozen


def _accumulate(leaf: SimTensor, gradient: SimTensor, create_graph: bool) -> None:
    from tests.support.simulated.tensor import SimTensor

    if gradient.shape != leaf.shape or gradient.dtype != leaf.dtype:
        raise RuntimeError(
            f"the gradient is {gradient.dtype}{gradient.shape}, its leaf {leaf.dtype}{leaf.shape}"
        )
    if create_graph:
        leaf.grad = gradient if leaf.grad is None else leaf.grad + gradient
    elif leaf.grad is None:
        leaf.grad = SimTensor(gradient.array.copy())
    else:
        leaf.grad.array += gradient.array
        leaf.grad.counter.count += 1
