"""Plain text: tables in columns of fixed width, and an advice on one page."""

from __future__ import annotations

from collections.abc import Iterator

from prefixroute.advise import Advice
from prefixroute.report.answer import answer
from prefixroute.report.basis import basis, fleet
from prefixroute.report.behind import speeds_line
from prefixroute.report.compared import compared, details, equal_splits
from prefixroute.report.reasons import advised
from prefixroute.report.table import Table


def advice_text(advice: Advice) -> str:
    """Return an advice as text: the answer first, then why, then what to look at.

    Args:
        advice: of :func:`~prefixroute.advise.advise`.
    """
    said, found = answer(advice), advice.comparison
    parts = [
        *said.agreement,
        f"Advice for {advice.workload} on {fleet(advice)}: {said.headline}.",
        *said.opening,
        *([f"Deploy: {said.deploy}"] if said.deploy else []),
        *said.expectation,
        *_listed("Why", (f"{at}. {question} {text}" for at, (question, text) in enumerate(said.steps, 1))),
        *_listed("Also found", (f"[{severity}] {text}" for severity, text in said.findings)),
        "",
        f"Compared ({basis(found)})",
        *table_lines(compared(found, "", advised(advice))),
    ]
    for table in (*details(found), *(() if advice.apart is None else (equal_splits(advice.apart),))):
        parts += ["", *table_lines(table)]
    parts += _listed("What would change this", iter(said.sensitivity))
    parts += _listed("Notes", iter((*found.notes, *filter(None, [speeds_line(found.assumptions)]))))
    assumed = [str(item) for item in found.assumptions if item.assumed]
    parts += _listed("Assumed (not given)", iter(assumed))
    return "\n".join(parts) + "\n"


def _listed(title: str, lines: Iterator[str]) -> list[str]:
    found = [f"  {line}" for line in lines]
    return ["", title, *found] if found else []


def table_lines(table: Table) -> list[str]:
    """Return a table as lines: text to the left, figures to the right."""
    heads = [head.title + (" ASSUMED" if head.assumed else "") for head in table.heads]
    widths = [max(map(len, column)) for column in zip(heads, *table.rows, strict=True)]
    lines = [table.title] if table.title else []
    if table.assumed:
        lines.append("  ASSUMED: every figure rests on defaults, see below")
    for cells in (heads, *table.rows):
        sided = (
            f"{cell:<{width}}" if head.text else f"{cell:>{width}}"
            for cell, width, head in zip(cells, widths, table.heads, strict=True)
        )
        lines.append("  " + "  ".join(sided).rstrip())
    return [*lines, *(f"  {line}" for line in table.captions)]
