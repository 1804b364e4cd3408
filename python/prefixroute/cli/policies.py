"""``prefixroute policies``: what there is, in the policies' own words."""

from __future__ import annotations

import dataclasses
import inspect
import json
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from prefixroute.cli import console
from prefixroute.errors import ConfigError
from prefixroute.policies import POLICIES, Policy

EXAMPLE = "Example: prefixroute policies cache-aware"


def command(
    name: Annotated[str | None, typer.Argument(help="Show this one whole: rule, parameters, sources.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List policies and presets: one line each, parameters and defaults."""
    known = {policy: _describe(kind) for policy, kind in POLICIES.items()}
    if name is not None and name not in known:
        raise ConfigError(f"no policy {name!r}; known: {', '.join(known)}")
    if as_json:
        print(json.dumps({"schema": 1, "policies": known if name is None else {name: known[name]}}, indent=2))
    elif name is not None:
        out = console.stdout()
        out.print(f"[bold]{name}[/bold]\n")
        out.print(inspect.getdoc(POLICIES[name]) or "", markup=False)
        out.print(f"\nDefaults: {_defaults(known[name])}", markup=False)
    else:
        _list(known)


def _list(known: dict[str, dict[str, Any]]) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in ("policy", "what it does", "parameters and defaults"):
        table.add_column(title, no_wrap=title == "policy")
    for name, described in known.items():
        table.add_row(name, described["summary"], _defaults(described))
    console.stdout().print(table)


def _defaults(described: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in described["parameters"].items()) or "none"


def _describe(kind: type[Policy]) -> dict[str, Any]:
    """Return the first sentence of a policy's docstring and its parameters with their defaults."""
    text = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    policy = kind()
    names: list[str] = [each.name for each in dataclasses.fields(policy)] if dataclasses.is_dataclass(policy) else []
    return {"summary": text, "parameters": {name: _plain(getattr(policy, name)) for name in names}}


def _plain(value: object) -> object:
    """Return a default as JSON can carry it: a policy inside of a policy by its name."""
    return value.name if isinstance(value, Policy) else value
