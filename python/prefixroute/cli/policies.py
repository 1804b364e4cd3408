"""``prefixroute policies``: what there is, in the policies' and presets' own words."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from prefixroute.cli import console
from prefixroute.cli.groups import grouped, option
from prefixroute.cli.output import print_json
from prefixroute.document import SCHEMA
from prefixroute.policies import POLICIES, Description, describe, presets

EXAMPLE = "Example: prefixroute policies sglang-balanced"


@grouped
def command(
    name: Annotated[str | None, typer.Argument(help="Show this one whole: rule, parameters, sources.")] = None,
    *,
    as_json: bool = option(False, "Print one JSON object.", "--json"),
) -> None:
    """List policies and presets of other routers: one line each, parameters, and how a preset differs."""
    rules = [describe(each) for each in POLICIES] if name is None else [describe(name)]
    copies = [describe(each) for each in presets()] if name is None else []
    if as_json:
        listed = {each.name: dataclasses.asdict(each) for each in (*rules, *copies)}
        print_json({"schema": SCHEMA, "policies": listed})
    elif name is not None:
        _show(rules[0])
    else:
        _list("policy", rules)
        _list("preset", copies)


def _show(policy: Description) -> None:
    out = console.stdout()
    out.print(f"[bold]{policy.name}[/bold]: ", end="")
    said = [policy.line, *([policy.about] if policy.about not in policy.line else []), f"Values: {_values(policy)}"]
    if policy.differs:
        said += [f"How it differs from the original: {policy.differs}", policy.checked]
    out.print("\n\n".join(said), markup=False)


def _list(title: str, policies: list[Description]) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for head in (title, "what it does", "parameters"):
        table.add_column(head, no_wrap=head == title)
    for policy in policies:
        line = f"{policy.line}\nDiffers: {policy.differs}\n{policy.checked}" if policy.differs else policy.line
        table.add_row(policy.name, line, _values(policy))
    out = console.stdout()
    out.print(table, width=min(console.WIDE, out.width))


def _values(policy: Description) -> str:
    return ", ".join(f"{name}={value}" for name, value in policy.parameters.items()) or "none"
