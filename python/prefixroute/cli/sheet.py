"""A sheet on the terminal."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from prefixroute.cli.console import say
from prefixroute.cli.output import Output
from prefixroute.cli.table import show_assumed, show_notes
from prefixroute.report.sheet import Section, Sheet


def show_sheet(sheet: Sheet, out: Console) -> None:
    """Print each section, then what they rest on."""
    for section in sheet.sections:
        say(section.title, out)
        if section.rows:
            out.print(_table(section))
        for line in section.lines:
            say(f"  {line}", out)
        say("", out)
    show_assumed(sheet.assumptions, out)
    show_notes(sheet.notes, out)


def write_sheet(sheet: Sheet, output: Output) -> None:
    """Write the page and the picture that were asked for."""
    if output:
        from prefixroute.report.sheet_page import sheet_charts, sheet_page

        output.write(lambda: sheet_page(sheet), sheet.title, sheet_charts(sheet))


def _table(section: Section) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column, head in enumerate(section.heads):
        name = head.replace(" ASSUMED", "\nASSUMED")
        table.add_column(name, justify="left" if section.is_text(column) else "right", overflow="fold")
    for row in section.rows:
        table.add_row(*row)
    return table
