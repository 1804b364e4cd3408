"""``prefixroute fit``: the cost model fitted to measured first-token times, as options for the other commands."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from prefixroute.cli import options
from prefixroute.cli.groups import grouped
from prefixroute.cli.hardware import Machine
from prefixroute.cli.output import print_json
from prefixroute.costmodel import Fit, fit
from prefixroute.errors import ConfigError

EXAMPLE = "Example: prefixroute fit measured.csv --gpu H200 --model Llama-3.1-70B --tensor-parallel 4"
COLUMNS = ("prompt_tokens", "cached_tokens", "seconds")


@grouped
def command(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE.csv", help=f"A row a request, with the columns {', '.join(COLUMNS)}."),
    ],
    as_json: bool = options.as_json(False),
    *,
    hardware: Machine,
) -> None:
    """Fit the cost model to first-token times that were measured on an idle replica; say how well it fits."""
    fitted = fit(read_rows(file), hardware.cost)
    if as_json:
        print_json(to_dict(fitted))
        return
    print(fitted)
    print(f"give it to the other commands: {as_options(fitted)}")


def read_rows(file: Path) -> list[tuple[float, float, float]]:
    """Return the measured rows of a CSV file.

    Raises:
        ConfigError: there is no such file, a column is missing, or a row holds something that is no number.
    """
    if file.is_dir() or not file.exists():
        raise ConfigError(
            f"measured rows are a CSV file, {str(file)!r} is {'a folder' if file.is_dir() else 'not there'}"
        )
    with file.open(encoding="utf-8-sig", newline="") as lines:
        table = csv.DictReader(lines)
        try:
            found = [name.strip() for name in table.fieldnames or ()]
            table.fieldnames = found
            if not found:
                raise ConfigError(f"{file} is empty: it needs a line of the columns {', '.join(COLUMNS)}, and rows")
            missing = [name for name in COLUMNS if name not in found]
            if len(missing) == len(COLUMNS):
                raise ConfigError(
                    f"{file} is no CSV file of measured rows: its first line must hold the columns "
                    f"{', '.join(COLUMNS)}, got {','.join(found)[:60]!r}"
                )
            if missing:
                raise ConfigError(f"{file} needs the columns {', '.join(COLUMNS)}; there is no {', '.join(missing)}")
            return [_row(row, table.line_num, file) for row in table if _is_measured(row)]
        except (csv.Error, UnicodeDecodeError) as error:
            raise ConfigError(f"{file} is no CSV file: {error}") from error


def _is_measured(row: dict[str, str | None]) -> bool:
    """Whether a row counts: one of ``prefixroute replay`` only if an idle replica answered it, any other always."""
    return not (row.get("error") or row.get("cached_tokens") == "" or (row.get("in_flight") or "0") != "0")


def _row(row: dict[str, str | None], line: int, file: Path) -> tuple[float, float, float]:
    try:
        tokens, cached, seconds = (float(row[name] or "") for name in COLUMNS)
    except ValueError as error:
        given = ",".join(str(row[name]) for name in COLUMNS)
        raise ConfigError(f"{file}, line {line}: {', '.join(COLUMNS)} must be numbers, got {given!r}") from error
    return tokens, cached, seconds


def as_options(fitted: Fit) -> str:
    """Return what was fitted as options of the command line."""
    return f"--utilization {fitted.cost.utilization:.4g} --overhead {fitted.cost.overhead_s:.4g}"


def to_dict(fitted: Fit) -> dict[str, object]:
    """Return the JSON object."""
    fields = dataclasses.asdict(fitted)
    cost = fields.pop("cost")
    figures = {"utilization": cost.utilization, "overhead_s": cost.overhead_s}
    return {"schema": 1, **figures, **fields, "options": as_options(fitted)}
