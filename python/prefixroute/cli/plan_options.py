"""Options and answers of ``prefixroute plan``, shared by its commands."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from prefixroute.cli.groups import option, shared
from prefixroute.cli.output import Outputs
from prefixroute.costmodel import Assumption
from prefixroute.document import SCHEMA
from prefixroute.errors import ConfigError
from prefixroute.plan.burst import Speed
from prefixroute.plan.traffic import CLASSES, DEFAULT_CLASSES, Binding
from prefixroute.providers.catalog import MAX_AGE_DAYS, STANDARD, Model, Provider
from prefixroute.providers.tables import find_model, find_provider, read_provider
from prefixroute.report.sheet import Sheet
from prefixroute.report.table import Table
from prefixroute.sim.sweep import assumptions_dict

CALLS, PRICES, TRAFFIC = "Calls", "Prices and rules", "Traffic"
REQUESTS, SHARED_TOKENS, PER_MINUTE, USERS, PER_HOUR = 10, 20_000, 60.0, 1_000, 10.0
"""What is planned where nobody says, marked ASSUMED."""

call, price, traffic = (partial(option, panel=panel) for panel in (CALLS, PRICES, TRAFFIC))
model_name = shared("Model.", "--model", metavar="NAME", show_default="the provider's", panel=PRICES)
shared_tokens_of = shared("Prompt tokens that calls share.", metavar="N", show_default=f"{SHARED_TOKENS}", panel=CALLS)
own = shared("Prompt tokens of each call behind them.", min=0, panel=CALLS)
lifetime_name = shared(
    "How long entries are kept: a lifetime that the model has, such as 5m, 1h or 30m.",
    metavar="NAME",
    show_default="the default",
    panel=PRICES,
)
missed = shared("Probability that a live entry is not found.", panel=CALLS)
uses = shared("Uses of one prefix an hour, to choose its lifetime.", panel=TRAFFIC)


@dataclass(frozen=True, slots=True)
class PriceOptions:
    """Prices and rules, as far as the user says."""

    prices: Path | None = price(None, "Prices of your own; they come first.", metavar="FILE.toml")
    input_usd: float | None = price(None, "$ for a million input tokens.", "--input")
    write_usd: float | None = price(None, "The same, written.", "--write")
    read_usd: float | None = price(None, "The same, read.", "--read")
    output_usd: float | None = price(None, "The same, answered.", "--output")
    minimum: int | None = price(None, "Tokens of the shortest cached prefix.")
    tier: str = price(STANDARD, "Service tier.", metavar="NAME")
    max_age_days: int = price(MAX_AGE_DAYS, "Age of prices that warns.")

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

    concurrency: int | None = call(None, "Calls in flight at most.", show_default="no limit")
    prefill_tokens_per_s: float | None = call(None, "Prompt tokens a second that are not cached.")
    overhead_s: float | None = call(None, "Seconds to the first token, all cached.")
    answer_s: float | None = call(None, "Seconds from first to last token.")

    @property
    def speed(self) -> Speed:
        """The times of a burst."""
        return Speed(self.prefill_tokens_per_s, self.overhead_s, self.answer_s, self.concurrency)


@dataclass(frozen=True, slots=True)
class Traced:
    """A trace, and how it is looked at."""

    trace: str | None = traffic(None, "A log or trace: reuse and dollars on it.", "--trace", metavar="FILE")
    by: str = traffic(",".join(DEFAULT_CLASSES), f"Classes of sessions: {', '.join(CLASSES)}.", metavar="WHAT,...")
    binding_s: float | None = traffic(None, "A gateway pins sessions for this many seconds of idleness.")
    targets: int = traffic(2, "To one of so many workspaces, keys or deployments.")
    begin_s: float = traffic(0.0, "Seconds until a response begins and its entry can be read.")

    @property
    def binding(self) -> Binding | None:
        """The gateway, if there is one."""
        return None if self.binding_s is None else Binding(self.binding_s, self.targets)


class PlanAnswer:
    """Parts of an answer as they come: tables for people, fields for programs."""

    def __init__(self, title: str, outputs: Outputs) -> None:
        self.title, self.outputs = title, outputs
        self.tables: list[Table] = []
        self.fields: dict[str, Any] = {}
        self.assumptions: list[Assumption] = []
        self.notes: list[str] = []

    def add(self, name: str, found: Any, *tables: Table) -> None:
        """Add a result, or several, under its name, and its tables."""
        self.fields[name] = [asdict(one) for one in found] if isinstance(found, tuple | list) else found.to_dict()
        self.tables += tables

    def give(self) -> None:
        """Print it, and write what was asked for."""
        figures = {item.name: item for item in self.assumptions}
        sheet = Sheet(self.title, tuple(self.tables), tuple(figures.values()), tuple(dict.fromkeys(self.notes)))
        behind = assumptions_dict(sheet.assumptions)
        document = {"schema": SCHEMA, **self.fields, "assumptions": behind, "notes": list(sheet.notes)}
        self.outputs.give(sheet, lambda: document)


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
