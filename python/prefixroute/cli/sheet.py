"""A sheet on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from rich.console import Console

from prefixroute.cli.console import WIDE, say
from prefixroute.cli.output import Outputs
from prefixroute.cli.table import drawn, show_assumed, show_notes
from prefixroute.report.sheet import Sheet


def show_sheet(sheet: Sheet, out: Console) -> None:
    """Print each section, then what they rest on."""
    for section in sheet.sections:
        say(section.title, out)
        if section.table.rows:
            out.print(drawn(section.table, wraps=True), width=min(WIDE, out.width))
        for line in section.lines:
            say(f"  {line}", out)
        say("", out)
    show_assumed(sheet.assumptions, out)
    show_notes(sheet.notes, out)


def give_sheet(sheet: Sheet, document: Mapping[str, Any], outputs: Outputs) -> None:
    """Print a sheet, or the JSON object of the same answer, and write the page and the picture that were asked for."""
    outputs.answer(lambda: document, partial(show_sheet, sheet))
    if outputs.draws:
        from prefixroute.report.sheet_page import sheet_page, sheet_picture

        outputs.draw(lambda: sheet_page(sheet), lambda: sheet_picture(sheet))
