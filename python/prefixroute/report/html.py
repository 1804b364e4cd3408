"""Self-contained HTML: no script, no font, no request to anywhere; light and dark by the reader's setting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from string import Template

from prefixroute.costmodel import Assumption
from prefixroute.report.behind import figure
from prefixroute.report.palette import colour, glyph
from prefixroute.report.table import Table

STYLE = """
:root { color-scheme: light dark;
  --ink: #1f2328; --soft: #59636e; --faint: #d8dee4; --paper: #ffffff; --card: #f6f8fa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #9198a1; --faint: #30363d; --paper: #0d1117; --card: #151b23; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 74rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2.25rem 0 .75rem; }
p, li { margin: .5rem 0; max-width: 50rem; }
.soft { color: var(--soft); }
.charts { columns: 25rem 2; column-gap: 1rem; margin-top: 1rem; }
figure { break-inside: avoid; margin: 0 0 1rem; padding: 1rem; background: var(--card);
  border: 1px solid var(--faint); border-radius: 8px; }
figcaption { font-weight: 600; margin-bottom: .75rem; }
figure svg { width: 100%; height: auto; max-width: 32rem; display: block; }
ol { padding-left: 1.5rem; }
.legend { display: flex; flex-wrap: wrap; gap: .35rem 1.25rem; list-style: none; padding: 0; margin: 1rem 0; }
.legend li { margin: 0; }
.legend span { display: inline-block; width: 1.2rem; }
.wide { overflow-x: auto; margin-top: .75rem; }
table { border-collapse: collapse; width: 100%; font-size: .93rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .45rem; text-align: right; border-bottom: 1px solid var(--faint); white-space: nowrap; }
th { color: var(--soft); font-weight: 600; vertical-align: bottom; white-space: normal; }
th.text, td.text { text-align: left; }
td.text { white-space: normal; }
td.text:first-child { min-width: 7.5rem; }
td.text:last-child { min-width: 8rem; }
td.prose { min-width: 16rem; }
pre { overflow-x: auto; padding: .75rem 1rem; background: var(--card); border: 1px solid var(--faint);
  border-radius: 8px; font-size: .9rem; }
.deciding figure { max-width: 38rem; }
.deciding figure svg { max-width: 34rem; }
tr.first td { border-top: 2px solid var(--faint); }
.assumed { font-size: .7rem; letter-spacing: .04em; border: 1px solid currentColor; border-radius: 4px; padding: 0 .3em;
  font-weight: 600; }
th .assumed { display: table; margin-left: auto; }
summary { font-weight: 600; margin: 2rem 0 .75rem; cursor: pointer; }
@media print { @page { size: A4; margin: 10mm; }
  body, table { font-size: 10px; line-height: 1.35; } .assumed { font-size: 7px; }
  body { padding: 0; max-width: none; } h1 { font-size: 16px; } h2 { font-size: 11px; margin: 8px 0 3px; }
  p, li { margin: 2px 0; max-width: none; } .charts { display: grid; grid-template-columns: 1fr 1fr;
  margin: 4px 0 0; } figure { padding: 4px; margin: 0 0 4px; } figcaption { margin: 0; }
  figure svg { max-height: 34mm; }
  .wide { margin-top: 3px; } td, th { padding: 1px 4px; white-space: normal; } details:not([open]) { display: none; } }
@media (min-width: 34rem) and (max-width: 74rem) { table { font-size: .78rem; } th, td { padding: .3rem; } }
@media (max-width: 34rem) {
  body { padding: 1.25rem .6rem 3rem; } figure { padding: .75rem .4rem; } h1 { font-size: 1.3rem; }
  td.text, th { white-space: normal; } }
"""

DOCUMENT = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>$style</style>
</head>
<body>
<h1>$title</h1>
$body
</body>
</html>
""")

ASSUMED = '<span class="assumed">ASSUMED</span>'


def document(title: str, parts: Iterable[str]) -> str:
    """Return the whole page of parts that are HTML already."""
    return DOCUMENT.substitute(title=escape(title), style=STYLE, body="\n".join(parts))


def heading(text: str) -> str:
    """Return the heading of a section."""
    return f"<h2>{escape(text)}</h2>"


def inline(text: str) -> str:
    """Return plain text as HTML, with what stands between backticks as code."""
    parts = escape(text).split("`")
    if not len(parts) % 2:
        return escape(text)  # a backtick alone is one
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))


def paragraph(text: str, *, soft: bool = False) -> str:
    """Return a paragraph of plain text; ``soft`` for notes."""
    return f'<p class="soft">{inline(text)}</p>' if soft else f"<p>{inline(text)}</p>"


def details(summary: str, parts: Iterable[str]) -> str:
    """Return parts, HTML already, that show when asked for, and not in print."""
    return f"<details><summary>{escape(summary)}</summary>{''.join(parts)}</details>"


def ordered(items: Iterable[str]) -> str:
    """Return a numbered list of plain text."""
    return f"<ol>{''.join(f'<li>{inline(item)}</li>' for item in items)}</ol>"


def bullets(items: Iterable[str]) -> str:
    """Return a list of plain text."""
    return f"<ul>{''.join(f'<li>{inline(item)}</li>' for item in items)}</ul>"


def legend(policies: Sequence[str]) -> str:
    """Return the sign and colour of each policy, in the order of the charts."""
    signs = (
        f'<li><span style="color:{colour(number)}">{glyph(number)}</span>{escape(policy)}</li>'
        for number, policy in enumerate(policies)
    )
    return f'<ul class="legend">{"".join(signs)}</ul>'


def deciding(drawings: Mapping[str, str]) -> str:
    """Return the first of the SVG drawings by title, the one that decides, as wide as the text."""
    title = next(iter(drawings))
    return f'<div class="deciding">{_framed(title, drawings[title])}</div>'


def further(drawings: Mapping[str, str]) -> str:
    """Return the SVG drawings but the first, side by side where there is room."""
    return f'<div class="charts">{"".join(_framed(title, drawings[title]) for title in [*drawings][1:])}</div>'


def rests_on(items: Sequence[Assumption], notes: Iterable[str]) -> Iterator[str]:
    """Yield the end of a page: the figures behind a result, and notes."""
    if items:
        yield heading("What this rests on")
        yield _assumptions(items)
    yield from (paragraph(note, soft=True) for note in notes)


def _framed(title: str, drawing: str) -> str:
    named = drawing.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1)
    return f"<figure><figcaption>{escape(title)}</figcaption>{named}</figure>"


def table(shown: Table) -> str:
    """Return a table; it scrolls where it is too wide, and can be reached by the keyboard to do so."""
    heads = "".join(
        f'<th scope="col" class="{_side(head.text)}">{escape(head.title)}{f" {ASSUMED}" if head.assumed else ""}</th>'
        for head in shown.heads
    )
    rows = []
    for at, row in enumerate(shown.rows):
        cells = "".join(cell(text, text_like=head.text) for head, text in zip(shown.heads, row, strict=True))
        rows.append(f'<tr class="first">{cells}</tr>' if at in shown.sections else f"<tr>{cells}</tr>")
    head = f"<tr>{heads}</tr>" if any(head.title for head in shown.heads) else ""
    mark = f'<p class="soft">{ASSUMED} every figure rests on defaults, listed below</p>' if shown.assumed else ""
    return mark + grid(head, rows, shown.title or "figures")


def section(shown: Table) -> Iterator[str]:
    """Yield a table under its title, and what is said of it."""
    if shown.title:
        yield heading(shown.title)
    if shown.rows:
        yield table(shown)
    yield from map(paragraph, shown.captions)


def _side(text: bool) -> str:  # noqa: FBT001 - private
    return "text" if text else "number"


def grid(head: str, rows: Iterable[str], label: str) -> str:
    """Return a table of rows that are HTML already, under a label for readers who do not see it."""
    top = f"<thead>{head}</thead>" if head else ""
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{escape(label)}">'
        f"<table>{top}<tbody>{''.join(rows)}</tbody></table></div>"
    )


def cell(text: str, *, text_like: bool = False, prose: bool = False) -> str:
    """Return a table cell: numbers to the right, text to the left, prose over several lines."""
    side = "text prose soft" if prose else _side(text_like)
    return f'<td class="{side}">{inline(text)}</td>'


def code(text: str) -> str:
    """Return a line to copy."""
    return f'<pre tabindex="0"><code>{escape(text)}</code></pre>'


def _assumptions(items: Iterable[Assumption]) -> str:
    """Return the table of the figures behind a result."""
    rows = (
        f"<tr>{cell(item.name, text_like=True)}{cell(figure(item.value))}{cell(item.unit, text_like=True)}"
        f'<td class="text">{ASSUMED if item.assumed else ""}</td>{cell(item.source, prose=True)}</tr>'
        for item in items
    )
    return grid("", rows, "assumptions")
