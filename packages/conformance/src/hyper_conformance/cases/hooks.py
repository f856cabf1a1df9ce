"""Hooks before and after a forward."""

from __future__ import annotations

from typing import Any

from hyper_conformance.case import case
from hyper_conformance.cases.modules import numbers
from hyper_conformance.here import Here

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def _module(here: Here) -> tuple[Any, Any, Any]:
    """A module of two outputs, an input, and that input's array."""
    x = numbers(here, 3, 4)
    return here.harness.two_outputs(numbers(here, 4, seed=1)), here.tensor(x), x


@case(3, ranks=(2,))
def before_forward_sees_and_replaces_the_arguments(here: Here) -> None:
    """``hook(module, args, kwargs) -> (args, kwargs)``: positional and keyword arguments."""
    module, x, array = _module(here)
    gain, seen = numbers(here, 4, seed=1), []

    def hook(hooked: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        seen.append((hooked is module, len(args), sorted(kwargs), args[0] is x))
        return (args[0] * 2.0,), {**kwargs, "shift": 5.0}

    here.platform.before_forward(module, hook)
    first, second = module(x, scale=3.0)
    here.equal(seen, [(True, 1, ["scale"], True)])
    here.close(first, array * 2 * gain * 3)
    here.close(second, array * 2 + 5)
    module(x)
    here.equal(seen[1], (True, 1, [], True), "no keyword arguments: an empty dictionary")


@case(3, ranks=(2,))
def after_forward_sees_all_and_replaces_the_output(here: Here) -> None:
    """``hook(module, args, kwargs, output) -> output``: several outputs are one tuple."""
    module, x, array = _module(here)
    seen = []

    def hook(hooked: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        seen.append((hooked is module, args[0] is x, dict(kwargs), type(output), len(output)))
        return output[1], "beside"

    here.platform.after_forward(module, hook)
    value, beside = module(x, shift=1.0)
    here.equal(seen, [(True, True, {"shift": 1.0}, tuple, 2)])
    here.close(value, array + 1)
    here.equal(beside, "beside")


@case(3, ranks=(2,))
def a_hook_may_return_one_tensor_for_several(here: Here) -> None:
    """What the hook after a forward returns is the output, of whatever type."""
    module, x, array = _module(here)
    here.platform.after_forward(module, lambda module, args, kwargs, output: output[1])
    here.close(module(x, shift=2.0), array + 2)
    single = here.harness.linear(numbers(here, 6, 4), None)
    here.platform.after_forward(single, lambda module, args, kwargs, output: (output,))
    out = single(x)
    assert isinstance(out, tuple) and len(out) == 1


@case(3, ranks=(2,))
def hooks_run_in_the_order_of_their_registration(here: Here) -> None:
    """Each sees what the one before it returned."""
    module, x, array = _module(here)
    for add in (1.0, 10.0):
        here.platform.before_forward(
            module,
            lambda module, args, kwargs, add=add: (args, {"shift": kwargs.get("shift", 0.0) * 2 + add}),
        )
        here.platform.after_forward(
            module, lambda module, args, kwargs, output, add=add: (output[0], output[1] * 2.0 + add)
        )
    _, second = module(x)
    here.close(second, ((array + 12) * 2 + 1) * 2 + 10)


@case(3, ranks=(2,))
def a_hook_can_be_removed(here: Here) -> None:
    """The handle's ``remove()``."""
    module, x, array = _module(here)
    handles = [
        here.platform.before_forward(module, lambda module, args, kwargs: (args, {"shift": 7.0})),
        here.platform.after_forward(module, lambda module, args, kwargs, output: "replaced"),
    ]
    here.equal(module(x), "replaced")
    for handle in handles:
        handle.remove()
    _, second = module(x)
    here.close(second, array)


@case(3)
def an_error_in_a_hook_reaches_the_caller(here: Here) -> None:
    """A style that refuses an input does so from a hook."""
    module, x, array = _module(here)

    def refuse(module: Any, args: Any, kwargs: Any) -> Arguments:
        raise ValueError("refused by a hook")

    handle = here.platform.before_forward(module, refuse)
    here.refused(lambda: module(x), ValueError, says="refused by a hook")
    handle.remove()
    _, second = module(x)
    here.close(second, array)


@case(3, ranks=(2,))
def gradients_pass_through_hooks(here: Here) -> None:
    """What hooks compute on inputs and outputs is differentiated like the forward."""
    gain, array = numbers(here, 4, seed=1), numbers(here, 3, 4)
    module, f = here.harness.two_outputs(gain), here.platform.ops
    here.platform.before_forward(module, lambda module, args, kwargs: ((args[0] * 2.0,), kwargs))
    here.platform.after_forward(module, lambda module, args, kwargs, output: output[0] * 5.0)
    _, (gradient,) = here.harness.gradients(lambda x: f.sum(module(x)), here.tensor(array))
    here.close(gradient, 10 * gain + 0 * array)
