"""Looking into modules."""

from __future__ import annotations

from typing import Any

import numpy as np

from hyper_conformance.case import case
from hyper_conformance.here import NUMPY, Here
from hyper_dtensor import DTensor, Platform
from hyper_dtensor.platform import modules_below
from hyper_layout import Replicate


def numbers(here: Here, *shape: int, seed: int = 0) -> Any:
    """An array of the floating dtype that the cases compute with, as the sample modules take it."""
    return here.values(*shape, seed=seed).astype(NUMPY[here.precise])


@case(3, ranks=(2,))
def every_verb_is_there(here: Here) -> None:
    """The platform has all attributes and verbs of the protocol."""
    assert isinstance(here.platform, Platform)


@case(3, ranks=(2,))
def children_by_name(here: Here) -> None:
    """``children``: direct submodules, in order; a leaf module has none."""
    up, down = here.harness.linear(numbers(here, 6, 4), None), here.harness.linear(numbers(here, 4, 6), None)
    inner = here.harness.sequence({"down": down})
    outer = here.harness.sequence({"up": up, "inner": inner})
    children = here.platform.children(outer)
    here.equal(list(children), ["up", "inner"])
    assert children["up"] is up and children["inner"] is inner
    here.equal(dict(here.platform.children(up)), {})
    here.equal([name for name, _ in modules_below(here.platform, outer)], ["", "up", "inner", "inner.down"])


@case(3, ranks=(2,))
def parameters_by_name(here: Here) -> None:
    """``parameters``: those of the module itself, without those below it, absent ones left out."""
    weight, bias = numbers(here, 6, 4), numbers(here, 6)
    with_bias, without = here.harness.linear(weight, bias), here.harness.linear(weight, None)
    here.equal(set(here.platform.parameters(with_bias)), {"weight", "bias"})
    here.equal(set(here.platform.parameters(without)), {"weight"})
    here.identical(here.platform.parameters(with_bias)["weight"], weight)
    here.identical(here.platform.parameters(with_bias)["bias"], bias)
    here.equal(dict(here.platform.parameters(here.harness.sequence({"a": with_bias}))), {})
    (table,) = here.platform.parameters(here.harness.embedding(weight)).values()
    here.identical(table, weight)


@case(3, ranks=(2,))
def parameters_are_tensors_that_need_gradients(here: Here) -> None:
    """What ``parameters`` returns is a local tensor, until it is distributed."""
    parameter: Any = here.platform.parameters(here.harness.linear(numbers(here, 6, 4), None))["weight"]
    assert here.platform.is_tensor(parameter)
    assert parameter.requires_grad
    here.equal(tuple(parameter.shape), (6, 4))


@case(3, ranks=(2,))
def buffers_by_name(here: Here) -> None:
    """``buffers``: those of the module itself; ``set_buffer`` replaces one."""
    module = here.harness.two_outputs(numbers(here, 4))
    here.equal(set(here.platform.parameters(module)), {"gain"})
    here.equal(set(here.platform.buffers(module)), {"offset"})
    here.identical(here.platform.buffers(module)["offset"], np.ones(4, NUMPY[here.precise]))
    replicated = DTensor.from_local(here.tensor(np.zeros(4)), here.line(), [Replicate()])
    here.platform.set_buffer(module, "offset", replicated)
    assert isinstance(here.platform.buffers(module)["offset"], DTensor)
    here.equal(set(here.platform.parameters(module)), {"gain"})
    here.equal(dict(here.platform.buffers(here.harness.linear(numbers(here, 6, 4), None))), {})


@case(3, ranks=(2,))
def what_kind_of_module(here: Here) -> None:
    """``is_linear_module`` and ``is_embedding_module``."""
    platform, harness = here.platform, here.harness
    linear, embedding = harness.linear(numbers(here, 6, 4), None), harness.embedding(numbers(here, 6, 4))
    others = [harness.sequence({"a": linear}), harness.two_outputs(numbers(here, 4))]
    here.equal(
        [platform.is_linear_module(m) for m in (linear, embedding, *others)], [True, False, False, False]
    )
    here.equal(
        [platform.is_embedding_module(m) for m in (linear, embedding, *others)], [False, True, False, False]
    )


@case(3, ranks=(2,))
def sample_modules_compute(here: Here) -> None:
    """The sample modules of the harness do what the suite takes them to do."""
    harness = here.harness
    x, weight, bias = numbers(here, 3, 4), numbers(here, 6, 4, seed=1), numbers(here, 6, seed=2)
    here.close(harness.linear(weight, bias)(here.tensor(x)), x @ weight.T + bias)
    here.close(harness.linear(weight, None)(here.tensor(x)), x @ weight.T)
    ids = np.asarray([[0, 5], [2, 2]])
    here.close(harness.embedding(weight)(here.tensor(ids)), weight[ids])
    gain = numbers(here, 4, seed=3)
    first, second = harness.two_outputs(gain)(here.tensor(x), scale=2.0, shift=1.0)
    here.close(first, x * gain * 2)
    here.close(second, x + 1)
    chain = harness.sequence({"a": harness.linear(weight, None), "b": harness.linear(weight.T.copy(), None)})
    here.close(chain(here.tensor(x)), x @ weight.T @ weight)


@case(3, ranks=(2,))
def watching_every_module(here: Here) -> None:
    """``watch_modules``: enter and leave around each forward, nested as they are called; gone afterwards."""
    up, down = here.harness.linear(numbers(here, 6, 4), None), here.harness.linear(numbers(here, 4, 6), None)
    chain, x = here.harness.sequence({"up": up, "down": down}), here.tensor(numbers(here, 2, 4))
    names = {id(chain): "chain", id(up): "up", id(down): "down"}
    seen: list[str] = []
    with here.platform.watch_modules(
        lambda module: seen.append(f"enter {names[id(module)]}"),
        lambda module: seen.append(f"leave {names[id(module)]}"),
    ):
        chain(x)
    expected = ["enter chain", "enter up", "leave up", "enter down", "leave down", "leave chain"]
    here.equal(seen, expected)
    chain(x)
    here.equal(seen, expected, "still watched")


@case(3, ranks=(2,))
def watching_a_module_that_raises(here: Here) -> None:
    """``leave`` is called for a forward that raises, too."""
    module, seen = here.harness.two_outputs(numbers(here, 4)), []
    with here.platform.watch_modules(lambda m: seen.append("enter"), lambda m: seen.append("leave")):
        try:
            module(here.tensor(numbers(here, 2, 4)), no_such_argument=1)
        except TypeError:
            pass
        else:
            raise AssertionError("the forward took an argument that it does not have")
    here.equal(seen, ["enter", "leave"])
