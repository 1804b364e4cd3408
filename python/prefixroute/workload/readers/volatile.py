"""Dates, times and ids in the head of prompts: what changes with every request and ends every shared prefix there."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import NamedTuple

HEAD_CHARACTERS = 16_384
"""Where they matter most; what comes later can spoil less."""
LONGEST = 64
"""Characters that a date, time or id hardly exceeds."""
_LEAST_SHARE = 0.5
_PLACES = 8
"""Spans of a prompt that are looked at."""

_MONTH = "(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_KINDS = {
    "id": r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b(?=[0-9a-f]*[0-9])[0-9a-f]{16,}\b",
    "date": (
        r"\b\d{4}-\d\d-\d\d(?:[t ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:z|[+-]\d\d:?\d\d)?)?"
        rf"|\b\d{{1,2}}\.? {_MONTH} \d{{4}}\b|\b{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}\b"
        r"|\b\d{1,2}/\d{1,2}/\d{2,4}\b"
    ),
    "time": r"\b\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?(?: ?[ap]m\b)?",
    "number": r"\b\d{9,}\b",
}
_SPANS = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _KINDS.items()), re.IGNORECASE)


def mask(text: str) -> str:
    """Return the text with every date, time, id and long number of its head replaced by the name of its kind."""
    head, rest = text[:HEAD_CHARACTERS], text[HEAD_CHARACTERS:]
    return _SPANS.sub(lambda match: f"<{match.lastgroup}>", head) + rest


class Span(NamedTuple):
    """The first changing text in the head of most prompts.

    Attributes:
        kind: ``date``, ``time``, ``id`` or ``number``.
        characters: what comes before it, in the median prompt.
        share: prompts that have one of this kind in this place, of all prompts looked at.
    """

    kind: str
    characters: int
    share: float


class Spans:
    """Collects the first spans of each prompt by their order in it: a date that stays may stand before a time that changes."""

    def __init__(self) -> None:
        """Start with no prompt."""
        self._prompts = 0
        self._places: list[dict[str, tuple[list[int], Counter[str]]]] = []

    def add(self, text: str) -> None:
        """Look at the head of one more prompt."""
        self._prompts += 1
        for place, match in enumerate(itertools.islice(_SPANS.finditer(text[:HEAD_CHARACTERS]), _PLACES)):
            if place == len(self._places):
                self._places.append({})
            starts, values = self._places[place].setdefault(match.lastgroup or "", ([], Counter()))
            starts.append(match.start())
            values[match.group()] += 1

    def result(self) -> Span | None:
        """Return the first that most prompts have, all of one kind, and of which no value is in half of the prompts."""
        for kinds in self._places:
            kind, (starts, values) = max(kinds.items(), key=lambda item: len(item[1][0]))
            share = len(starts) / self._prompts
            if share >= _LEAST_SHARE and 2 * values.most_common(1)[0][1] < self._prompts:
                return Span(kind, sorted(starts)[len(starts) // 2], share)
        return None
