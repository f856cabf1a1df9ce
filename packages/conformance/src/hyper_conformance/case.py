"""Cases: what a platform must do, each a function that every rank of a world runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

__all__ = ["CASES", "MILESTONES", "Case", "case"]

MILESTONES: Final = {
    1: "processes, tensors, collectives",
    2: "gradients and dispatch",
    3: "modules and styles",
}

Body: TypeAlias = Callable[..., None]


@dataclass(frozen=True)
class Case:
    """One thing that a platform must do.

    Attributes:
        name: ``chapter.what`` or ``chapter.what[variant]``; skips and ``-k`` name it.
        milestone: Key of ``MILESTONES``.
        ranks: World sizes in which it runs.
        body: Called as ``body(here, *arguments)`` on every rank; raises if the platform does not do it.
        arguments: What the variant adds.
        dtype: The dtype that the platform must have for this case to apply; ``None`` for any platform.
        fails: What the error says that the ranks must end with; ``None`` for a case that must pass on them.
    """

    name: str
    milestone: int
    ranks: tuple[int, ...]
    body: Body
    arguments: tuple[Any, ...] = ()
    dtype: str | None = None
    fails: str | None = None

    @property
    def summary(self) -> str:
        """The first line of the body's docstring."""
        return (self.body.__doc__ or "").strip().partition("\n")[0]


CASES: Final[dict[str, Case]] = {}
"""All cases by name, in the order of the milestones; filled by ``load_cases()``."""


def case(
    milestone: int,
    *,
    ranks: Sequence[int] = (2, 4),
    over: Mapping[str, tuple[Any, ...]] | None = None,
    dtypes: Sequence[str] | None = None,
    fails: str | None = None,
) -> Callable[[Body], Body]:
    """Register the decorated function as a case, or as one per variant.

    Args:
        milestone: The milestone it belongs to.
        ranks: World sizes in which it runs.
        over: Variants: what stands in the brackets of the name, and the arguments that it adds.
        dtypes: A further variant per dtype, the last argument; a platform runs those of its own dtypes.
        fails: What the error says that the ranks must end with, within seconds.
    """

    def register(body: Body) -> Body:
        chapter = body.__module__.rpartition(".")[2]
        for variant, arguments in (over or {"": ()}).items():
            for dtype in dtypes or (None,):
                inside = " ".join(part for part in (variant, dtype) if part)
                name = f"{chapter}.{body.__name__}" + (f"[{inside}]" if inside else "")
                assert name not in CASES, f"two cases are called {name}"
                every = arguments if dtype is None else (*arguments, dtype)
                CASES[name] = Case(name, milestone, tuple(ranks), body, every, dtype, fails)
        return body

    return register
