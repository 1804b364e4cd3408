"""Colours and marks that stay apart on white, on black, and for readers who see fewer colours."""

from __future__ import annotations

COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#9600ff", "#e1004b", "#9678ff",
    "#c378a5", "#d200b4", "#5a7878", "#965a1e", "#87962d", "#69693c",
)  # fmt: skip
"""Three of Okabe and Ito (2008), then those that stay furthest from all before them. Each has a contrast of 3 or more
on both pages. Any two lie 12 or more apart in CIELAB for normal sight, protanopia, deuteranopia and tritanopia, and any
two of the first six 15."""

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")
"""A second sign beside the colour, for print and for colour blindness. Seven, so that colour and mark repeat together
after 84."""

GLYPHS = ("●", "■", "▲", "◆", "✚", "▼", "▶")
"""The marks as characters, in the order of :data:`SHAPES`."""

DASHES = ((1, 0), (8, 4), (3, 3), (12, 4, 3, 4), (6, 2))
"""Strokes of lines, so that one line shows below another."""

INK = "#010203"
"""Stands for the colour of text; a page replaces it by a CSS variable, a picture by what :data:`PAPER` says."""

FAINT = "#010204"
"""Stands for the colour of grid lines."""

PAPER = {INK: "#1f2328", FAINT: "#d8dee4"}
"""Dark on white, for pictures."""

PAGE = {INK: "var(--ink)", FAINT: "var(--faint)"}
"""The reader's choice of light or dark, for pages."""


def colour(number: int) -> str:
    """Return the colour of the policy at this place of the list."""
    return COLOURS[number % len(COLOURS)]


def shape(number: int) -> str:
    """Return the mark of the policy at this place of the list."""
    return SHAPES[number % len(SHAPES)]


def glyph(number: int) -> str:
    """Return the mark of the policy at this place of the list as a character."""
    return GLYPHS[number % len(GLYPHS)]


def dash(number: int) -> list[int]:
    """Return the stroke of the policy at this place of the list, as lengths of ink and gap."""
    return list(DASHES[number % len(DASHES)])
