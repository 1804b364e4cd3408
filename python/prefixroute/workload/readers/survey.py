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
from prefixroute.workload.readers.heads import FirstPrompts
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


class Survey:
    """What the first rows tell, looked at one after another.

    Attributes:
        requests: how many there are.
        text: whether prompts are text.
        media: whether any has an image, a sound or a file.
        timed: whether any row has a time.
        chained: whether requests name the response before.
        clocks: what had to be assumed of times, in the order in which it was met.
        answers: whether answers are in the log, as text or token ids.
        lengths: whether lengths of answers are.
        kinds: what prompts were made of, see :class:`~prefixroute.workload.readers.requests.Asked`.
    """

    def __init__(self, layout: FieldMap, reader: RequestReader) -> None:
        """Have seen nothing."""
        self._reader = reader
        self._absent = {name: paths for name, paths in layout.paths.items() if paths != DEFAULT_PATHS[name]}
        self._sizes: list[tuple[int, int]] = []
        """Bytes and reported tokens of prompts."""
        self._changes, self._id_changes, self._heads = Changes(), Changes(units=TOKENS), FirstPrompts()
        self.clocks: dict[str, None] = {}
        self.requests = self._keyed = 0
        self.kinds: set[str] = set()
        self.text = self.media = self.timed = self.chained = self.answers = self.lengths = False

    def look(self, row: Row) -> Asked | None:
        """Take one row in; return what it asks, or None where it is no request."""
        asked = self._reader.asked(row)
        if asked is None:
            return None
        reported = self._reader.reported_prompt_tokens(row)
        self._look_at_fields(asked)
        session = asked.session or self._reader.finder.find("session")
        self.requests, self._keyed = self.requests + 1, self._keyed + (session is not None)
        self.kinds.add(asked.kind)
        self._heads.add(-self.requests if session is None else str(session), asked.prompt)
        if isinstance(asked.prompt, str):
            self.text = True
            self.media = self.media or MEDIA_MARK in asked.prompt
            self._changes.add(asked.prompt)
            if reported:
                self._sizes.append((len(asked.prompt.encode()), reported))
        elif all(type(token) is int and 0 <= token <= MOST_ID for token in asked.prompt):  # else another line's error
            self._id_changes.add(text_of_ids(asked.prompt))
        return asked

    def _look_at_fields(self, asked: Asked) -> None:
        found = self._reader.finder.find
        for name in [name for name in self._absent if found(name) is not None]:
            del self._absent[name]
        if self._reader.has_time():
            self.timed = True
            if (clock := self._reader.clock_note()) is not None:
                self.clocks[clock] = None
        self.chained = self.chained or found("previous_response") is not None
        self.answers = self.answers or bool(asked.answer) or bool(found("output_token_ids"))
        self.lengths = self.lengths or found("output_tokens") is not None

    @property
    def keys(self) -> Keys:
        """How many requests have a session key: all, where they name the response before."""
        return Keys(self.requests if self.chained else self._keyed, self.requests)

    @property
    def prompt_kind(self) -> str | None:
        """What all prompts are made of; None for token ids, and where some are of another kind than others."""
        (kind,) = self.kinds if len(self.kinds) == 1 else ("tokens",)
        return None if kind == "tokens" else kind

    @property
    def absent(self) -> tuple[str, ...]:
        """Which fields of the map no row has, in words."""
        return tuple(
            f"none of the first {self.requests:,} requests has {name} where the field map says: {', '.join(paths)}"
            for name, paths in self._absent.items()
        )

    @property
    def head(self) -> int:
        """Characters, or tokens where prompts are token ids, that prompts begin with in common."""
        return self._heads.result()

    def volatile(self) -> tuple[Span | None, Mask]:
        """Return the volatile text that most prompts have, and what takes all volatile texts out."""
        return (self._changes if self.text else self._id_changes).result()

    def rate(self) -> tuple[float | None, int]:
        """Return the bytes a token of prompts whose reported tokens fit their text, and how many do not.

        None where there are none that fit.
        """
        fitting = [(size, tokens) for size, tokens in self._sizes if LEAST_RATE <= size / tokens <= MOST_RATE]
        usual = median(size / tokens for size, tokens in fitting) if fitting else 0.0
        fitting = [(size, tokens) for size, tokens in fitting if usual / APART <= size / tokens <= usual * APART]
        implausible = len(self._sizes) - len(fitting)
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
    found = Survey(layout, reader)
    rows = itertools.islice(reader.rows(file), _MOST_ROWS)
    for _ in itertools.islice(reading.parsed(rows, found.look), FIRST_ROWS):
        pass
    if not found.requests:
        notes = reading.tally.notes
        among = f" among the first {_MOST_ROWS:,} rows: {'; '.join(notes)}" if notes else ""
        raise TraceError(f"{file}: the file holds no request{among}")
    return found
