"""How a MindSpore operator is called in the operator registry: the signature tables of ``yaml/names.yaml``.

Primitives take positional arguments alone, their attributes behind the tensors; functions and methods take
keywords too, and leave out defaults. Each form is bound to the parameters of the one operation behind it, and
the operation is called in its own form, so that equivalent calls share a cache entry (RFC section 7.1).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from importlib.resources import files
from typing import Any, NamedTuple, TypeAlias

from hyper_dispatch import Signature, find_op
from hyper_dispatch.yaml_text import read_yaml
from hyper_ops import load_ops
from hyper_platform_ms.local_ops import MindSporeOps

__all__ = ["Form", "Known", "describe", "functions"]

Call: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
_FORM = re.compile(r"(\w+)\((.*)\)")


class Known(NamedTuple):
    """An operator as the dispatcher sees it.

    Attributes:
        name: The name in the operator registry.
        func: What runs on local tensors.
        arrange: Puts the arguments of this form into those of the operation; ``None`` if they are alike.
    """

    name: str
    func: Callable[..., Any]
    arrange: Callable[[tuple[Any, ...], dict[str, Any]], Call] | None


class Form:
    """One way to call an operation: the parameters in their own order.

    Attributes:
        op: The operation.
        signature: The parameters of the form, under the names of the operation.
    """

    def __init__(self, text: str) -> None:
        """Read ``"op(parameters)"``.

        Raises:
            ValueError: If the text cannot be read, or names no operation.
        """
        found = _FORM.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"{text!r} is no form: write 'operation(parameters)'")
        self.op, parameters = found.groups()
        self.signature = Signature(parameters, self.op)
        operation = find_op(self.op)
        target = operation.signature if operation is not None else None
        if target is None:
            target = self.signature
        self._own = [
            (name, target.keyword_only(name) and name != target.varargs, name == target.varargs)
            for name in target.names
            if name in self.signature.names
        ]
        # Behind a parameter that this form does not have, the others are given by keyword.
        missing = [name for name in target.names if name not in self.signature.names]
        first_missing = min((target.names.index(name) for name in missing), default=len(target.names))
        self._own = [
            (name, by_keyword or target.names.index(name) > first_missing, spread)
            for name, by_keyword, spread in self._own
        ]
        self._beyond = [name for name in self.signature.names if name not in target.names]

    def arrange(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """The call in the form of the operation.

        Raises:
            NotImplementedError: If it says more than the operation can.
        """
        bound = self.signature.bind(args, kwargs)
        for name in self._beyond:
            if bound[name] not in _table()["only"][name]:
                raise NotImplementedError(f"{self.op} of a DTensor does not take {name}={bound[name]!r}")
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for name, by_keyword, spread in self._own:
            value = bound[name]
            if spread:
                positional += value if isinstance(value, (tuple, list)) else (value,)
            elif by_keyword:
                named[name] = value
            else:
                positional.append(value)
        return tuple(positional), named


@functools.cache
def _table() -> dict[str, Any]:
    load_ops()  # a form is read against the operation it means
    text = (files("hyper_platform_ms") / "yaml" / "names.yaml").read_text(encoding="utf-8")
    table: dict[str, Any] = read_yaml(text)
    return table


@functools.cache
def _same() -> dict[str, str]:
    return {name: op for op, names in _table()["same"].items() for name in names}


_ops = MindSporeOps()


@functools.cache
def describe(name: str, is_method: bool) -> Known | None:
    """The registry's view of an operator; ``None`` if the table does not have its name.

    Args:
        name: MindSpore's name.
        is_method: Whether it was called as a method of a tensor: a few names then have another order.
    """
    forms = _table()["forms"]
    text = forms.get(f"Tensor.{name}") if is_method else None
    text = text or forms.get(name)
    if text is not None:
        form = Form(text)
        return Known(form.op, getattr(_ops, form.op), form.arrange)
    op = _same().get(name)
    return None if op is None else Known(op, getattr(_ops, op), None)


def functions() -> dict[str, Known]:
    """The Python functions that are one operation, by their full names."""
    forms = {name: Form(text) for name, text in _table()["functions"].items()}
    return {name: Known(form.op, getattr(_ops, form.op), form.arrange) for name, form in forms.items()}
