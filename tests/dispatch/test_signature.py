"""Covers signature.py."""

from __future__ import annotations

from typing import Any

import pytest

from hyper_dispatch import Signature

SUM = Signature("input, dim|axis=None, keepdim|keepdims=False, *, dtype=None", "sum")


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (("x", 1, True), {}),
        (("x", 1), {"keepdim": True}),
        (("x",), {"axis": 1, "keepdims": True}),
        ((), {"input": "x", "dim": 1, "keepdim": True, "dtype": None}),
    ],
)
def test_equivalent_calls_bind_alike(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    bound = SUM.bind(args, kwargs)
    assert bound == {"input": "x", "dim": 1, "keepdim": True, "dtype": None}
    assert list(bound) == list(SUM.names)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "sum() missing 1 required positional argument: 'input'"),
        (("x",), {"dims": 1}, "sum() got an unexpected keyword argument 'dims'"),
        (("x", 1, False, "f32"), {}, "sum() takes from 1 to 3 positional arguments but 4 were given"),
        (("x",), {"dim": 1, "axis": 1}, "parameter 'dim' is given twice (it is also spelled 'axis')"),
    ],
)
def test_a_call_that_does_not_fit_names_the_operation(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError) as caught:
        SUM.bind(args, kwargs)
    assert str(caught.value) == message


def test_varargs_and_defaults_of_any_literal() -> None:
    signature = Signature("input, *dims, mode='a,b', sizes=(1, 2)")
    assert signature.bind(("x", 1, 2), {}) == {"input": "x", "dims": (1, 2), "mode": "a,b", "sizes": (1, 2)}
    assert [signature.name_of(position) for position in range(3)] == ["input", "dims[0]", "dims[1]"]
    assert signature.keyword_only("mode") and not signature.keyword_only("dims")


def test_keyword_only_parameters() -> None:
    assert SUM.keyword_only("dtype") and not SUM.keyword_only("keepdim")
    assert not Signature("a, b").keyword_only("b")


def test_keywords_in_the_order_of_their_parameters() -> None:
    assert SUM.keyword_order(["unknown", "dtype", "axis"]) == ["axis", "dtype", "unknown"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a, a", "parameter 'a' is named twice in signature 'a, a'"),
        ("a, 1b", "'1b' is no parameter name in signature 'a, 1b'"),
        ("a, lambda", "'lambda' is no parameter name in signature 'a, lambda'"),
        ("a=b", "the default 'b' of parameter 'a' is no Python literal in signature 'a=b'"),
        ("a=1, b", "signature 'a=1, b' cannot be read"),
    ],
)
def test_what_is_no_signature_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        Signature(text)
