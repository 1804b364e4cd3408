"""``prefixroute lint``: what in a log and its settings stands in the way of prefix caches."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from prefixroute.cli import console, options
from prefixroute.cli.groups import grouped, option
from prefixroute.cli.hardware import PricedMachine
from prefixroute.cli.output import Outputs, check_writable
from prefixroute.cli.reading import TraceOptions
from prefixroute.document import SCHEMA, json_text
from prefixroute.lint import LEVELS, LintSettings, lint, read_entries
from prefixroute.providers.tables import find_model, read_provider
from prefixroute.report.plans import lint_table
from prefixroute.report.sarif import sarif
from prefixroute.report.sheet import Sheet
from prefixroute.sim.grid import open_source
from prefixroute.workload import Spec

EXAMPLE = "Example: prefixroute lint gateway.jsonl --config engine.yaml --fail-on error"
FOUND = 1
"""Exit code where something was found."""


class FailOn(StrEnum):
    """The least level of a finding at which the command fails."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"
    NEVER = "never"


@grouped
def command(
    log: Annotated[str, typer.Argument(metavar="LOG", help="A gateway log, or any trace.")],
    *,
    config: Path | None = option(None, "Settings of engines, router and API: .toml, .yaml.", metavar="FILE"),
    api_model: str | None = option(None, "Model, if an API serves the log.", metavar="NAME"),
    prices: Path | None = options.prices(),
    fail_on: FailOn = option(FailOn.WARNING, "Level from which on the exit code is 1."),
    sarif_file: Path | None = option(None, "Write SARIF 2.1.0.", "--sarif", metavar="FILE"),
    outputs: Outputs,
    machine: PricedMachine,
    reading: TraceOptions,
) -> None:
    """Check a log and settings for what stands in the way of caches: prompts, lifetimes, engines, routers, keys."""
    if sarif_file is not None:
        check_writable("--sarif", sarif_file)
    settings = LintSettings() if config is None else LintSettings.read(config)
    own = () if prices is None else (read_provider(prices),)
    named = api_model or (None if settings.api is None else settings.api.model)
    spec = Spec.parse(log)
    files = [] if spec.is_made else reading.files([spec.name])
    with console.progress(quiet=outputs.quiet) as told:
        workload = open_source(reading.source(log, told, files=files), 1)
    entries = read_entries(files, reading.options.fields)
    found = lint(
        workload,
        entries=entries,
        settings=settings,
        model=None if named is None else find_model(named, own),
        cost=machine.cost,
    )
    if sarif_file is not None:
        from prefixroute import __version__

        text = json_text(sarif(found, spec.name, __version__))
        sarif_file.write_text(text, encoding="utf-8")
        console.note(f"SARIF: {sarif_file}")
    title = f"{found.log}: what stands in the way of its caches"
    sheet = Sheet(title, (lint_table(found),), found.assumptions, found.notes)
    outputs.give(sheet, lambda: {"schema": SCHEMA, **found.to_dict()})
    worst = found.worst()
    if fail_on is not FailOn.NEVER and worst is not None and LEVELS.index(worst) >= LEVELS.index(fail_on.value):
        raise typer.Exit(FOUND)
