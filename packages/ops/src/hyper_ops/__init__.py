"""Operator families: one module and one YAML file each. `load_ops()` registers all of them."""

import functools
import importlib
import threading
from importlib.resources import as_file, files

from hyper_dispatch import load_yaml

FAMILIES = tuple(
    sorted(
        path.name.removesuffix(".yaml")
        for path in (files("hyper_ops") / "yaml").iterdir()
        if path.name.endswith(".yaml")
    )
)
"""The families, by their YAML files. Each is a module of this package, whose strategies its file names."""

_lock = threading.Lock()


def load_ops() -> tuple[str, ...]:
    """Register every operation of this package. Later calls do nothing.

    Returns:
        The registered names.

    Raises:
        RegistryError: If a YAML file of the package is wrong.
    """
    with _lock:
        return _load()


@functools.cache
def _load() -> tuple[str, ...]:
    names: list[str] = []
    with as_file(files("hyper_ops") / "yaml") as folder:
        for family in FAMILIES:
            importlib.import_module(f"hyper_ops.{family}")
            names += load_yaml(folder / f"{family}.yaml")
    return tuple(names)
