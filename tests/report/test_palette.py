"""What the palette promises, computed: WCAG 2 contrast, CIELAB distance after Machado et al. (2009) simulation."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from prefixroute.report.html import STYLE
from prefixroute.report.palette import COLOURS, DASHES, GLYPHS, INK, PAPER, SHAPES

LIGHT, DARK = "#f6f8fa", "#151b23"
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE = np.array([0.95047, 1.0, 1.08883])
SIGHT = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


def linear(colour: str) -> NDArray[np.float64]:
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(first: str, second: str) -> float:
    darker, lighter = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (first, second))
    return (lighter + 0.05) / (darker + 0.05)


def lab(light: NDArray[np.float64]) -> NDArray[np.float64]:
    scaled = (XYZ @ np.clip(light, 0, 1)) / WHITE
    f = np.where(scaled > 0.008856, np.cbrt(scaled), 7.787 * scaled + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("background", [LIGHT, DARK])
def test_every_colour_is_readable_on_both_pages(background: str) -> None:
    assert min(contrast(colour, background) for colour in COLOURS) >= 3


@pytest.mark.parametrize("sight", SIGHT)
def test_colours_stay_apart_for_every_reader(sight: str) -> None:
    seen = [lab(SIGHT[sight] @ linear(colour)) for colour in COLOURS]
    assert min(float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2)) >= 12
    assert min(float(np.linalg.norm(a - b)) for a, b in combinations(seen[:6], 2)) >= 15


INKS = re.compile(r"--(ink|soft|faint|paper|card): (#[0-9a-f]{6})")


def test_text_has_the_contrast_that_readers_need_on_page_and_card_in_light_and_dark() -> None:
    """WCAG 2, level AA: 4.5 for text."""
    light, dark = STYLE.split("@media (prefers-color-scheme: dark)")
    for inks in (dict(INKS.findall(light)), dict(INKS.findall(dark))):
        assert set(inks) == {"ink", "soft", "faint", "paper", "card"}
        for text in ("ink", "soft"):
            for ground in ("paper", "card"):
                assert contrast(inks[text], inks[ground]) >= 4.5
    assert contrast(PAPER[INK], "#ffffff") >= 4.5


def test_signs_are_distinct_and_glyphs_match_the_shapes() -> None:
    for signs in (COLOURS, SHAPES, DASHES, GLYPHS):
        assert len(set(signs)) == len(signs)
    assert len(GLYPHS) == len(SHAPES)
