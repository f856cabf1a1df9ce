"""Second leaves: the gradients of replicated parameters are reduced together, at the end of the backward.

A parameter enters a varying op through a second leaf on the same storage. What arrives there during a
backward is taken away. When the engine has finished, all of it is reduced at once and goes on to the
parameters through a backward of its own, in which the engine runs their hooks, adds to ``.grad`` and calls
what waits for that, as on one device (ADR 0007).

A parameter may also be used directly in the same graph. Its hooks then wait for the end as well, so that they
see the whole gradient, and see it once.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeAlias

import torch
from torch.autograd import Variable
from torch.autograd.graph import get_gradient_edge
from torch.utils.weak import TensorWeakRef

from hyper_dtensor import DTensor
from hyper_dtensor.coalesced import VARIABLE, Summand, new_summand, reduce_together

__all__ = ["SecondLeaves", "make", "of", "parts_of"]

Hook: TypeAlias = Callable[[torch.Tensor], Any]


class _Reached(Enum):
    """What the running backward does with the second leaves of a parameter."""

    NO = "nothing"
    ACCUMULATES = "accumulates into them: the parameter's gradient is complete at its end"
    ASKED = "returns their gradients: whoever asked adds them up"


class SecondLeaves:
    """The second leaves of one local tensor that are alive: in a memo, or in a graph.

    Several are when the tensor was written, when its data was exchanged, or when ops vary on different axes.
    Nothing here keeps the tensor or its second leaves alive.
    """

    __slots__ = ("_in_graph", "_references")

    def __init__(self) -> None:
        self._references: list[TensorWeakRef] = []
        self._in_graph = False

    def make(self, local: torch.Tensor, summand: Summand) -> torch.Tensor | None:
        """A view of a new second leaf of ``local``; None if all of its gradient has to pass its own node."""
        if self._in_graph or _hooked_by_others(local):
            return None
        second: Any = local.detach().requires_grad_()
        # The second leaf keeps the local tensor, which does not keep the second leaf: no cycle.
        second._stands_for = local, summand
        second._post_accumulate_grad_hooks = _HOOKS
        self._references = [TensorWeakRef(each) for each in (*self.alive(), second)]
        # The leaf itself stays here: what is remembered as the view may get into a user's hands.
        return second.view_as(second)  # type: ignore[no-any-return]

    def reduce_in_graph(self) -> None:
        """From now on the tensor's gradient is reduced in the graph, and all of it passes its own node.

        Raises:
            RuntimeError: If an op has used it through a second leaf already.
        """
        if self.alive():
            raise RuntimeError(
                "whoever asks the engine about the node of this parameter (get_gradient_edge, "
                "register_multi_grad_hook) would miss the gradient of the ops that used it already; "
                f"ask before its first use, or set {VARIABLE}=0"
            )
        self._in_graph = True

    def alive(self) -> list[Any]:
        """The second leaves, oldest first."""
        found = [reference() for reference in self._references]
        return [second for second in found if second is not None]

    def _reached(self) -> _Reached:
        state = _Reached.NO
        for second in self.alive():
            if not second._stands_for[0].requires_grad:
                return _Reached.NO  # frozen since the forward
            with torch.enable_grad():
                node = get_gradient_edge(second).node
            try:
                if torch._C._will_engine_execute_node(node):
                    state = _Reached.ACCUMULATES
            except RuntimeError:  # "... we are currently running autograd.grad()"
                return _Reached.ASKED
        return state

    def gradient_hook(self, hook: Hook) -> Hook:
        """``hook``, a hook of the parameter's local tensor that is to see the whole gradient."""

        def run(gradient: torch.Tensor) -> Any:
            reached = self._reached()
            if reached is _Reached.NO:
                return hook(gradient)
            return _hold_back(self._local(), gradient) if reached is _Reached.ACCUMULATES else None

        return run

    def accumulated_hook(self, hook: Hook) -> Hook:
        """``hook``, to be called when the whole gradient is in ``.grad`` of the local tensor."""

        def run(local: torch.Tensor) -> None:
            if self._reached() is _Reached.NO:
                hook(local)
            else:
                _task().accumulated.append((local, hook))

        return run

    def _local(self) -> torch.Tensor:
        return self.alive()[-1]._stands_for[0]  # type: ignore[no-any-return]


def _hooked_by_others(local: Any) -> bool:
    """Whether hooks were put on the local tensor itself, which would see the gradient in two parts."""
    if not _has_hooks(local):
        return False
    hooks = [*(local._backward_hooks or {}).values(), *(local._post_accumulate_grad_hooks or {}).values()]
    return any(getattr(hook, "__globals__", None) is not globals() for hook in hooks)


# By identity. A tensor's Python object, and with it the weak reference, lives as long as the tensor does.
_known: dict[int, tuple[weakref.ref[torch.Tensor], SecondLeaves]] = {}


def of(local: torch.Tensor) -> SecondLeaves:
    """The second leaves of a local tensor."""
    number = id(local)
    known = _known.get(number)
    if known is None:
        reference = weakref.ref(local, lambda _: _known.pop(number, None))
        known = _known.setdefault(number, (reference, SecondLeaves()))
    return known[1]


def parts_of(local: torch.Tensor) -> list[tuple[Summand, torch.Tensor]]:
    """The second leaves of a local tensor, and what their gradients are."""
    known = _known.get(id(local))
    return [] if known is None else [(second._stands_for[1], second) for second in known[1].alive()]


def make(t: DTensor, axes: int) -> torch.Tensor | None:
    """A view of a new second leaf of ``t``; None if ``t`` is no parameter, or has to do without.

    Another leaf may be held, and asked for its gradient, by somebody who does not know that a DTensor was
    made of it. The local tensor of a parameter is its own (``nn.Parameter`` detaches).
    """
    local: torch.Tensor = t._local
    if not local.is_leaf or not getattr(t, "_is_param", False):
        return None
    summand = new_summand(t, axes)
    return None if summand is None else of(local).make(local, summand)


class _Task:
    """What one backward has collected."""

    def __init__(self) -> None:
        self.create_graph = torch.is_grad_enabled()  # the engine sets it
        self.received: list[tuple[Summand, torch.Tensor, torch.Tensor]] = []
        self.held_back: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.accumulated: list[tuple[torch.Tensor, Hook]] = []

    def finish(self) -> None:
        """The whole gradients go to the parameters."""
        self.received.sort(key=lambda each: each[0].number)
        summands = [summand for summand, _, _ in self.received]
        locals_ = [local for _, local, _ in self.received]
        gradients = [gradient for _, _, gradient in self.received]
        self.received.clear()
        with torch.set_grad_enabled(self.create_graph):
            reduce_together(summands, gradients)
            for local, gradient in self.held_back:
                locals_.append(local)
                gradients.append(gradient)
            if self.create_graph or any(map(_has_hooks, locals_)):
                # The engine runs the hooks, once for all that one parameter gets.
                torch.autograd.backward(locals_, gradients, create_graph=self.create_graph)
            else:
                for local, gradient in zip(locals_, gradients, strict=True):
                    _accumulate(local, gradient)
            for local, hook in self.accumulated:
                if not any(other is local for other in locals_):
                    hook(local)


def _has_hooks(local: Any) -> bool:
    return local._backward_hooks is not None or local._post_accumulate_grad_hooks is not None


def _accumulate(local: torch.Tensor, gradient: torch.Tensor) -> None:
    """Add to ``.grad`` as the engine does: strided like the tensor, and nothing of a buffer is kept."""
    if local.grad is None:
        # A copy: the gradient may be a piece of a buffer.
        local.grad = gradient.clone() if local.is_contiguous() else torch.empty_like(local).copy_(gradient)
    else:
        local.grad.add_(gradient)


# By the number of the engine's task. The engine alone keeps what waits: it goes with a backward that fails.
_tasks: weakref.WeakValueDictionary[int, _Task] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def _task() -> _Task:
    number = torch._C._current_graph_task_id()
    with _lock:
        task = _tasks.get(number)
        if task is None:
            task = _tasks[number] = _Task()
            engine: Any = Variable._execution_engine
            engine.queue_callback(task.finish)
    return task


def _received(second: Any) -> None:
    """The hook of second leaves: the gradient is taken away until the end of the backward."""
    gradient, second.grad = second.grad, None
    local, summand = second._stands_for
    # None from a function that has no gradient; or the parameter was frozen since the forward.
    if gradient is not None and local.requires_grad:
        _task().received.append((summand, local, gradient))


# What register_post_accumulate_grad_hook makes for every tensor anew, and nobody removes here.
_HOOKS = OrderedDict({0: _received})


def _hold_back(local: torch.Tensor, gradient: torch.Tensor | None) -> torch.Tensor | None:
    """Let a gradient of the local tensor itself wait; zeros go on in its place."""
    held_back = _task().held_back
    if gradient is None or any(other is local for other, _ in held_back):
        return None  # there is none, or another hook of the tensor was here before
    held_back.append((local, gradient))
    return torch.zeros_like(gradient)
