"""Charts to SVG and PNG, without a browser. Vega-Lite through Altair draws; the palette's stand-ins become colours."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt
import vl_convert

from prefixroute.report.palette import FAINT, INK, PAGE, PAPER

Chart = alt.Chart | alt.LayerChart | alt.FacetChart

WIDTH, HEIGHT, GAP = 400, 240, 48
"""Pixels of a chart, and between two."""
VEGA_LITE = "6.4"
"""The Vega-Lite release that draws: fixed, so that a newer Altair does not move a pixel."""

FONT_SIZE = 14
"""Pixels of letters: on a phone, where a chart is drawn at three quarters of its size, still ten."""
FONT = "DejaVu Sans, Verdana, sans-serif"
CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": FONT,
    "axis": {
        "labelColor": INK,
        "titleColor": INK,
        "domainColor": INK,
        "tickColor": INK,
        "gridColor": FAINT,
        "labelFontSize": FONT_SIZE,
        "titleFontSize": FONT_SIZE,
        "titleFontWeight": "normal",
        "labelLimit": 240,
    },
    "header": {
        "labelColor": INK,
        "titleColor": INK,
        "labelFontSize": FONT_SIZE,
        "titleFontSize": FONT_SIZE,
        "titleFontWeight": "normal",
    },
    "legend": {
        "symbolStrokeWidth": 0,
        "labelColor": INK,
        "titleColor": INK,
        "labelFontSize": FONT_SIZE,
        "symbolSize": 100,
        "labelLimit": 300,
    },
    "title": {"color": INK, "fontSize": FONT_SIZE + 1, "anchor": "start", "offset": 12},
    "view": {"stroke": None},
}


SMALL, LINE_HEIGHT = 11, 14
"""Size of what is written beside charts, and the distance of its lines, in pixels."""
LINE = 150
"""Letters in a line of remarks on a picture."""
TITLE_SIZE, TITLE_LINE = 17, 88
"""Size of a picture's title in pixels, and letters in a line of it: two charts are as wide."""


def svg(chart: Chart) -> str:
    """Return a chart without its legend as SVG, which takes the reader's light or dark from the page around it."""
    drawing = vl_convert.vegalite_to_vega(chart.configure(**CONFIG).to_dict(), vl_version=VEGA_LITE)
    drawing.pop("legends", None)
    return _inked(str(vl_convert.vega_to_svg(drawing)), PAGE)


def svgs(charts: Mapping[str, Chart]) -> dict[str, str]:
    """Return charts as SVG by their titles."""
    return {title: svg(chart) for title, chart in charts.items()}


class Picture(NamedTuple):
    """What a picture shows.

    Attributes:
        title: above all.
        charts: by their titles.
        remarks: what stands under the title.
        rests_on: what stands below the charts: assumptions and notes.
    """

    title: str
    charts: Mapping[str, Chart]
    remarks: Sequence[str] = ()
    rests_on: Sequence[str] = ()


def png(picture: Picture, scale: float = 1.5) -> bytes:
    """Return a picture, see :func:`vega`."""
    return bytes(vl_convert.vegalite_to_png(vega(picture), vl_version=VEGA_LITE, scale=scale))


def vega(picture: Picture) -> str:
    """Return a picture as Vega-Lite JSON: dark on white, two charts in a row, with one legend."""
    title, charts, remarks, rests_on = picture
    drawn = [chart.properties(title=name) for name, chart in charts.items()]
    if len(drawn) % 2:
        alone: Any = drawn[-1].spec if isinstance(drawn[-1], alt.FacetChart) else drawn[-1]
        alone.width = 2 * WIDTH + GAP  # no other stands beside it
    rows: list[Chart | alt.HConcatChart] = [
        alt.hconcat(*drawn[i : i + 2], spacing=GAP) for i in range(0, len(drawn), 2)
    ]
    if rests_on and rows:
        rows.append(_written(_wrapped(rests_on)))
        rests_on = ()
    page = alt.vconcat(*rows, spacing=28).resolve_scale(color="shared", shape="shared")
    heading = alt.Title(
        textwrap.wrap(title, TITLE_LINE),
        subtitle=_wrapped([*remarks, *rests_on]),
        fontSize=TITLE_SIZE,
        subtitleFontSize=SMALL,
        subtitleColor=INK,
        subtitlePadding=8,
        offset=18,
    )
    page = page.properties(padding=20, title=heading)
    return _inked(page.configure(**{**CONFIG, "background": "white"}).to_json(), PAPER)


def _wrapped(remarks: Iterable[str]) -> list[str]:
    """Return remarks as lines: a figure stays with its name, and what a page sets as code is plain in a picture."""
    plain = (remark.replace(" = ", "\u00a0=\u00a0").replace("`", "") for remark in remarks)
    return [line for remark in plain for line in textwrap.wrap(remark, LINE)]


def _written(lines: Sequence[str]) -> Chart:
    """Return lines of text as a chart without axes."""
    values = [{"line": line, "number": number} for number, line in enumerate(lines)]
    text = alt.Chart(alt.InlineData(values=values)).mark_text(align="left", color=INK, fontSize=SMALL)
    chart: Chart = text.encode(text="line:N", x=alt.value(0), y=alt.Y("number:O", axis=None)).properties(
        width=1, height=LINE_HEIGHT * len(lines)
    )
    return chart


def _inked(text: str, inks: Mapping[str, str]) -> str:
    for stand_in, ink in inks.items():
        text = text.replace(stand_in, ink)
    return text
