"""Finding the modules that the names of a plan mean (styles RFC section 4.2)."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from hyper_dtensor import get_platform
from hyper_dtensor.platform import modules_below
from hyper_tensor_parallel.style import Module, ParallelStyle

__all__ = ["Match", "match_plan"]


class Match(NamedTuple):
    """A module that a plan entry means.

    Attributes:
        name: Its fully qualified name.
        parent: The module that holds it; ``None`` for the root.
        child_name: Its name in the parent.
        module: The module.
        style: The style to apply.
    """

    name: str
    parent: Any
    child_name: str
    module: Module
    style: ParallelStyle


def match_plan(root: Module, plan: Mapping[str, ParallelStyle]) -> list[Match]:
    """The modules of ``root`` that the plan means, in the order of the plan.

    A module that the tree holds under several names counts once per style.

    Raises:
        TypeError: For a key that is no text.
        ValueError: For an empty name or one with an empty part.
    """
    found = []
    seen = set()
    for name, style in plan.items():
        if not isinstance(name, str):
            raise TypeError(f"the keys of a plan are names of modules: write {str(name)!r}, not {name!r}")
        atoms = name.split(".")
        if not all(atoms):
            raise ValueError(
                f"{name!r} is not a module name: it has an empty part. Name modules below the root, such as "
                "'layers.*.attn.q_proj'; pass the style itself instead of a dict for the root"
            )
        matches = [
            Match(".".join(path), parent, path[-1], module, style)
            for path, parent, module in _descend(root, atoms, ())
        ]
        if not matches:
            near = difflib.get_close_matches(
                name, [n for n, _ in modules_below(get_platform(), root) if n], n=2
            )
            hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
            warnings.warn(
                f"parallelize_plan: no module matches {name!r}, it is skipped{hint}",
                UserWarning,
                stacklevel=3,
            )
        for match in matches:
            if (id(match.module), id(match.style)) not in seen:
                seen.add((id(match.module), id(match.style)))
                found.append(match)
    return found


def _descend(
    module: Module, atoms: list[str], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Module, Module]]:
    for name, child in get_platform().children(module).items():
        if fnmatchcase(name, atoms[0]):
            if len(atoms) == 1:
                yield (*path, name), module, child
            else:
                yield from _descend(child, atoms[1:], (*path, name))
