"""Covers cache.py and call_plan.py: what shares an entry, what does not, and that nothing stale is executed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from hyper_dispatch import DistributedOp, LayoutCacheKey, OpDispatcher, RowsOp, register_op, row, to_locals
from hyper_dispatch.cache import freeze
from hyper_dtensor import DTensor
from tests.dispatch.examples import MESH, S0, S1, Join, R, Recorder, Sum, caller, tensor
from tests.support import simulated as sim
from tests.support.simulated import ops


class Along(RowsOp):
    """Something along a dim, whose rule reads the dim only."""

    def statics(self, bound: dict[str, Any]) -> Any:
        return (bound["dim"],)

    def rows(self, cache_values: Sequence[Any]) -> Any:
        layout, _ = cache_values
        return [row(f"S({d}) -> S({d})") for d in range(layout.ndim)]

    def output_ndims(self, cache_values: Sequence[Any]) -> Any:
        return (cache_values[0].ndim,)


class ByHand(DistributedOp):
    """As the seeds write strategies: nothing but the three stages."""

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensor, value = args
        return (tensor.to_local(), value), {}, [tensor.layout, value]

    def infer_layout(self, cache_values: Sequence[Any]) -> Any:
        return (cache_values[0],), None


VALUES = [
    1,
    True,
    1.0,
    "1",
    0.0,
    -0.0,
    None,
    (1,),
    (True,),
    (1.0,),
    (1, (2,)),
    (1, (2.0,)),
    slice(1),
    slice(1, None, 1),
]


def test_values_of_different_types_are_different_keys() -> None:
    keys = [LayoutCacheKey.from_cache_values([tensor([R, R], 2).layout, value]) for value in VALUES]
    assert len(set(keys)) == len(VALUES)
    again = [LayoutCacheKey.from_cache_values([tensor([R, R], 2).layout, value]) for value in VALUES]
    assert keys == again


def test_nan_is_one_key() -> None:
    keys = {
        LayoutCacheKey.from_cache_values([float("nan")]),
        LayoutCacheKey.from_cache_values([float("nan")]),
    }
    assert len(keys) == 1


def test_a_key_is_immutable_and_hashes_once() -> None:
    counted = 0

    class Counted:
        def __hash__(self) -> int:
            nonlocal counted
            counted += 1
            return 7

        def __eq__(self, other: object) -> bool:
            return other is self

    key = LayoutCacheKey((Counted(),))
    assert counted == 1
    assert {key: 1}[key] == 1 and hash(key) == hash(key)
    assert counted == 1
    assert not hasattr(key, "__dict__")
    with pytest.raises(AttributeError, match="LayoutCacheKey is immutable, cannot set '_hash'"):
        key._hash = 3
    with pytest.raises(AttributeError, match="LayoutCacheKey is immutable, cannot delete '_hash'"):
        del key._hash


def test_a_key_equals_its_content() -> None:
    key = LayoutCacheKey.from_cache_values([1, "a"])
    assert key == key.content and {key: 1}[key.content] == 1  # type: ignore[index]


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, (1, [2])])
def test_a_value_that_cannot_be_hashed_is_named(value: Any) -> None:
    with pytest.raises(ValueError) as caught:
        freeze("along", value)
    assert "along: the static value" in str(caught.value)
    assert "preprocess must pass a hashable value (a tuple for a list)" in str(caught.value)


def test_a_tensor_is_no_static_value() -> None:
    for value in (sim.tensor([1.0]), tensor([R, R], 2)):
        with pytest.raises(ValueError, match="along: a tensor among cache_values"):
            freeze("along", value)


@pytest.fixture
def along(dispatcher: OpDispatcher) -> Any:
    register_op("along", Along, signature="input, dim|axis=-1, scale=1.0, *, stable=False")
    function = Recorder(lambda input, *args, **kwargs: ops.neg(input))
    return caller(dispatcher, "along", function), function, dispatcher


def counts(dispatcher: OpDispatcher, name: str) -> tuple[int, int, int]:
    info = dispatcher.cache_info(name)[name]
    return info.hits, info.misses, info.entries


def test_equivalent_calls_share_one_entry(along: Any) -> None:
    call, _, dispatcher = along
    x = tensor([S0, R], 4, 4)
    call(x)
    call(x, -1)
    call(x, dim=-1)
    call(x, axis=-1)
    call(input=x, dim=-1, stable=False)
    call(stable=False, dim=-1, input=x)
    assert counts(dispatcher, "along") == (5, 1, 1)
    call(x, 1)
    call(tensor([R, S0], 4, 4))
    assert counts(dispatcher, "along") == (5, 3, 3)


def test_arguments_outside_of_the_key_come_from_the_present_call(along: Any) -> None:
    call, function, dispatcher = along
    x = tensor([S0, R], 4, 4)
    sent = [(x, 1, 2.0), (x, 1, 3.0), (x, 1, 2.0), (x, 1, 0.0), (x, 1, -0.0), (x, 1, 2), (x, 1, True)]
    for args in sent:
        call(*args, stable=True)
    assert [repr(args[1:]) for args, _ in function.calls] == [repr(args[1:]) for args in sent]
    assert all(kwargs == {"stable": True} for _, kwargs in function.calls)
    assert counts(dispatcher, "along") == (6, 1, 1)
    call(tensor([S0, R], 4, 4), 1, 2.0)
    assert function.calls[-1][0][0] is not x._local


def test_every_form_of_function_gets_its_own_implementation(dispatcher: OpDispatcher) -> None:
    class Expanded(Along):
        def get_expand_impl(self, func: Any, infer_result: Any, cache_values: Any) -> Any:
            return lambda *args, **kwargs: func(*args, **kwargs)

    register_op("expanded", Expanded, signature="input, dim=-1")
    one, two = Recorder(ops.neg), Recorder(ops.exp)
    x = tensor([S0, R], 4, 4)
    for function in (one, two, one):
        caller(dispatcher, "expanded", function)(x)
    assert (len(one.calls), len(two.calls)) == (2, 1)
    assert counts(dispatcher, "expanded") == (2, 1, 1)


def test_static_types_are_told_apart_in_calls(dispatcher: OpDispatcher) -> None:
    register_op("by_hand", ByHand("by_hand"))
    call = caller(dispatcher, "by_hand", lambda x, value: ops.neg(x))
    for value in (1, True, 1.0, "1", 0.0, -0.0, 1, True):
        call(tensor([S0, R], 4), value)
    assert counts(dispatcher, "by_hand") == (2, 6, 6)


def test_zeros_and_sizes_have_plans_of_their_own(dispatcher: OpDispatcher) -> None:
    class Size(NamedTuple):
        rows: int
        columns: int

    register_op("along", Along, signature="input, dim, scale=1.0")
    function = Recorder(lambda x, dim, scale=1.0: ops.neg(x))
    call = caller(dispatcher, "along", function)
    sent = [0.0, -0.0, 1.0, 0.0, -0.0, Size(1, 2), (1, 2), Size(1, 2), Size(2, 1)]
    for scale in sent:
        call(tensor([S0, R], 4), 0, scale)
    assert [repr(args[2]) for args, _ in function.calls] == list(map(repr, sent))
    assert len(dispatcher._tables["along"].plans) == 6
    assert counts(dispatcher, "along") == (8, 1, 1)


def test_lists_of_tensors_hit_the_cache(dispatcher: OpDispatcher) -> None:
    register_op("join", Join, signature="tensors, dim=0")
    call = caller(dispatcher, "join", ops.cat)
    for _ in range(3):
        x, y = tensor([S1, R], 2, 4), tensor([S1, R], 3, 4)
        out = call([x, y])
        assert out.shape == (5, 4) and out.layout is x.layout
        assert (out._local.array == ops.cat([x._local, y._local]).array).all()
    call((x, y), dim=0)
    assert counts(dispatcher, "join") == (3, 1, 1)
    call([x, y, x])
    assert counts(dispatcher, "join") == (3, 2, 2)


def test_a_list_that_the_caller_changes_later_is_not_kept(dispatcher: OpDispatcher) -> None:
    register_op("along", Along, signature="input, dim, sizes")
    function = Recorder(lambda x, dim, sizes: ops.neg(x))
    call = caller(dispatcher, "along", function)
    x, sizes = tensor([S0, R], 4), [1, 2]
    call(x, 0, sizes)
    sizes.append(3)
    call(x, 0, [1, 2])
    call(x, 0, sizes)
    assert [args[2] for args, _ in function.calls[1:]] == [[1, 2], [1, 2, 3]]


def test_the_cache_is_bounded_and_drops_the_oldest() -> None:
    dispatcher = OpDispatcher(entries_per_op=3)
    register_op("along", Along, signature="input, dim")
    call = caller(dispatcher, "along", lambda x, dim: ops.neg(x))
    x = tensor([S0, R], 4)
    for dim in (0, 1, 2, 3):
        call(x, dim)
    info = dispatcher.cache_info("along")["along"]
    assert (info.misses, info.entries, info.limit) == (4, 3, 3)
    call(x, 3)
    call(x, 0)
    assert counts(dispatcher, "along") == (1, 5, 3)
    assert len(dispatcher._tables["along"].plans) == 3


def test_the_cache_can_be_cleared(along: Any) -> None:
    call, _, dispatcher = along
    call(tensor([S0, R], 4, 4))
    dispatcher.clear_cache()
    assert counts(dispatcher, "along") == (0, 0, 0)
    call(tensor([S0, R], 4, 4))
    assert counts(dispatcher, "along") == (0, 1, 1)


def test_no_tensor_is_kept_alive(along: Any) -> None:
    import gc
    import weakref

    call, function, _ = along
    x = tensor([S0, R], 4, 4)
    call(x)
    function.calls.clear()
    alive = weakref.ref(x._local)
    del x
    gc.collect()
    assert alive() is None


def test_a_strategy_that_reads_values_is_asked_at_each_call(dispatcher: OpDispatcher) -> None:
    class Shifted(Along):
        def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            bound = self.bind(args, kwargs)
            x = bound["input"]
            return (x.to_local(), ops.neg(bound["dim"].to_local())), {}, [x.layout, 0]

    register_op("shifted", Shifted, signature="input, dim", plain=["dim"])
    function = Recorder(lambda x, shift: ops.neg(x))
    call = caller(dispatcher, "shifted", function)
    for value in (1.0, 2.0):
        call(tensor([S0, R], 4), _scalar(value))
    assert [float(args[1].array) for args, _ in function.calls] == [-1.0, -2.0]
    assert counts(dispatcher, "shifted") == (1, 1, 1)


def _scalar(value: float) -> DTensor:
    return DTensor.from_local(sim.tensor(value), MESH)


def test_a_list_of_numbers_is_no_shorter_list_before_an_operand(dispatcher: OpDispatcher) -> None:
    class Last(DistributedOp):
        preprocess_is_pure = True

        def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            tensor = args[-1][-1] if isinstance(args[-1], list) else args[-1]
            return *to_locals(args, kwargs), [tensor.layout, len(args)]

        def infer_layout(self, cache_values: Sequence[Any]) -> Any:
            return (cache_values[0],), None

        def numbers_are_free(self, specs: Sequence[Any]) -> bool:
            return True

    register_op("last", Last("last"))
    function = Recorder(lambda values, x=None: ops.neg(values[-1] if x is None else x))
    call = caller(dispatcher, "last", function)
    x = tensor([S0, R], 4)
    for _ in range(2):
        call([1.0, 2.0], x)
        call([3.0, x])
    assert [args[0] for args, _ in function.calls] == [[1.0, 2.0], [3.0, x._local]] * 2
    assert counts(dispatcher, "last") == (2, 2, 2)


@pytest.mark.parametrize("free", [False, True])
def test_zeros_in_a_list_of_numbers_are_planned(free: bool, dispatcher: OpDispatcher) -> None:
    class Scaled(DistributedOp):
        preprocess_is_pure = True
        asked = 0

        def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            self.asked += 1
            return *to_locals(args, kwargs), [args[1].layout]

        def infer_layout(self, cache_values: Sequence[Any]) -> Any:
            return (cache_values[0],), None

        def numbers_are_free(self, specs: Sequence[Any]) -> bool:
            return free

    op = Scaled("scaled")
    register_op("scaled", op)
    function = Recorder(lambda values, x: ops.neg(x))
    call = caller(dispatcher, "scaled", function)
    for _ in range(3):
        call([0.0, 1.0], tensor([S0, R], 4))
        call([-0.0, 1.0], tensor([S0, R], 4))
    assert [str(args[0][0]) for args, _ in function.calls] == ["0.0", "-0.0"] * 3
    assert op.asked == (1 if free else 2)


class Second(DistributedOp):
    """Passes its second operand on, or both in the other order."""

    preprocess_is_pure = True

    def __init__(self, op_name: str, both: bool) -> None:
        super().__init__(op_name)
        self.both = both

    def preprocess(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        first, second = args
        local_args = (second.to_local(), first.to_local()) if self.both else (second.to_local(),)
        return local_args, {}, [first.layout, second.layout]

    def infer_layout(self, cache_values: Sequence[Any]) -> Any:
        return (cache_values[0],), None


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_the_plan_of_a_tensor_with_itself_serves_two_tensors(
    both: bool, requires_grad: bool, dispatcher: OpDispatcher
) -> None:
    register_op("second", Second("second", both))
    call = caller(dispatcher, "second", lambda *locals_: ops.sub(*locals_) if both else ops.neg(*locals_))
    x = tensor([S0, R], 4, requires_grad=requires_grad)
    y = tensor([S0, R], 4, requires_grad=requires_grad)
    y._local.array[...] = 7.0
    assert (call(x, x)._local.array == (0 * x._local.array if both else -x._local.array)).all()
    assert (call(x, y)._local.array == (7.0 - x._local.array if both else -7.0)).all()
    assert counts(dispatcher, "second") == (1, 1, 1)


def test_named_tuples_of_tensors_are_lists(dispatcher: OpDispatcher) -> None:
    class Pair(NamedTuple):
        values: Any
        indices: Any

    register_op("join", Join, signature="tensors, dim=0")
    call = caller(dispatcher, "join", ops.cat)
    for _ in range(2):
        pair = Pair(tensor([S1, R], 2, 4), tensor([S1, R], 3, 4))
        assert call(pair).shape == (5, 4)
        assert call(tensors=pair).shape == (5, 4)
    assert counts(dispatcher, "join") == (3, 1, 1)


def test_functions_made_for_one_call_are_not_collected(along: Any) -> None:
    _, _, dispatcher = along
    for _ in range(300):
        caller(dispatcher, "along", lambda input: ops.neg(input))(tensor([S0, R], 4, 4))
    (entry,) = dispatcher._tables["along"].entries.values()
    assert len(entry._impls) <= 64


def test_an_optional_result_is_none_or_a_tensor(dispatcher: OpDispatcher) -> None:
    class Two(Along):
        shapes_follow = True

        def rows(self, cache_values: Sequence[Any]) -> Any:
            return [row("S(0) -> S(0) S(0)")]

        def output_ndims(self, cache_values: Sequence[Any]) -> Any:
            return (1, 1)

    register_op("two", Two, signature="input, dim=0")
    answers = iter([False, True, False])
    call = caller(dispatcher, "two", lambda x: (ops.neg(x), ops.neg(x) if next(answers) else None))
    for wanted in (False, True, False):
        first, second = call(tensor([S0, R], 4))
        assert first.shape == (4,) and (second is not None) == wanted
        assert second is None or second.shape == (4,)


def test_the_gradient_state_is_part_of_the_key(dispatcher: OpDispatcher) -> None:
    register_op("plus", Sum, signature="input, other")
    call = caller(dispatcher, "plus", ops.add)
    out = [call(tensor([R, R], 4, varying=varying), 1) for varying in (0, 1, 2, 0)]
    assert [t._spec.varying for t in out] == [0, 1, 2, 0]
    assert counts(dispatcher, "plus") == (1, 3, 3)


def test_threads_share_a_dispatcher() -> None:
    dispatcher = OpDispatcher(entries_per_op=8)
    register_op("along", Along, signature="input, dim")
    failures: list[BaseException] = []

    def work() -> None:
        call = caller(dispatcher, "along", lambda x, dim: ops.neg(x))
        x = tensor([S0, R], 4)
        try:
            for number in range(300):
                assert call(x, number % 12).layout is x.layout
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    info = dispatcher.cache_info("along")["along"]
    assert info.entries <= 8 and info.hits + info.misses <= 1200
