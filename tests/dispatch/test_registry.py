"""Covers registry.py: YAML, calls, the user's directories and entry points."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path
from typing import Any

import pytest

from hyper_dispatch import (
    DistributedOp,
    RegistryError,
    find_op,
    load_yaml,
    load_yaml_dir,
    op_names,
    register_op,
    register_strategy,
    registry,
)
from tests.dispatch.examples import Product, Sum


class Configured(DistributedOp):
    algebras = frozenset({"linear", "none"})

    def __init__(self, op_name: str, equation: str = "") -> None:
        super().__init__(op_name)
        self.equation = equation


@pytest.fixture(autouse=True)
def known_strategies() -> None:
    register_strategy("product")(Product)
    register_strategy("sum")(Sum)
    register_strategy("configured")(Configured)


def write(folder: Path, text: str, name: str = "ops.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_entries_become_configured_instances(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        strategy: configured
        ops:
          blend: {signature: "input, other|second, *, alpha=1", algebra: linear, plain: [other], inplace: true,
                  random: true, view_like: true, options: {equation: "mk,kn->mn"}, aliases: [mix, stir]}
          plus: {strategy: sum}
          width: {local: true, aliases: [height]}
        """,
    )
    assert load_yaml(path) == ("blend", "mix", "stir", "plus", "width", "height")
    assert op_names() == ("blend", "height", "mix", "plus", "stir", "width")
    mix = find_op("mix")
    assert isinstance(mix, Configured)
    assert (mix.op_name, mix.equation, mix.algebra) == ("mix", "mk,kn->mn", "linear")
    assert mix.inplace and mix.random and mix.view_like and mix.plain_operands == {"other"}
    assert mix.signature is not None and mix.signature.bind((1,), {"second": 2})["other"] == 2
    assert isinstance(find_op("plus"), Sum)
    assert registry.is_local("height") and find_op("height") is None


def test_the_example_of_an_entry_or_of_its_file(tmp_path: Path) -> None:
    load_yaml(
        write(
            tmp_path,
            """
            strategy: sum
            example: "x[4,6]"
            ops:
              of_the_file: {}
              own: {example: "x[4], dim=0", aliases: [shared]}
              none: {example: ""}
              width: {local: true}
            """,
        )
    )
    load_yaml(write(tmp_path, "ops: {silent: {strategy: sum}}", "silent.yaml"))
    register_op("called", "sum", example="x[2]")
    names = ("of_the_file", "own", "shared", "none", "silent", "called")
    examples = {name: op.example for name in names if (op := find_op(name)) is not None}
    assert examples == dict(
        zip(names, ("x[4,6]", "x[4], dim=0", "x[4], dim=0", "", None, "x[2]"), strict=True)
    )
    assert registry.is_local("width")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n- b", "the file must be a mapping with the keys example, ops, strategy"),
        ("just text", "the file must be a mapping with the keys example, ops, strategy"),
        ("ops: {a: {strategy: sum", "this is no valid YAML"),
        ("opps: {}", "unknown key 'opps'; allowed keys: example, ops, strategy"),
        ("ops: [a]", "key 'ops' must be a dict, got list (['a'])"),
        ("ops: {a: sum}", "entry 'a': an entry maps a name to a mapping with keys among algebra, aliases"),
        ("ops: {1: {strategy: sum}}", "entry 1: an entry maps a name"),
        (
            "ops: {a: {strategy: sum, inplce: true}}",
            "entry 'a': unknown key 'inplce'; allowed keys: algebra, aliases, example, inplace, local, "
            "options, plain, random, signature, strategy, view_like",
        ),
        (
            "ops: {a: {strategy: sums}}",
            "entry 'a': key 'strategy' is 'sums'; known strategies: configured, product",
        ),
        ("ops: {a: {}}", "entry 'a': key 'strategy' is None; known strategies: configured, product, sum"),
        (
            "ops: {a: {strategy: sum, inplace: 'yes'}}",
            "entry 'a': key 'inplace' must be a bool, got str ('yes')",
        ),
        (
            "ops: {a: {strategy: sum, example: [4, 6]}}",
            "entry 'a': key 'example' must be a str, got list ([4, 6])",
        ),
        (
            "ops: {a: {strategy: sum, example: null}}",
            "entry 'a': key 'example' must be a str, got NoneType (None)",
        ),
        ("{example: {x: 4}, ops: {}}", "key 'example' must be a str, got dict ({'x': 4})"),
        (
            "ops: {a: {local: true, example: 'x[4]'}}",
            "entry 'a': a local entry takes no other key than aliases, got example",
        ),
        (
            "ops: {a: {strategy: sum, aliases: [1]}}",
            "entry 'a': key 'aliases' must be a list of names, got [1]",
        ),
        (
            "ops: {a: {strategy: sum, signature: 'x, x'}}",
            "entry 'a': key 'signature': parameter 'x' is named twice",
        ),
        (
            "ops: {a: {strategy: configured, algebra: liner}}",
            "entry 'a': key 'algebra' is 'liner'; Configured knows linear, none",
        ),
        (
            "ops: {a: {strategy: sum, options: {equation: x}}}",
            "entry 'a': key 'options' does not fit Sum: DistributedOp.__init__() got an unexpected keyword argument",
        ),
        (
            "ops: {a: {strategy: sum, signature: 'x', plain: [y]}}",
            "entry 'a': key 'plain' names y, not in the signature",
        ),
        (
            "ops: {a: {local: true, inplace: true}}",
            "entry 'a': a local entry takes no other key than aliases, got inplace",
        ),
        ("ops: {a: {strategy: sum}, a: {strategy: sum}}", "key 'a' is given twice"),
        ("ops: {a: {strategy: sum, aliases: [a]}}", "entry 'a': operation 'a' is registered already, by"),
        ("ops: {a: {strategy: !!python/name:os.system }}", "this is no valid YAML"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(RegistryError) as caught:
        load_yaml(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_a_name_is_registered_once(tmp_path: Path) -> None:
    first = write(tmp_path, "ops: {a: {strategy: sum}}", "first.yaml")
    second = write(tmp_path, "ops: {a: {strategy: product}}", "second.yaml")
    load_yaml(first)
    with pytest.raises(RegistryError) as caught:
        load_yaml(second)
    assert (
        str(caught.value)
        == f"{second}: entry 'a': operation 'a' is registered already, by {first}: entry 'a'"
    )
    assert isinstance(find_op("a"), Sum)


def test_by_call() -> None:
    register_op("a", "sum", signature="input, other", aliases=["b"])
    register_op("c", Configured, options={"equation": "x"})
    ready = Configured("d")
    register_op("d", ready)
    assert isinstance(find_op("b"), Sum) and find_op("d") is ready
    with pytest.raises(RegistryError, match=r"register_op\('e'\): key 'strategy' is 'nothing'"):
        register_op("e", "nothing")
    with pytest.raises(RegistryError, match=r"register_op\('e'\): unknown key 'signatur'"):
        register_op("e", "sum", signatur="x")
    with pytest.raises(RegistryError, match="a ready strategy takes no entry keys, got signature"):
        register_op("e", Configured("e"), signature="x")
    with pytest.raises(RegistryError, match=r"operation 'a' is registered already, by register_op\('a'\)"):
        register_op("a", "sum")


def test_a_strategy_key_belongs_to_one_class() -> None:
    register_strategy("sum")(Sum)
    with pytest.raises(RegistryError, match=r"strategy key 'sum' is taken by tests\.dispatch\.examples\.Sum"):
        register_strategy("sum")(Product)


def test_the_users_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, f"ops: {{from_{folder}: {{strategy: sum}}}}")
    monkeypatch.setenv(
        "HYPER_PARALLEL_OPS_YAML_DIR", os.pathsep.join([str(tmp_path / "one"), str(tmp_path / "two")])
    )
    monkeypatch.setattr(registry, "_extended", False)
    assert isinstance(find_op("from_one"), Sum) and isinstance(find_op("from_two"), Sum)
    with pytest.raises(RegistryError, match="there is no such directory of operator YAML files"):
        load_yaml_dir(tmp_path / "three")


class Point:
    def __init__(self, name: str, loaded: Any) -> None:
        self.name = name
        self.loaded = loaded

    def load(self) -> Any:
        if isinstance(self.loaded, Exception):
            raise self.loaded
        return self.loaded


def test_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = {"hyper_parallel.ops": [Point("mine", lambda: register_op("mine", "sum"))]}
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: groups[group])
    monkeypatch.setattr(registry, "_extended", False)
    assert isinstance(find_op("mine"), Sum)


def test_a_broken_entry_point_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = [Point("broken", ImportError("no such module"))]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: broken)
    monkeypatch.setattr(registry, "_extended", False)
    with pytest.raises(RegistryError) as caught:
        find_op("mine")
    assert str(caught.value) == "entry point 'broken' of group 'hyper_parallel.ops': no such module"
