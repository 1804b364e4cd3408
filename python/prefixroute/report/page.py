"""One self-contained HTML page: no script, no font, no request to anywhere; light and dark by the reader's setting."""

from __future__ import annotations

from html import escape
from string import Template

from prefixroute.report.charts import charts, svg
from prefixroute.report.palette import PAGE, colour, glyph
from prefixroute.report.study import Study
from prefixroute.report.table import COLUMNS, figure, floor_line

STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #59636e; --faint: #d8dee4; --paper: #ffffff; --card: #f6f8fa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #9198a1; --faint: #30363d; --paper: #0d1117; --card: #151b23; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 74rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; }
h2 { font-size: 1.1rem; margin: 2.25rem 0 .75rem; }
p { margin: .5rem 0; max-width: 50rem; }
.soft { color: var(--soft); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(27rem, 100%), 1fr)); gap: 1rem; }
figure { margin: 0; padding: 1rem; background: var(--card); border: 1px solid var(--faint); border-radius: 8px; }
figcaption { font-weight: 600; margin-bottom: .75rem; }
figure svg { width: 100%; height: auto; max-width: 32rem; display: block; }
.legend { display: flex; flex-wrap: wrap; gap: .35rem 1.25rem; list-style: none; padding: 0; margin: 1rem 0; }
.legend span { display: inline-block; width: 1.2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .6rem; text-align: right; border-bottom: 1px solid var(--faint); white-space: nowrap; }
th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
th.text, td.text { text-align: left; }
td.prose { white-space: normal; }
tr.first td { border-top: 2px solid var(--faint); }
tr.floor td { color: var(--soft); font-style: italic; }
.assumed { font-size: .7rem; letter-spacing: .04em; border: 1px solid currentColor; border-radius: 4px; padding: 0 .3em;
  font-weight: 600; }
th .assumed { display: table; margin-left: auto; }
@media print { figure { break-inside: avoid; } }
"""

PAGE_TEMPLATE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>$style</style>
</head>
<body>
<h1>$title</h1>
$summary
<ul class="legend">$legend</ul>
<div class="charts">$figures</div>
<h2>Every run</h2>
<div class="wide">$table</div>
<h2>What this rests on</h2>
<div class="wide">$assumptions</div>
$notes
</body>
</html>
""")

ASSUMED = '<span class="assumed">ASSUMED</span>'


def page(study: Study) -> str:
    """Return the whole page. Equal studies give equal bytes."""
    return PAGE_TEMPLATE.substitute(
        title=escape(f"{study.workload}: what each routing policy costs"),
        style=STYLE,
        summary="".join(f"<p>{escape(line)}</p>" for line in study.summary()),
        legend=_legend(study),
        figures="".join(_figure(title, svg(chart)) for title, chart in charts(study).items()),
        table=_table(study),
        assumptions=_assumptions(study),
        notes="".join(f'<p class="soft">{escape(note)}</p>' for note in study.notes),
    )


def _legend(study: Study) -> str:
    return "".join(
        f'<li><span style="color:{colour(number)}">{glyph(number)}</span>{escape(policy)}</li>'
        for number, policy in enumerate(study.policies)
    )


def _figure(title: str, drawing: str) -> str:
    for stand_in, ink in PAGE.items():
        drawing = drawing.replace(stand_in, ink)
    return f"<figure><figcaption>{escape(title)}</figcaption>{drawing}</figure>"


def _table(study: Study) -> str:
    heads = "".join(
        f'<th class="{_side(column.text)}">{escape(column.title)}'
        f"{' ' + ASSUMED if column.assumed(study.assumptions) else ''}</th>"
        for column in COLUMNS
    )
    body = []
    for before, row in zip((None, *study.rows), study.rows, strict=False):
        first = before is not None and before["replicas"] != row["replicas"]
        cells = "".join(f'<td class="{_side(column.text)}">{escape(column.cell(row))}</td>' for column in COLUMNS)
        body.append(f'<tr class="{"first" if first else ""}">{cells}</tr>')
    if study.floor is not None:
        body.append(
            f'<tr class="floor first"><td class="text" colspan="{len(COLUMNS)}">{escape(floor_line(study.floor))}</td></tr>'
        )
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _assumptions(study: Study) -> str:
    rows = "".join(
        f'<tr><td class="text">{escape(item.name)}</td><td>{escape(figure(item.value))}</td>'
        f'<td class="text">{escape(item.unit)}</td><td class="text">{ASSUMED if item.assumed else ""}</td>'
        f'<td class="text prose soft">{escape(item.source)}</td></tr>'
        for item in study.assumptions
    )
    return f"<table><tbody>{rows}</tbody></table>"


def _side(text: bool) -> str:  # noqa: FBT001
    return "text" if text else "number"
