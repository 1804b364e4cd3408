"""Options and answers of ``prefixroute plan``, shared by its commands."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

from prefixroute.cli import console, options
from prefixroute.cli.output import Output
from prefixroute.cli.sheet import show_sheet, write_sheet
from prefixroute.costmodel import Assumption
from prefixroute.errors import ConfigError
from prefixroute.plan.burst import Speed
from prefixroute.plan.traffic import CLASSES, DEFAULT_CLASSES, Binding
from prefixroute.providers.catalog import MAX_AGE_DAYS, STANDARD, Model, Provider
from prefixroute.providers.tables import find_model, find_provider, read_provider
from prefixroute.report.sheet import Section, Sheet
from prefixroute.sim.sweep import SCHEMA

CALLS, PRICES, TRAFFIC = "Calls", "Prices and rules", "Traffic"
REQUESTS, SHARED_TOKENS, PER_MINUTE, USERS, PER_HOUR = 10, 20_000, 60.0, 1_000, 10.0
"""What is planned where nobody says, marked ASSUMED."""

ModelName = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="Model.", show_default="the provider's", rich_help_panel=PRICES),
]
Shared = Annotated[
    str | None,
    typer.Option(
        metavar="N", help="Prompt tokens that calls share.", show_default=f"{SHARED_TOKENS}", rich_help_panel=CALLS
    ),
]
Own = Annotated[int, typer.Option(min=0, help="Prompt tokens of each call behind them.", rich_help_panel=CALLS)]
AnswerTokens = Annotated[int, typer.Option(min=0, help="Answer tokens of each call.", rich_help_panel=CALLS)]
Lifetime = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Lifetime: 5m, 1h.", show_default="the default", rich_help_panel=PRICES),
]
Missed = Annotated[float, typer.Option(help="Probability that a live entry is not found.", rich_help_panel=CALLS)]
PerHour = Annotated[
    float | None, typer.Option(help="Uses of one prefix an hour, to choose its lifetime.", rich_help_panel=TRAFFIC)
]
TraceOption = Annotated[
    str | None,
    typer.Option("--trace", metavar="FILE", help="A log or trace: reuse and dollars on it.", rich_help_panel=TRAFFIC),
]


@dataclass(frozen=True, slots=True)
class Figures:
    """Prices and rules, as far as the user says."""

    prices: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml", help="Prices of your own; they come first.", rich_help_panel=PRICES),
    ] = None
    input_usd: Annotated[
        float | None, typer.Option("--input", help="$ for a million input tokens.", rich_help_panel=PRICES)
    ] = None
    write_usd: Annotated[float | None, typer.Option("--write", help="The same, written.", rich_help_panel=PRICES)] = (
        None
    )
    read_usd: Annotated[float | None, typer.Option("--read", help="The same, read.", rich_help_panel=PRICES)] = None
    output_usd: Annotated[
        float | None, typer.Option("--output", help="The same, answered.", rich_help_panel=PRICES)
    ] = None
    minimum: Annotated[
        int | None, typer.Option(help="Tokens of the shortest cached prefix.", rich_help_panel=PRICES)
    ] = None
    tier: Annotated[str, typer.Option(metavar="NAME", help="Service tier.", rich_help_panel=PRICES)] = STANDARD
    max_age_days: Annotated[int, typer.Option(help="Age of prices that warns.", rich_help_panel=PRICES)] = MAX_AGE_DAYS

    @property
    def own(self) -> tuple[Provider, ...]:
        """The user's own file, or nothing."""
        return () if self.prices is None else (read_provider(self.prices),)

    def model(self, name: str | None, provider: str, kinds: tuple[str, ...], today: date) -> tuple[Model, list[str]]:
        """Return a model whose cache works in one of these ways, with the user's figures, and a warning if old."""
        known = self.own
        if name is not None:
            found = find_model(name, known)
        elif known:
            found = known[0].model()
        else:
            found = find_provider(provider).model()
        if not any(mode.kind in kinds for mode in found.modes):
            ways = ", ".join(mode.kind for mode in found.modes)
            raise ConfigError(
                f"{found.id} caches by {ways}, this command plans for {' or '.join(kinds)}: `plan compare` takes any"
            )
        stale = find_provider(found.provider, known).stale_note(today, self.max_age_days)
        changed = found.with_figures(
            input=self.input_usd,
            output=self.output_usd,
            read=self.read_usd,
            write=self.write_usd,
            minimum_tokens=self.minimum,
        )
        return changed, [stale] if stale else []


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the API answers."""

    concurrency: Annotated[
        int | None, typer.Option(help="Calls in flight at most.", show_default="no limit", rich_help_panel=CALLS)
    ] = None
    prefill_tokens_per_s: Annotated[
        float | None, typer.Option(help="Prompt tokens a second that are not cached.", rich_help_panel=CALLS)
    ] = None
    overhead_s: Annotated[
        float | None, typer.Option(help="Seconds to the first token, all cached.", rich_help_panel=CALLS)
    ] = None
    answer_s: Annotated[float | None, typer.Option(help="Seconds from first to last token.", rich_help_panel=CALLS)] = (
        None
    )

    @property
    def speed(self) -> Speed:
        """The times of a burst."""
        return Speed(self.prefill_tokens_per_s, self.overhead_s, self.answer_s, self.concurrency)


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where the answer goes."""

    as_json: options.AsJson = False
    report: options.ReportFile = None
    png: options.PngFile = None
    quiet: options.Quiet = False


@dataclass(frozen=True, slots=True)
class Traced:
    """A trace, and how it is looked at."""

    trace: TraceOption = None
    by: Annotated[
        str,
        typer.Option(metavar="WHAT,...", help=f"Classes of sessions: {', '.join(CLASSES)}.", rich_help_panel=TRAFFIC),
    ] = ",".join(DEFAULT_CLASSES)
    binding_s: Annotated[
        float | None,
        typer.Option(help="A gateway pins sessions for this many seconds of idleness.", rich_help_panel=TRAFFIC),
    ] = None
    targets: Annotated[
        int, typer.Option(help="To one of so many workspaces, keys or deployments.", rich_help_panel=TRAFFIC)
    ] = 2

    begin_s: Annotated[
        float, typer.Option(help="Seconds until a response begins and its entry can be read.", rich_help_panel=TRAFFIC)
    ] = 0.0

    @property
    def binding(self) -> Binding | None:
        """The gateway, if there is one."""
        return None if self.binding_s is None else Binding(self.binding_s, self.targets)


class Answer:
    """Parts of an answer as they come: sections for people, fields for programs."""

    def __init__(self, title: str, outputs: Outputs) -> None:
        self.title, self.outputs = title, outputs
        self.output = Output(outputs.report, outputs.png)
        self.sections: list[Section] = []
        self.fields: dict[str, Any] = {}
        self.assumptions: list[Assumption] = []
        self.notes: list[str] = []

    def add(self, name: str, found: Any, *sections: Section) -> None:
        """Add a result under its name, and its sections."""
        self.fields[name] = found
        self.sections += sections

    def give(self) -> None:
        """Print it, and write what was asked for."""
        figures = {item.name: item for item in self.assumptions}
        sheet = Sheet(self.title, tuple(self.sections), tuple(figures.values()), tuple(dict.fromkeys(self.notes)))
        if self.outputs.as_json:
            behind = {
                item.name: {"value": item.value, "unit": item.unit, "source": item.source, "assumed": item.assumed}
                for item in sheet.assumptions
            }
            told = {"schema": SCHEMA, **self.fields, "assumptions": behind, "notes": list(sheet.notes)}
            sys.stdout.write(json.dumps(told, indent=2, allow_nan=False) + "\n")
        else:
            show_sheet(sheet, console.stdout())
        write_sheet(sheet, self.output)


def described(model: Model) -> dict[str, object]:
    """Return what a result says of its model."""
    price = model.price()
    return {
        "id": model.id,
        "provider": model.provider,
        "prices_of": model.date.isoformat(),
        "source": model.source,
        "minimum_tokens": model.minimum_tokens,
        "usd_per_million": {
            "input": price.input,
            "output": price.output,
            "read": price.read,
            "write": dict(price.write),
        },
    }


def defaults(*figures: tuple[str, float | str, object]) -> list[Assumption]:
    """Return the figures of which nobody gave the last part."""
    return [Assumption(name, value, "", "default", assumed=given is None) for name, value, given in figures]
