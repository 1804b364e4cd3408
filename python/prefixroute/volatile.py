"""Text in the head of prompts that changes with every request, and so ends every shared prefix there.

Nothing is looked for by what it looks like. Each of the first prompts is compared with the nearest earlier one, that
with which it shares most pieces of text: where the two part and go on alike a little later, what stands between is
volatile. Media are content, and stand in prompts as digests: they end a comparison. So does a message of its own.

This is the one finder of such text: the readers of logs feed it what they read, ``lint`` and ``plan`` request bodies, a
Router a sample of its prompts. Prompts are in the frames of :mod:`prefixroute.messages`; token ids are compared as a
text of one character each, see :func:`text_of_ids`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from prefixroute.messages import FRAME, MEDIA_MARK

HEAD_CHARACTERS: Final = 65_536
"""Characters of a prompt that are compared. What changes later leaves this much in common."""
LONGEST: Final = 256
"""Characters of the longest text that is taken to be volatile: longer ones are content."""
AGREEING: Final = 256
"""Characters that must be the same behind it."""


class Units(NamedTuple):
    """What prompts are compared in, and how much of it each rule is about.

    Attributes:
        head: units of a prompt that are compared.
        longest: units of the longest text that is taken to be volatile.
        agreeing: units that must be the same behind it.
        window: units by which the place is found where two prompts go on alike.
        context: units around a volatile text by which it is found in other prompts.
        joined: volatile texts that are no further apart are one: a date and a time.
        words: whether a change is widened to the words that it is in.
    """

    head: int
    longest: int
    agreeing: int
    window: int
    context: int
    joined: int
    words: bool


CHARACTERS: Final = Units(HEAD_CHARACTERS, LONGEST, AGREEING, window=32, context=24, joined=16, words=True)
TOKENS: Final = Units(HEAD_CHARACTERS // 4, LONGEST // 4, AGREEING // 4, window=8, context=6, joined=4, words=False)
"""A token is about 4 characters."""
IDS_KIND: Final = "run of token ids"
"""Kind of what changes in prompts of token ids."""
MOST_PROMPTS: Final = 500
LEAST_SHARE: Final = 0.1
"""Share of prompts from which on it is worth a word."""
_MOST_RULES = 8
_MEDIA_CHARACTERS = 48
"""Characters of a medium's kind and digest."""
_INSTRUCTIONS = ("system", "developer", "tools")
_WORD = re.compile(r"""[^\s\x00-\x1f"'<>()\[\]{},;]*""")
_PIECE = 8
_ONE_IN = 32
"""One piece in so many is an anchor, by its hash."""
_LATEST = 8
"""Prompts that are remembered for each anchor."""
_ABOUT, _CANDIDATES = 2, 32
"""How many pieces less a prompt may share to be as near, and how many such prompts are looked at."""
_EXAMPLES = 3
_FIRST_ID_CHARACTER: Final = 0x10000
_MOST_IDS: Final = 1_000_000
MOST_ID: Final = 2**32 - 1
"""The largest token id."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d{1,2}[/.]\d{1,2}[/.]\d{2,4}|\d{1,2}:\d\d")


class Span(NamedTuple):
    """A volatile text that several prompts have at about the same place.

    Attributes:
        kind: what it looks like: ``date``, ``number``, ``id`` (one word with a digit in it), ``text`` or
            :data:`IDS_KIND`.
        characters: what comes before it, in the median prompt.
        length: its own characters, in the median prompt.
        gain: characters behind it that the nearest earlier prompt has too, in the median prompt.
        share: prompts that have it, of those compared.
        example: where it stands in the first of them, for the eyes of who has the log; empty of token ids. So are the
            next three.
        values: what stands there, up to three.
        prompt: which prompt is the first that has it, counted from 0.
        start: where it begins there.
    """

    kind: str
    characters: int
    length: int
    gain: int
    share: float
    example: str = ""
    values: tuple[str, ...] = ()
    prompt: int = 0
    start: int = 0


class Mask:
    """Takes volatile texts out of prompts, found by what stands before and behind each of them."""

    def __init__(self, rules: list[tuple[str, str, bool]] | None = None) -> None:
        """Take the text before and behind each, and whether it is the first of its prompt. Pickles as these."""
        self.rules = rules or []
        self._patterns = [
            re.compile(f"{re.escape(before)}(.{{0,{LONGEST}}}?){re.escape(behind)}", re.DOTALL)
            for before, behind, _ in self.rules
        ]

    def __bool__(self) -> bool:
        """Return whether there is anything to take out."""
        return bool(self.rules)

    def __call__(self, text: str) -> str:
        """Return the text without what is volatile in its head."""
        head, rest = text[: HEAD_CHARACTERS + LONGEST], text[HEAD_CHARACTERS + LONGEST :]
        for pattern, (_, _, first) in zip(self._patterns, self.rules, strict=True):
            found = pattern.match(head) if first else pattern.search(head)
            if found is not None:
                head = head[: found.start(1)] + head[found.end(1) :]
        return head + rest


class _Change(NamedTuple):
    """A volatile text of one prompt: where it begins and ends, and how many characters behind it agree."""

    start: int
    end: int
    agreeing: int


class Changes:
    """Collects the first prompts, and compares each with the nearest earlier one."""

    def __init__(self, kept: int | None = None, units: Units = CHARACTERS) -> None:
        """Start with no prompt.

        Args:
            kept: characters of each that are held: a gain is counted as far as these reach. ``None`` = little more than
                the head.
            units: what the prompts are made of.
        """
        self._kept, self._units = units.head + units.longest if kept is None else kept, units
        self._heads: list[str] = []
        self._anchors: dict[int, list[int]] = {}
        self._changes: list[list[_Change]] = []

    def add(self, text: str) -> None:
        """Look at the head of one more prompt."""
        if len(self._heads) == MOST_PROMPTS:
            return
        head = text[: self._kept]
        anchors = _anchors(head[: self._units.head])
        nearest = self._nearest(head, anchors)
        self._changes.append([] if nearest is None else list(_changes(head, self._heads[nearest], self._units)))
        for anchor in anchors:
            prompts = self._anchors.setdefault(anchor, [])
            prompts.append(len(self._heads))
            del prompts[:-_LATEST]
        self._heads.append(head)

    def _nearest(self, head: str, anchors: list[int]) -> int | None:
        """Return the earlier prompt that shares most pieces.

        Of some that share about as many, the one that begins most alike.
        """
        votes = Counter(prompt for anchor in anchors for prompt in self._anchors.get(anchor, ()))
        if not votes:
            return None
        least = max(votes.values()) - _ABOUT
        near = sorted((prompt for prompt, count in votes.items() if count >= least), reverse=True)[:_CANDIDATES]
        return max(near, key=lambda prompt: (_common(head, 0, self._heads[prompt], 0), prompt))

    def result(self) -> tuple[Span | None, Mask]:
        """Return the volatile text that most prompts have, if a tenth of them or more have one, and what takes all out.

        Its share counts prompts that have any.
        """
        groups = self._groups()
        rules = [self._rule(group) for group in groups if len({prompt for prompt, _ in group}) > 1][:_MOST_RULES]
        share = self._share(sum(bool(changes) for changes in self._changes))
        if not rules or share < LEAST_SHARE:
            return None, Mask()
        return self._span(groups[0])._replace(share=share), Mask(rules)

    def spans(self) -> list[Span]:
        """Return every volatile text that a tenth of the prompts have at about one place, the most frequent first."""
        found = [self._span(group) for group in self._groups()]
        return [span for span in found if span.share >= LEAST_SHARE]

    def _share(self, prompts: int) -> float:
        return prompts / max(1, len(self._heads) - 1)

    def _groups(self) -> list[list[tuple[int, _Change]]]:
        """Return the changes, as pairs with their prompts, by what stands behind them and about where.

        The most common first.
        """
        alike: dict[str, list[tuple[int, _Change]]] = {}
        longest = self._units.longest
        for prompt, changes in enumerate(self._changes):
            for change in changes:
                behind = self._heads[prompt][change.end : change.end + self._units.context]
                alike.setdefault(behind, []).append((prompt, change))
        groups: list[list[tuple[int, _Change]]] = []
        for found in alike.values():
            last = -longest - 1
            for prompt, change in sorted(found, key=lambda one: one[1].start):
                if change.start - last > longest:
                    groups.append([])
                groups[-1].append((prompt, change))
                last = change.start
        return sorted(groups, key=len, reverse=True)

    def _rule(self, group: list[tuple[int, _Change]]) -> tuple[str, str, bool]:
        """Return what stands before and behind the widest of some changes: it has the others in it."""
        prompt, change = max(group, key=lambda one: one[1].end - one[1].start)
        head, context = self._heads[prompt], self._units.context
        first = change.start <= context
        before = head[0 if first else change.start - context : change.start]
        return before, head[change.end : change.end + context], first

    def _span(self, group: list[tuple[int, _Change]]) -> Span:
        changes, words = [change for _, change in group], self._units.words
        values = [self._heads[prompt][change.start : change.end] for prompt, change in group]
        prompt, first = group[0]
        context = self._units.context
        example = self._heads[prompt][max(0, first.start - context) : first.end + context]
        return Span(
            _kind(values) if words else IDS_KIND,
            _median([change.start for change in changes]),
            _median([change.end - change.start for change in changes]),
            _median([change.agreeing for change in changes]),
            self._share(len({prompt for prompt, _ in group})),
            " ".join(re.sub(r"[\x00-\x1f]", " ", example).split()) if words else "",
            tuple(dict.fromkeys(value.strip().rstrip(".,;:") for value in values if words))[:_EXAMPLES],
            prompt,
            first.start,
        )


def text_of_ids(ids: Any) -> str:
    """Return token ids as a text of one character each, of which none is a control character or a space.

    Ids of 1,000,000 and above share characters with smaller ones: no vocabulary has them.

    Args:
        ids: whole numbers, in a list or an array of one dimension.
    """
    numbers = np.asarray(ids, np.int64) % _MOST_IDS + _FIRST_ID_CHARACTER
    return numbers.astype("<u4").tobytes().decode("utf-32-le")


def ids_of_text(text: str) -> NDArray[np.uint32]:
    """Return the token ids that :func:`text_of_ids` has made a text of."""
    return np.frombuffer(text.encode("utf-32-le"), "<u4").astype(np.uint32) - np.uint32(_FIRST_ID_CHARACTER)


def _median(values: list[int]) -> int:
    return sorted(values)[len(values) // 2]


def _kind(values: list[str]) -> str:
    """Return what texts look like. It names what was found and finds nothing."""
    texts = [value for value in values if value]
    if all(map(_DATE.search, texts)):
        return "date"
    if all(re.fullmatch(r"[\d.,:/ -]+", text) for text in texts):
        return "number"
    words = all(len(text.split()) == 1 for text in texts)
    return "id" if words and any(letter.isdecimal() for text in texts for letter in text) else "text"


def _anchors(head: str) -> list[int]:
    """Return hashes of some pieces of a text: of the same pieces wherever they stand."""
    units = np.frombuffer(head.encode("utf-16-le", "surrogatepass"), "<u2").astype(np.uint32)
    if len(units) < _PIECE:
        return []
    hashes = np.zeros(len(units) - _PIECE + 1, np.uint32)
    for place in range(_PIECE):
        hashes = hashes * np.uint32(0x9E3779B1) + units[place : place + len(hashes)]
    hashes ^= hashes >> np.uint32(15)
    lowest = np.minimum.reduceat(
        hashes, np.arange(0, len(hashes), LONGEST)
    )  # a text that repeats itself may have no others
    chosen = np.concatenate([hashes[hashes % _ONE_IN == 0], lowest])
    return [int(anchor) for anchor in np.unique(chosen)]


def _changes(text: str, earlier: str, units: Units) -> Iterator[_Change]:
    """Yield what is volatile in a text, seen from an earlier one; both go on alike behind the last of them."""
    found: list[_Change] = []
    at = other = 0
    while len(found) <= _MOST_RULES:
        same = _common(text, at, earlier, other)
        at, other = at + same, other + same
        ends = _resumed(text, at, earlier, other, units)
        if ends is None or MEDIA_MARK in text[max(0, at - _MEDIA_CHARACTERS) : ends[0]] or FRAME in text[at : ends[0]]:
            break
        agreeing = _agreeing(text, ends[0], earlier, ends[1])
        start, end = _words(text, at, ends[0]) if units.words else (at, ends[0])
        if found and start - found[-1].end < units.joined:
            start = found.pop().start
        found.append(_Change(start, end, agreeing))
        at, other = ends
    while found and found[-1].agreeing < units.agreeing:
        found.pop()
    yield from (change for change in found if change.end - change.start <= units.longest)


def _agreeing(text: str, at: int, earlier: str, other: int) -> int:
    """Return how many characters agree from a place in each text.

    Of the same message, unless that is the system prompt or tools.

    What a user writes at the end of a message may be followed by the same answer twice; that makes it no fault.
    """
    same = _common(text, at, earlier, other)
    frame = text.rfind(FRAME, 0, at)
    if frame < 0 or text.startswith(_INSTRUCTIONS, frame + 1):
        return same
    end = text.find(FRAME, at, at + same)
    return same if end < 0 else end - at


def _resumed(text: str, at: int, earlier: str, other: int, units: Units) -> tuple[int, int] | None:
    """Return where two texts go on alike after they parted, or None if they do not within ``units.longest``."""
    if at >= len(text) or other >= len(earlier):
        return None
    for skipped in range(units.longest + 1):
        window = earlier[other + skipped : other + skipped + units.window]
        if len(window) < units.window:
            return None
        place = text.find(window, at, at + units.longest + units.window)
        if place >= 0:
            return place, other + skipped
    return None


def _words(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the bounds of the words that a stretch is in."""
    before = text[max(0, start - LONGEST) : start][::-1]
    head, tail = _WORD.match(before), _WORD.match(text, end)
    whole = start == end or not text[start:end][-1:].isspace()
    return start - (head.end() if head else 0), tail.end() if tail and whole else end


def _common(one: str, at: int, other: str, place: int) -> int:
    """Return how many characters two texts have in common from a place in each."""
    most = min(len(one) - at, len(other) - place)
    low, step = 0, 64
    while low < most:
        length = min(step, most - low)
        if one[at + low : at + low + length] == other[place + low : place + low + length]:
            low, step = low + length, 2 * step
        elif length == 1:
            break
        else:
            step = length // 2
            most = min(most, low + length)
    return low
