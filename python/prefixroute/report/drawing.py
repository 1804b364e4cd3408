"""Charts to SVG and PNG, without a browser. Vega-Lite through Altair draws; the palette's stand-ins become colours."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import vl_convert

from prefixroute.report.palette import FAINT, INK, PAGE, PAPER

Chart = alt.Chart | alt.LayerChart | alt.FacetChart

WIDTH, HEIGHT = 400, 240
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


LINE = 150
"""Letters in a line of remarks on a picture."""


def svg(chart: Chart) -> str:
    """Return a chart without its legend as SVG, which takes the reader's light or dark from the page around it."""
    drawing = vl_convert.vegalite_to_vega(chart.configure(**CONFIG).to_dict(), vl_version=VEGA_LITE)
    drawing.pop("legends", None)
    return _inked(str(vl_convert.vega_to_svg(drawing)), PAGE)


def png(title: str, charts: Mapping[str, Chart], scale: float = 1.5, remarks: Sequence[str] = ()) -> bytes:
    """Return titled charts as one picture, dark on white, two in a row, with one legend; remarks stand under the title."""
    return bytes(vl_convert.vegalite_to_png(picture(title, charts, remarks), vl_version=VEGA_LITE, scale=scale))


def picture(title: str, charts: Mapping[str, Chart], remarks: Sequence[str] = ()) -> str:
    """Return the picture as Vega-Lite JSON."""
    lines = [line for remark in remarks for line in textwrap.wrap(remark.replace(" = ", "\u00a0=\u00a0"), LINE)]
    drawn = [chart.properties(title=name) for name, chart in charts.items()]
    rows = [alt.hconcat(*drawn[i : i + 2], spacing=48) for i in range(0, len(drawn), 2)]
    page = alt.vconcat(*rows, spacing=28).resolve_scale(color="shared", shape="shared")
    heading = alt.Title(
        title, subtitle=lines, fontSize=17, subtitleFontSize=11, subtitleColor=INK, subtitlePadding=8, offset=18
    )
    page = page.properties(padding=20, title=heading)
    return _inked(page.configure(**{**CONFIG, "background": "white"}).to_json(), PAPER)


def _inked(text: str, inks: Mapping[str, str]) -> str:
    for stand_in, ink in inks.items():
        text = text.replace(stand_in, ink)
    return text
