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
_LEAST_SHARE = 0.1
"""Share of prompts from which on it is worth a word."""
_PLACES = 8
"""Spans of a prompt that are looked at."""

_MONTH = "(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
# Short names as words of their own and no others: what stands beside a number without a year may be "decide 2".
_MONTH_ALONE = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|(?-i:M)ay|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_DAY = r"(?:0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?\b"
_YEAR = r"(?:19|20)\d\d"
_CLOCK = r"(?:[t ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:z|[+-]\d\d:?\d\d)?)?"
_WEEKDAY = "(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|mon|tue|wed|thu|fri|sat|sun)"
# An id that only its label tells: "req-00017", "trace_id=ab12", "Session ID: 7f", and of bare numbers "Request 17:", but no
# "request 17" of a sentence.
_LABEL = "(?:req|request|trace|span|session|conversation|correlation|transaction|message|msg)"
_NO_DATE = rf"(?!\d{{4}}[-/.]\d\d?[-/.]\d|\d{{1,2}}[:/.]\d|{_DAY}(?: of)? {_MONTH})"
_LABELLED = (
    rf"(?=[rtscmuaj])(?:(?:{_LABEL}|(?:{_LABEL}|user|customer|account|chat|call|job|run)[ _-]?id)"
    rf"(?:[\"']? ?[:=#][\"' ]{{0,2}}|[#_-]){_NO_DATE}(?=[a-z_-]*\d)[\w-]{{1,{LONGEST}}}"
    rf"|{_LABEL} \d+(?=:\D|[])\n]))"
)
_KINDS = {
    "id": (
        r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b(?=[0-9a-f]*[0-9])[0-9a-f]{16,}\b"
        r"|[0-7][0-9a-hjkmnp-tv-z]{25}(?![0-9a-z])"  # a ULID, which may follow a prefix and "_"
        rf"|{_LABELLED}"
    ),
    "date": (
        r"(?=[\djfmasondtw])(?:"  # as days and months begin
        rf"\b\d{{4}}-\d\d-\d\d{_CLOCK}"
        rf"|\b(?:{_WEEKDAY},? )?(?:\d{{1,2}}\.? {_MONTH} \d{{4}}|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}})\b"
        rf"|\b(?:{_WEEKDAY},? )?(?:{_DAY}\.?(?: of)? {_MONTH_ALONE}(?:,? {_YEAR}\b)?"
        rf"|{_MONTH_ALONE} {_DAY}(?![.:/]\d)(?:,? {_YEAR}\b)?)"
        r"|\b\d{1,2}/\d{1,2}/\d{2,4}\b"
        rf"|\b\d{{1,2}}\.\d{{1,2}}\.{_YEAR}\b(?!\.\d)|\b{_YEAR}(?:/\d\d?/\d\d?|\.\d\d?\.\d\d?)\b(?!\.\d){_CLOCK}"
        rf"|\b{_YEAR}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:[t_-]?[0-2]\d[0-5]\d(?:[0-5]\d)?)?z?\b)"
    ),
    "time": r"\b\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?(?: ?[ap]m\b)?",
    "number": r"\b\d{9,}\b",
}
# Most characters stand inside of a word: looking back before anything is tried halves the time.
_SPANS = re.compile(
    f"(?<![a-z0-9])(?:{'|'.join(f'(?P<{kind}>{pattern})' for kind, pattern in _KINDS.items())})", re.IGNORECASE
)


def mask(text: str) -> str:
    """Return the text with every date, time, id and long number of its head replaced by the name of its kind."""
    head, rest = text[:HEAD_CHARACTERS], text[HEAD_CHARACTERS:]
    return _SPANS.sub(lambda match: f"<{match.lastgroup}>", head) + rest


class Span(NamedTuple):
    """The first changing text in the head of prompts.

    Attributes:
        kind: ``date``, ``time``, ``id`` or ``number``.
        characters: what comes before it, in the median prompt.
        share: prompts that have one of this kind in this place, of all prompts looked at.
        ends_head: whether half of these prompts or more begin with one text that ends where it stands: it is what they
            differ by.
    """

    kind: str
    characters: int
    share: float
    ends_head: bool


class _Seen:
    """What stands in one place of the prompts, all of one kind."""

    __slots__ = ("heads", "starts", "values")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.values: Counter[str] = Counter()
        self.heads: Counter[int] = Counter()

    def span(self, kind: str, prompts: int) -> Span | None:
        """Return it if it changes: no value is in half of the prompts that have it.

        What fewer than half of all prompts have must end a head: dates that users write here and there are no fault.
        """
        count = len(self.starts)
        if count < _LEAST_SHARE * prompts or 2 * self.values.most_common(1)[0][1] >= count:
            return None
        ends_head = 2 * self.heads.most_common(1)[0][1] >= count
        if not ends_head and 2 * count < prompts:
            return None
        return Span(kind, sorted(self.starts)[count // 2], count / prompts, ends_head)


class Spans:
    """Collects the first spans of each prompt by their order in it: a date that stays may stand before a time that changes."""

    def __init__(self) -> None:
        """Start with no prompt."""
        self._prompts = 0
        self._places: list[dict[str, _Seen]] = []

    def add(self, text: str) -> None:
        """Look at the head of one more prompt."""
        self._prompts += 1
        for place, match in enumerate(itertools.islice(_SPANS.finditer(text[:HEAD_CHARACTERS]), _PLACES)):
            if place == len(self._places):
                self._places.append({})
            seen = self._places[place].setdefault(match.lastgroup or "", _Seen())
            seen.starts.append(match.start())
            seen.values[match.group()] += 1
            seen.heads[hash(text[: match.start()])] += 1

    def result(self) -> Span | None:
        """Return the first that changes and that a tenth of the prompts or more have; of two, the one that more have."""
        for kinds in self._places:
            spans = [span for kind, seen in kinds.items() if (span := seen.span(kind, self._prompts))]
            if spans:
                return max(spans, key=lambda span: span.share)
        return None
