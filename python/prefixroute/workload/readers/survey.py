"""What the first rows of a gateway log tell of all of them."""

from __future__ import annotations

import itertools
from statistics import median
from typing import Final, NamedTuple

from prefixroute.errors import TraceError
from prefixroute.limits import BYTES_PER_TOKEN
from prefixroute.messages import MEDIA_MARK
from prefixroute.volatile import MOST_ID, TOKENS, Changes, Mask, Span, text_of_ids
from prefixroute.workload.readers.fields import FieldMap
from prefixroute.workload.readers.heads import Heads
from prefixroute.workload.readers.layouts import DEFAULT_PATHS
from prefixroute.workload.readers.record import Options
from prefixroute.workload.readers.requests import APART, LEAST_RATE, MOST_RATE, Asked, RequestReader, Settled
from prefixroute.workload.readers.row import Row
from prefixroute.workload.readers.source import LogFile

FIRST_ROWS: Final = 500
"""Requests that are looked at."""
_MOST_ROWS = 20 * FIRST_ROWS
"""Rows of any kind that are looked at for these."""
_STRAY_KEYS = 0.1
"""Share of requests with a session key up to which sessions are inferred for the others."""


class Keys(NamedTuple):
    """How many of the first requests have a session key."""

    keyed: int
    requests: int

    @property
    def few(self) -> bool:
        """Whether nearly all have none, so that one stray key does not stand for the sessions of a log."""
        return self.keyed <= _STRAY_KEYS * self.requests

    def notes(self) -> tuple[str, ...]:
        """Return what to say where some have a key and some have not."""
        if self.keyed in {0, self.requests}:
            return ()
        if self.few:
            return (f"{self.keyed:,} of the first {self.requests:,} requests have a session key, which they keep",)
        return (f"{self.requests - self.keyed:,} of the first {self.requests:,} requests carry no session key",)


class Survey(NamedTuple):
    """What the first rows tell.

    Attributes:
        text: whether prompts are text.
        media: whether any has an image, a sound or a file.
        timed: whether any row has a time.
        keys: how many have a session key.
        chained: whether requests name the response before.
        clocks: what had to be assumed of times.
        absent: which fields of the map no row has.
        bytes_per_token: of the text, by reported prompt tokens; None where there are none that fit.
        implausible: how many requests report prompt tokens that do not fit their text.
        span: the volatile text that most prompts have.
        mask: what takes all volatile texts out.
        head: characters, or tokens where prompts are token ids, that prompts begin with in common.
        answers: whether answers are in the log, as text or token ids.
        lengths: whether lengths of answers are.
        kinds: what prompts were made of, see :class:`~prefixroute.workload.readers.requests.Asked`.
    """

    text: bool
    media: bool
    timed: bool
    keys: Keys
    chained: bool
    clocks: tuple[str, ...]
    absent: tuple[str, ...]
    bytes_per_token: float | None
    implausible: int
    span: Span | None
    mask: Mask
    head: int
    answers: bool
    lengths: bool
    kinds: frozenset[str]

    @property
    def prompt_kind(self) -> str | None:
        """What all prompts are made of; None for token ids, and where some are of another kind than others."""
        (kind,) = self.kinds if len(self.kinds) == 1 else ("tokens",)
        return None if kind == "tokens" else kind


class _Surveyor:
    """Looks at one request after another."""

    def __init__(self, layout: FieldMap, reader: RequestReader) -> None:
        self.reader = reader
        self.absent = {name: paths for name, paths in layout.paths.items() if paths != DEFAULT_PATHS[name]}
        self.clocks: dict[str, None] = {}
        self.sizes: list[tuple[int, int]] = []
        """Bytes and reported tokens of prompts."""
        self.changes, self.id_changes, self.heads = Changes(), Changes(units=TOKENS), Heads()
        self.requests = self.keyed = 0
        self.kinds: set[str] = set()
        self.text = self.media = self.timed = self.chained = self.answers = self.lengths = False

    def look(self, row: Row) -> Asked | None:
        """Take one row in; return what it asks, or None where it is no request."""
        asked = self.reader.asked(row)
        if asked is None:
            return None
        reported = self.reader.reported_prompt_tokens(row)
        self._look_at_fields(asked)
        session = asked.session or self.reader.finder.find("session")
        self.requests, self.keyed = self.requests + 1, self.keyed + (session is not None)
        self.kinds.add(asked.kind)
        self.heads.add(-self.requests if session is None else str(session), asked.prompt)
        if isinstance(asked.prompt, str):
            self.text = True
            self.media = self.media or MEDIA_MARK in asked.prompt
            self.changes.add(asked.prompt)
            if reported:
                self.sizes.append((len(asked.prompt.encode()), reported))
        elif all(
            type(token) is int and 0 <= token <= MOST_ID for token in asked.prompt
        ):  # else some other line's error
            self.id_changes.add(text_of_ids(asked.prompt))
        return asked

    def _look_at_fields(self, asked: Asked) -> None:
        found = self.reader.finder.find
        for name in [name for name in self.absent if found(name) is not None]:
            del self.absent[name]
        if self.reader.has_time():
            self.timed = True
            if (clock := self.reader.clock_note()) is not None:
                self.clocks[clock] = None
        self.chained = self.chained or found("previous_response") is not None
        self.answers = self.answers or bool(asked.answer) or bool(found("output_token_ids"))
        self.lengths = self.lengths or found("output_tokens") is not None

    def rate(self) -> tuple[float | None, int]:
        """Return the bytes a token of prompts whose reported tokens fit their text, and how many do not."""
        fitting = [(size, tokens) for size, tokens in self.sizes if LEAST_RATE <= size / tokens <= MOST_RATE]
        usual = median(size / tokens for size, tokens in fitting) if fitting else 0.0
        fitting = [(size, tokens) for size, tokens in fitting if usual / APART <= size / tokens <= usual * APART]
        implausible = len(self.sizes) - len(fitting)
        if not fitting or len(fitting) < implausible:
            return None, implausible
        return sum(size for size, _ in fitting) / sum(tokens for _, tokens in fitting), implausible


def survey(file: LogFile, layout: FieldMap, options: Options) -> Survey:
    """Look at the first 500 requests of a log.

    Raises:
        TraceError: at a bad line, or if there is no request among the rows that are looked at.
    """
    reading = options.reading()
    reader = RequestReader(layout, options, Settled(16, float(BYTES_PER_TOKEN)), reading)
    seen = _Surveyor(layout, reader)
    rows = itertools.islice(reader.rows(file), _MOST_ROWS)
    for _ in itertools.islice(reading.parsed(rows, seen.look), FIRST_ROWS):
        pass
    if not seen.requests:
        found = f" among the first {_MOST_ROWS:,} rows: {'; '.join(reading.notes())}" if reading.left_out else ""
        raise TraceError(f"{file}: the file holds no request{found}")
    rate, implausible = seen.rate()
    span, mask = (seen.changes if seen.text else seen.id_changes).result()
    nowhere = tuple(
        f"none of the first {seen.requests:,} requests has {name} where the field map says: {', '.join(paths)}"
        for name, paths in seen.absent.items()
    )
    return Survey(
        seen.text, seen.media, seen.timed, Keys(seen.requests if seen.chained else seen.keyed, seen.requests), seen.chained, tuple(seen.clocks), nowhere, rate, implausible,
        span, mask, seen.heads.result(), seen.answers, seen.lengths, frozenset(seen.kinds),
    )  # fmt: skip
