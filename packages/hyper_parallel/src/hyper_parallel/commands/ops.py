"""``hyper-parallel ops``: the operators, their rules and the layouts they accept."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Optional

import typer

from hyper_ops.catalogue import Facts, Operator, catalogue, installed_facts, rule_of
from hyper_ops.support_table import layouts_text, support_table
from hyper_parallel.commands.refusal import refusals, refuse
from hyper_parallel.commands.tables import show_table

__all__ = ["ops"]

NEAREST = 3
ALIKE = 0.8
"""How like a name must be: less (conv2d and conj are alike by 0.6) is another word, not a misspelled one."""


def ops(
    name: Annotated[
        Optional[str],  # noqa: UP045  # typer reads annotations at run time
        typer.Argument(metavar="NAME", help="An operator: by its name here or on a platform (torch.add)."),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print all of it as the page docs/operators.md.")
    ] = False,
) -> None:
    """List the operators, or show one of them.

    Of one: its names on each platform, the rule of its family, and the layouts it accepts on one mesh axis.
    """
    if markdown and name is not None:
        raise typer.BadParameter("the page is of all operators: give a NAME or --markdown, not both")
    with refusals():  # wrong registrations of the user's own
        facts = installed_facts()
        if markdown:
            typer.echo(support_table(facts), nl=False)
            return
        operators = catalogue(facts)
        if name is None:
            _list(operators, list(facts))
        else:
            for operator in _named(name, operators):
                _show(operator)


def _list(operators: list[Operator], platforms: list[str]) -> None:
    columns = ["operator", "family", "strategy", *(f"compared on {name}" for name in platforms)]
    rows = [
        [
            operator.name,
            operator.family,
            operator.strategy or "runs on locals",
            *(operator.on_platforms[name].compared or "-" for name in platforms),
        ]
        for operator in operators
    ]
    show_table(columns, rows)
    typer.echo(f"{len(rows)} operators; hyper-parallel ops NAME shows one of them")


def _named(name: str, operators: list[Operator]) -> list[Operator]:
    """The operator of this name, or those that a platform calls so.

    Raises:
        typer.Exit: If there is none; the nearest names are printed.
    """
    exact = [operator for operator in operators if operator.name == name]
    spelled: dict[str, list[Operator]] = {}
    for operator in operators:
        for facts in operator.on_platforms.values():
            for each in facts.names:
                spelled.setdefault(each, []).append(operator)
    # A function is also known by a longer name than the table's: torch.nn.functional.gelu.
    last = name.rpartition(".")[2]
    found = exact or spelled.get(name) or [operator for operator in operators if operator.name == last]
    if found:
        return found
    known = [*(operator.name for operator in operators), *spelled]
    lower = {each.lower(): each for each in reversed(known)}
    near = [lower[each] for each in get_close_matches(name.lower(), lower, NEAREST, ALIKE)]
    hint = f"; near to it: {', '.join(near)}" if near else "; hyper-parallel ops lists them"
    raise refuse(f"there is no operator {name!r}{hint}")


def _show(operator: Operator) -> None:
    layouts = _accepted(operator)  # first: a wrong example ends the command before a part is printed
    what = (
        f"family {operator.family}, strategy {operator.strategy}" if operator.strategy else "runs on locals"
    )
    typer.echo(f"{operator.name}: {what}{f', algebra {operator.algebra}' if operator.algebra else ''}")
    for platform, facts in operator.on_platforms.items():
        if facts == Facts():
            typer.echo(f"  on {platform}: not in the adapter's table (operators.yaml)")
            continue
        names = ", ".join(facts.names) or "no name of its own"
        compared = {"gradient": "value and gradient", "": "nothing, no sample of its own"}
        typer.echo(f"  on {platform}: {names}")
        typer.echo(f"    compared with one device: {compared.get(facts.compared, facts.compared)}")
    typer.echo(f"\nThe rule of its family:\n\n{_indented(rule_of(operator))}")
    if operator.call is not None:
        typer.echo(
            f"\nAccepted on one mesh axis, called with ({operator.call}), beside Replicate operands:\n"
        )
        typer.echo("\n".join(f"    {row}" for row in layouts))


def _accepted(operator: Operator) -> Sequence[str]:
    """What its example call accepts.

    Raises:
        ValueError: If the ``example`` of its registration is none.
    """
    if operator.call is None:
        return ()
    try:
        return layouts_text(operator)
    except Exception as error:  # a call that is none of it can run into anything in the strategy
        raise ValueError(
            f"operation {operator.name!r}: key 'example' is {operator.call!r}, which is no call of it "
            f"({type(error).__name__}: {error})"
        ) from None


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.splitlines())
