"""What is known of every registered operation: what ``docs/operators.md`` and ``hyper-parallel ops`` show.

The rule is the docstring of the family's module; the layouts are what the strategy answers for the example
call of its registration (`example_calls`); names, and what is compared with one device, are what each
platform adapter says in its ``operators.yaml``.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import yaml

from hyper_dispatch import RegistryError, find_op, op_names
from hyper_dispatch.yaml_text import read_yaml
from hyper_dtensor.platform import ENTRY_POINT_GROUP
from hyper_ops import FAMILIES, load_ops
from hyper_ops.compact_rows import compact
from hyper_ops.example_calls import accepted_rows, example_call

__all__ = ["Facts", "Operator", "catalogue", "installed_facts", "read_facts", "rule_of"]

FACTS_FILE: Final = "operators.yaml"
OTHERS: Final = "others"
"""The family of what this package does not register: the user's own operations."""


@dataclass(frozen=True)
class Facts:
    """What a platform adapter says of an operation.

    Attributes:
        names: How its framework spells it.
        compared: What samples compare with one device in every layout: ``gradient`` (and value), ``value`` or
            nothing.
    """

    names: tuple[str, ...] = ()
    compared: str = ""


@dataclass(frozen=True)
class Operator:
    """A registered operation.

    Attributes:
        name: Its name in the registry.
        family: The module whose rule it follows; ``others`` for the user's own.
        strategy: The class that lays it out; empty if it runs on local tensors and gives a plain result.
        algebra: How it relates to sums, where its family asks.
        call: The arguments of an example call, or None.
        on_platforms: By name of the platform, what its adapter says.
    """

    name: str
    family: str
    strategy: str
    algebra: str
    call: str | None
    on_platforms: Mapping[str, Facts]

    @functools.cached_property
    def layouts(self) -> tuple[str, ...]:
        """The rows that the example call is accepted in, in short: ``S(0) R -> S(0)``. Empty without one."""
        return () if self.call is None else compact(accepted_rows(self.name, self.call))


def catalogue(facts: Mapping[str, Mapping[str, Facts]]) -> list[Operator]:
    """Every registered operation, the user's own included, by family.

    Args:
        facts: By name of a platform what its adapter says of operations: `installed_facts`, or `read_facts`.

    Raises:
        RegistryError: If a registration is wrong.
    """
    load_ops()
    own = {name: (family, entry) for family in FAMILIES for name, entry in _entries(family)}
    operators = []
    for name in (*own, *(name for name in op_names() if name not in own)):
        family, algebra = own.get(name, (OTHERS, ""))
        op = find_op(name)
        said = {platform: of_ops.get(name, Facts()) for platform, of_ops in facts.items()}
        # Of the user's own a call is not guessed: what their strategies ask of tensors is not known.
        has_call = name in own or (op is not None and op.example is not None)
        call = example_call(name) if has_call else None
        strategy = "" if op is None else type(op).__name__
        operators.append(Operator(name, family, strategy, algebra, call, said))
    return operators


def rule_of(operator: Operator) -> str:
    """The rule that an operation follows, in the words of the module that states it."""
    if operator.family != OTHERS:
        return inspect.getdoc(importlib.import_module(f"hyper_ops.{operator.family}")) or ""
    op = find_op(operator.name)
    if op is None:
        return "It runs on the local tensors, and its result is not distributed."
    module = inspect.getmodule(type(op))
    return inspect.getdoc(type(op)) or inspect.getdoc(module) or f"See {type(op).__module__}."


def installed_facts() -> dict[str, dict[str, Facts]]:
    """What the installed platform adapters say, by platform. None of them is imported."""
    found = {}
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name):
        # A package at the top is found without running any of it.
        spec = find_spec(point.module.partition(".")[0])
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            found[point.name] = read_facts(Path(folder))
    return found


def read_facts(package: Path) -> dict[str, Facts]:
    """What an adapter's package folder says in its ``operators.yaml``; nothing if it has none.

    Raises:
        RegistryError: If the file is not as it must be.
    """
    path = package / FACTS_FILE
    if not path.is_file():
        return {}
    try:
        content: dict[str, dict[str, Any]] = read_yaml(path.read_text(encoding="utf-8"))
        return {
            name: Facts(tuple(said.get("names", ())), str(said.get("compared", "")))
            for name, said in content.items()
        }
    except (yaml.YAMLError, AttributeError, TypeError) as error:
        raise RegistryError(
            f"{path}: each line must be 'operator: {{names: [...], compared: ...}}': {error}"
        ) from None


def _entries(family: str) -> Sequence[tuple[str, str]]:
    """Names, aliases included, and algebras of a family's YAML file."""
    content = read_yaml((files("hyper_ops") / "yaml" / f"{family}.yaml").read_text(encoding="utf-8"))
    entries = content["ops"].items()
    return [
        (each, entry.get("algebra", ""))
        for name, entry in entries
        for each in sorted((name, *entry.get("aliases", ())))
    ]
