"""Call signatures written as text, and a bind that costs about one Python call.

`"input, dim|axis=None, keepdim|keepdims=False, *, dtype=None"`: names with `|` are aliases of one
parameter (frameworks spell them differently), a lone `*` starts the keyword-only parameters, and
`*name` takes the remaining positional arguments.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_NO_DEFAULT = object()


class Signature:
    """The parameters of one operation.

    Attributes:
        text: The text it was read from.
        names: Canonical parameter names in order.
        varargs: Name of the parameter that takes the remaining positional arguments, or None.
    """

    __slots__ = (
        "_aliases",
        "_bind",
        "_first_keyword_only",
        "_optional",
        "_position",
        "names",
        "text",
        "varargs",
    )

    def __init__(self, text: str, op_name: str = "operation") -> None:
        """Read a signature.

        Args:
            text: The parameters, as in a Python `def`.
            op_name: Name that binding errors show.

        Raises:
            ValueError: If the text cannot be read; the message names the parameter.
        """
        self.text = text
        varargs: str | None = None
        self._aliases: dict[str, str] = {}
        names: list[str] = []
        source: list[str] = []
        defaults: dict[str, Any] = {}
        first_keyword_only: int | None = None
        for part in _split(text):
            if part == "*":
                first_keyword_only = len(names)
                if varargs is None:
                    source.append("*")
                continue
            star = part.startswith("*")
            spelled, equals, default = part.lstrip("*").partition("=")
            name, *aliases = (_identifier(piece.strip(), text) for piece in spelled.split("|"))
            if name in names or any(alias in self._aliases for alias in aliases):
                raise ValueError(f"parameter {name!r} is named twice in signature {text!r}")
            names.append(name)
            self._aliases.update(dict.fromkeys(aliases, name))
            if star:
                varargs = name
                first_keyword_only = len(names)
            source.append(("*" if star else "") + name)
            if equals:
                defaults[f"_default_{name}"] = _literal(default.strip(), name, text)
                source[-1] += f"=_default_{name}"
        self.names = tuple(names)
        self.varargs = varargs
        self._first_keyword_only = len(names) if first_keyword_only is None else first_keyword_only
        self._optional = {name.removeprefix("_default_") for name in defaults}
        self._position = {name: index for index, name in enumerate(names)}
        self._bind = _compile(op_name, names, source, defaults, text)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Map a call onto parameter names, defaults filled in, in the order of the signature.

        Raises:
            TypeError: As Python itself does for a call that does not fit, naming the operation.
        """
        if kwargs and self._aliases:
            kwargs = self.canonical(kwargs)
        return self._bind(*args, **kwargs)

    def canonical(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments under their canonical names.

        Raises:
            TypeError: If one parameter is given under two spellings.
        """
        renamed: dict[str, Any] = {}
        for name, value in kwargs.items():
            target = self._aliases.get(name, name)
            if target in renamed:
                raise TypeError(f"parameter {target!r} is given twice (it is also spelled {name!r})")
            renamed[target] = value
        return renamed

    def keyword_order(self, names: Sequence[str]) -> list[str]:
        """Keyword names in the order of their parameters, unknown ones last."""
        end = len(self.names)

        def position(name: str) -> int:
            return self._position.get(self._aliases.get(name, name), end)

        return sorted(names, key=position)

    def keyword_only(self, name: str) -> bool:
        """Whether a parameter can be given by keyword only."""
        return self._position[name] >= self._first_keyword_only

    def is_required(self, name: str) -> bool:
        """Whether a call must give a parameter: it has no default and does not take what remains."""
        return name not in self._optional and name != self.varargs

    def name_of(self, position: int) -> str:
        """Name of the parameter that positional argument number `position` goes to."""
        varargs = self.varargs
        if varargs is not None and position >= self._position[varargs]:
            return f"{varargs}[{position - self._position[varargs]}]"
        return self.names[position] if position < len(self.names) else f"args[{position}]"

    def __repr__(self) -> str:
        return f"Signature({self.text!r})"


def _split(text: str) -> list[str]:
    """Cut at commas that are not inside brackets or quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for index, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and not depth:
            parts.append(text[start:index].strip())
            start = index + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def _identifier(name: str, text: str) -> str:
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"{name!r} is no parameter name in signature {text!r}")
    return name


def _literal(default: str, name: str, text: str) -> Any:
    try:
        return ast.literal_eval(default)
    except (ValueError, SyntaxError):
        raise ValueError(
            f"the default {default!r} of parameter {name!r} is no Python literal in signature {text!r}"
        ) from None


def _compile(
    op_name: str, names: list[str], source: list[str], defaults: dict[str, Any], text: str
) -> Callable[..., dict[str, Any]]:
    """A function with these parameters that returns them as a dict: Python's own binding is the fast one.

    Only checked identifiers enter the source; default values are passed by reference.
    """
    # Dictionary displays keep their order, which is the order of the signature.
    display = ", ".join(f"{name!r}: {name}" for name in names)
    try:
        bind: Any = eval(f"lambda {', '.join(source)}: {{{display}}}", dict(defaults))
    except SyntaxError as error:
        raise ValueError(f"signature {text!r} cannot be read: {error.msg}") from None
    bind.__name__ = bind.__qualname__ = op_name
    return bind  # type: ignore[no-any-return]
