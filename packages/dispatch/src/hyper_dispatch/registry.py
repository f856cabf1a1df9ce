"""Which strategy serves which operation: registration by YAML, by entry point or by call.

A YAML file maps operation names to entries::

    strategy: elementwise            # default strategy key of the file
    example: "x[4,6]"                # default example of the file
    ops:
      add:  {signature: "input, other, *, alpha=1", algebra: additive}
      mm:
        strategy: matmul
        signature: "input, mat2"
        options: {equation: "mk,kn->mn"}
        example: "x[4,6], y[6,8]"
      is_floating_point: {local: true}

An example is a call from which the table of accepted layouts is made (`DistributedOp.example`).
Strategies are named by the key under which `register_strategy` put them; YAML cannot name a class.
"""

from __future__ import annotations

import importlib.metadata
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

from hyper_dispatch.distributed_op import DistributedOp
from hyper_dispatch.errors import RegistryError
from hyper_dispatch.signature import Signature
from hyper_dispatch.yaml_text import read_yaml

YAML_DIR_VARIABLE: Final = "HYPER_PARALLEL_OPS_YAML_DIR"
ENTRY_POINT_GROUP: Final = "hyper_parallel.ops"

_FLAGS: Final = ("inplace", "random", "view_like")
_KEYS: Final = {
    "strategy": str,
    "signature": str,
    "algebra": str,
    **dict.fromkeys(_FLAGS, bool),
    "plain": list,
    "options": dict,
    "aliases": list,
    "local": bool,
    "example": str,
}
_FILE_DEFAULTS: Final = ("strategy", "example")
_FILE_KEYS: Final = {**dict.fromkeys(_FILE_DEFAULTS, str), "ops": dict}

StrategyClass = TypeVar("StrategyClass", bound=type[DistributedOp])

_lock = threading.RLock()
_strategies: dict[str, type[DistributedOp]] = {}
_ops: dict[str, DistributedOp] = {}
_local: dict[str, str] = {}
_origin: dict[str, str] = {}
_extended = False


def register_strategy(key: str) -> Callable[[StrategyClass], StrategyClass]:
    """Class decorator: make a strategy known to YAML under `key`.

    Raises:
        RegistryError: If another class has the key.
    """

    def register(strategy: StrategyClass) -> StrategyClass:
        known = _strategies.setdefault(key, strategy)
        if known is not strategy and _identity(known) != _identity(strategy):
            raise RegistryError(
                f"strategy key {key!r} is taken by {known.__module__}.{known.__qualname__}; "
                "choose another key"
            )
        _strategies[key] = strategy
        return strategy

    return register


def register_op(name: str, strategy: str | type[DistributedOp] | DistributedOp, **entry: Any) -> None:
    """Register one operation.

    Args:
        name: Canonical name of the operation.
        strategy: A strategy's key, its class, or a ready instance (which then takes no `entry`).
        **entry: The entry's keys, as in YAML: signature, algebra, inplace, random, view_like, plain,
            options, aliases, example.

    Raises:
        RegistryError: If the name is taken, or an entry key or its value is wrong.
    """
    where = f"register_op({name!r})"
    if isinstance(strategy, DistributedOp):
        if entry:
            raise RegistryError(f"{where}: a ready strategy takes no entry keys, got {_list(entry)}")
        with _lock:
            _add(name, strategy, where)
        return
    if isinstance(strategy, str):
        _register_entry(name, {"strategy": strategy, **entry}, None, where)
    else:
        _register_entry(name, entry, strategy, where)


def load_yaml(path: str | Path) -> tuple[str, ...]:
    """Register the operations of one YAML file.

    Returns:
        The registered names, aliases included.

    Raises:
        RegistryError: If the file is no mapping, or an entry is wrong (which is then not registered).
    """
    path = Path(path)
    try:
        content = read_yaml(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise RegistryError(f"{path}: this is no valid YAML: {error}") from None
    if not isinstance(content, Mapping):
        raise RegistryError(f"{path}: the file must be a mapping with the keys {_list(_FILE_KEYS)}")
    _check_keys(content, _FILE_KEYS, f"{path}")
    defaults = {key: content[key] for key in _FILE_DEFAULTS if key in content}
    names: list[str] = []
    for name, entry in content.get("ops", {}).items():
        where = f"{path}: entry {name!r}"
        if not isinstance(name, str) or not isinstance(entry, Mapping):
            raise RegistryError(f"{where}: an entry maps a name to a mapping with keys among {_list(_KEYS)}")
        own = entry if entry.get("local") else {**defaults, **entry}
        names += _register_entry(name, own, None, where)
    return tuple(names)


def load_yaml_dir(directory: str | Path) -> tuple[str, ...]:
    """Register every `*.yaml` of a directory, in the order of their names.

    Raises:
        RegistryError: If the directory does not exist, or as `load_yaml`.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise RegistryError(f"{directory}: there is no such directory of operator YAML files")
    return tuple(name for path in sorted(directory.glob("*.yaml")) for name in load_yaml(path))


def load_extensions() -> None:
    """Load the entry points of group `hyper_parallel.ops`, then the user's YAML directories. Once.

    An entry point names a callable without parameters that registers strategies and operations.
    `HYPER_PARALLEL_OPS_YAML_DIR` holds directories, separated like a search path.

    Raises:
        RegistryError: If an entry point cannot be loaded, or as `load_yaml_dir`.
    """
    global _extended
    with _lock:
        if _extended:
            return
        # Set first: an entry point that dispatches while it registers must not come back here.
        _extended = True
        for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
            try:
                point.load()()
            except Exception as error:
                where = f"entry point {point.name!r} of group {ENTRY_POINT_GROUP!r}"
                raise RegistryError(f"{where}: {error}") from error
        for directory in filter(None, os.environ.get(YAML_DIR_VARIABLE, "").split(os.pathsep)):
            load_yaml_dir(directory)


def find_op(name: str) -> DistributedOp | None:
    """The strategy instance of an operation, or None. Extensions are loaded first."""
    load_extensions()
    return _ops.get(name)


def is_local(name: str) -> bool:
    """Whether the operation is on the white list: it runs on locals and its result is not wrapped."""
    load_extensions()
    return name in _local


def op_names() -> tuple[str, ...]:
    """All registered names, the white list included, sorted. Extensions are loaded first."""
    load_extensions()
    return tuple(sorted({*_ops, *_local}))


def _register_entry(
    name: str, entry: Mapping[str, Any], strategy: type[DistributedOp] | None, where: str
) -> tuple[str, ...]:
    _check_keys(entry, _KEYS, where)
    names = (name, *_strings(entry, "aliases", where))
    if entry.get("local"):
        extra = set(entry) - {"local", "aliases"}
        if extra:
            raise RegistryError(f"{where}: a local entry takes no other key than aliases, got {_list(extra)}")
        with _lock:
            for each in names:
                _claim(each, where)
                _local[each] = where
        return names
    chosen = strategy or _find_strategy(entry.get("strategy"), where)
    made = [_make(chosen, each, entry, where) for each in names]
    with _lock:
        for op in made:
            _add(op.op_name, op, where)
    return names


def _make(strategy: type[DistributedOp], name: str, entry: Mapping[str, Any], where: str) -> DistributedOp:
    try:
        op = strategy(name, **entry.get("options", {}))
    except (TypeError, ValueError) as error:
        raise RegistryError(f"{where}: key 'options' does not fit {strategy.__name__}: {error}") from error
    if "signature" in entry:
        try:
            op.signature = Signature(entry["signature"], name)
        except ValueError as error:
            raise RegistryError(f"{where}: key 'signature': {error}") from None
    elif op.needs_signature:
        raise RegistryError(
            f"{where}: key 'signature' is missing, which {strategy.__name__} needs: the parameters in order, "
            "for example 'input, other, *, alpha=1'"
        )
    if "algebra" in entry:
        if op.algebras and entry["algebra"] not in op.algebras:
            raise RegistryError(
                f"{where}: key 'algebra' is {entry['algebra']!r}; "
                f"{strategy.__name__} knows {_list(op.algebras)}"
            )
        op.algebra = entry["algebra"]
    for given in (*_FLAGS, "example"):
        if given in entry:
            setattr(op, given, entry[given])
    if "plain" in entry:
        op.plain_operands = frozenset(_strings(entry, "plain", where))
        unknown = sorted(op.plain_operands - set(op.signature.names if op.signature else ()))
        if unknown:
            raise RegistryError(f"{where}: key 'plain' names {_list(unknown)}, not in the signature")
    return op


def _add(name: str, op: DistributedOp, where: str) -> None:
    _claim(name, where)
    _ops[name] = op


def _claim(name: str, where: str) -> None:
    if name in _origin:
        raise RegistryError(f"{where}: operation {name!r} is registered already, by {_origin[name]}")
    _origin[name] = where


def _find_strategy(key: object, where: str) -> type[DistributedOp]:
    found = _strategies.get(key) if isinstance(key, str) else None
    if found is None:
        known = _list(_strategies) or "none"
        raise RegistryError(f"{where}: key 'strategy' is {key!r}; known strategies: {known}")
    return found


def _check_keys(content: Mapping[Any, Any], allowed: Mapping[str, type], where: str) -> None:
    for key, value in content.items():
        if key not in allowed:
            raise RegistryError(f"{where}: unknown key {key!r}; allowed keys: {_list(allowed)}")
        if not isinstance(value, allowed[key]) and not (key == "strategy" and value is None):
            kind, got = allowed[key].__name__, type(value).__name__
            raise RegistryError(f"{where}: key {key!r} must be a {kind}, got {got} ({value!r})")


def _strings(entry: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    values = entry.get(key, ())
    if not all(isinstance(value, str) for value in values):
        raise RegistryError(f"{where}: key {key!r} must be a list of names, got {values!r}")
    return tuple(values)


def _identity(strategy: type) -> tuple[str, str]:
    """A module that is reloaded defines its classes anew: the same name is the same strategy."""
    return strategy.__module__, strategy.__qualname__


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
