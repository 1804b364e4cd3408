"""One row of a gateway log as a request.

What is asked, what is answered, when, for whom, and what the engine billed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from prefixroute.errors import TokensError
from prefixroute.hashing import BlockHashes, hash_blocks
from prefixroute.messages import CanonicalForm
from prefixroute.types import EMPTY_ATTRS, Namespace
from prefixroute.volatile import Mask, ids_of_text, text_of_ids
from prefixroute.workload.readers.bundles import unbundled
from prefixroute.workload.readers.chains import OUTSIDE, ResponseChains
from prefixroute.workload.readers.chunks import joined
from prefixroute.workload.readers.cutting import Cut, EvenCutter, Ruler, answered
from prefixroute.workload.readers.fields import FieldMap, Finder, seconds_of, unit_of
from prefixroute.workload.readers.kinds import other_kind
from prefixroute.workload.readers.layouts import COUNTED_APART, DEFAULT_PATHS
from prefixroute.workload.readers.lines import read_rows
from prefixroute.workload.readers.log_pass import LogPass
from prefixroute.workload.readers.otel import span_row
from prefixroute.workload.readers.prompts import Prompt, PromptParts, answer_of, prompt_of
from prefixroute.workload.readers.record import Options, TraceRecord
from prefixroute.workload.readers.row import ZONELESS, Row, date_of, is_zoneless, shown, text_of, time_of, whole
from prefixroute.workload.readers.source import LogFile
from prefixroute.workload.request import REPLICA, USER, Masked, Request

LEAST_RATE: Final = 1.5
MOST_RATE: Final = 8.0
"""Bytes a token of text that any tokenizer has in the mean of a prompt. A log that says otherwise counts something
else."""
APART: Final = 2.5
"""How many times the rate of its log a prompt's may be, or how small a part of it."""
IMPLAUSIBLE: Final = (
    "requests report prompt tokens that do not fit the length of their text: their figures are not used"
)
_EPOCHS_FROM = 1e9
"""Seconds since 1970 from which on a number is the time of a log: 2001."""
SMALL_TIMES: Final = (
    "times are numbers too small for a date and are taken as seconds; where they are in another unit, say so in a field "
    'map: time_unit = "ms"'
)
PROMPTS: Final = ("token_ids", "messages", "prompt")
"""Fields that a prompt may be in."""
_OWN = frozenset({"model", "tenant", "session"})


class Settled(NamedTuple):
    """What was settled of a log before it is read: by its user, or by its first rows.

    Attributes:
        block_size: tokens a block.
        bytes_per_token: the rate of its text.
        by_request: whether prompts are cut so that each has its reported tokens.
        timed: whether rows have times; else all come at once.
        mask: what is volatile in prompts.
        chained: whether requests name the response before, so that one that names none begins a session.
    """

    block_size: int
    bytes_per_token: float
    by_request: bool = False
    timed: bool = True
    mask: Mask = Mask()
    chained: bool = False


MOST_NAMES, MOST_LETTERS = 6, 30
"""Fields of a row that an error names, and letters of each."""


class Asked(NamedTuple):
    """What a row says of prompt and answer.

    Attributes:
        prompt: text or token ids.
        answer: text that a next prompt repeats.
        session: the conversation that it continues by the id of a response, if it does.
        kind: what the prompt was made of: ``messages``, ``text`` or ``tokens``.
    """

    prompt: Prompt
    answer: str
    session: str | None
    kind: str


class RequestReader:
    """Turns the rows of one pass over a log into records."""

    def __init__(self, layout: FieldMap, options: Options, settled: Settled, reading: LogPass) -> None:
        """Begin a pass."""
        self.finder = Finder(layout.paths)
        self._layout, self._settled, self._reading = layout, settled, reading
        self._form = options.canonical if layout.dropped is None else CanonicalForm(frozenset(layout.dropped))
        self._named = [name for name, _ in options.where if name not in _OWN]
        self._namespaces: dict[tuple[str | None, str | None], Namespace | None] = {(None, None): None}
        self._chains = ResponseChains()
        self._cutter, self._masked = self._new_cutter(), self._new_cutter()

    def _new_cutter(self) -> EvenCutter | Ruler:
        kind = Ruler if self._settled.by_request else EvenCutter
        return kind(self._settled.block_size, self._settled.bytes_per_token)

    def rows(self, file: LogFile) -> Iterator[Row]:
        """Yield the rows of a file, each span of an export and each streamed answer as one row."""
        for line in read_rows(file, self._reading):
            for row in unbundled(line):
                yield Row(joined(span_row(row.fields)), row.file, row.line)

    def records(self, file: LogFile) -> Iterator[TraceRecord]:
        """Yield the records of a file."""
        return self._reading.parsed(self.rows(file), self._record)

    def asked(self, row: Row) -> Asked | None:
        """Look at a row; return what it asks and answers, or None where it is no request, which is then counted.

        Raises:
            TraceError: it is one without a prompt, or with a prompt of no known form.
        """
        self.finder.take(row.fields)
        kind = other_kind(row.fields, self.finder.follow)
        if kind is not None:
            self._reading.tally.left_out[kind] += 1
            return None
        found = prompt_of(row, self.finder, self._form)
        if found is None:
            raise row.error(_missing("prompt", row))
        answer = answer_of(row, self.finder, self._form)
        if isinstance(found, PromptParts):
            return self._chained(found, answer)
        if not found:
            raise row.error("the prompt is empty")
        return Asked(found, answer, None, "text" if isinstance(found, str) else "tokens")

    def _chained(self, parts: PromptParts, answer: str) -> Asked:
        """Put the conversation that a request continues by the id of a response before it."""
        own, before = self.finder.find("response_id"), self.finder.find("previous_response")
        earlier = self._chains.earlier(before) if isinstance(before, str) else None
        if before is not None and earlier is None:
            self._reading.tally.remarks[OUTSIDE] += 1
        text = parts.conversation if earlier is None else earlier.text + parts.conversation
        session = earlier.session if earlier is not None else own if isinstance(own, str) else None
        if isinstance(own, str) and own.startswith("resp"):
            self._chains.add(own, text + answer, session or own)
        named = session if self._settled.chained or before is not None else None
        return Asked(parts.head + text, answer, named, "messages")

    def _record(self, row: Row) -> TraceRecord | None:
        asked = self.asked(row)
        if asked is None:
            return None
        reported, output = self.reported_prompt_tokens(row), self.count(row, "output_tokens")
        if isinstance(asked.prompt, str):
            if reported is not None and not self.is_plausible(asked.prompt, reported):
                self._reading.tally.remarks[IMPLAUSIBLE] += 1
                reported = None
            cut, masked = self._cut_text(row, asked, reported, output)
            rate = self._settled.bytes_per_token
        else:
            (cut, masked), rate = self._cut_ids(row, asked.prompt, output), 1.0
        request = Request(
            self._arrival(row) if self._settled.timed else 0.0,
            cut.prompt,
            cut.context,
            cut.prompt_tokens,
            cut.output_tokens,
            session=self.text(row, "session") or asked.session,
            tenant=self.text(row, "tenant"),
            model=self.text(row, "model"),
            reported_hit_tokens=self._cached(row, cut.prompt_tokens, reported, rate),
            attrs=self._attrs(row),
            masked=masked,
        )
        return TraceRecord(row.line, request)

    def is_plausible(self, text: str, reported: int) -> bool:
        """Return whether a text can have as many tokens: by what tokenizers do, and by the rate of its log."""
        rate = len(text.encode()) / max(1, reported)
        usual = self._settled.bytes_per_token
        return LEAST_RATE <= rate <= MOST_RATE and usual / APART <= rate <= usual * APART

    def _attrs(self, row: Row) -> Mapping[str, str]:
        found = ((name, self.finder.follow(name)) for name in self._named)
        attrs = {name: str(value) for name, value in found if isinstance(value, str | int | float)}
        replica, user = self.text(row, "replica"), self.text(row, "user")
        if replica is not None:
            attrs[REPLICA] = sys.intern(replica)
        if user is not None and user != self.text(row, "tenant"):
            attrs[USER] = sys.intern(user)
        return attrs or EMPTY_ATTRS

    def _cut_text(self, row: Row, asked: Asked, reported: int | None, output: int | None) -> tuple[Cut, Masked | None]:
        prompt = str(asked.prompt)
        namespace = self._namespace(self.text(row, "model"), self.text(row, "salt"))
        answer = asked.answer.encode()
        cut = self._cutter.cut(prompt.encode(), answer, namespace, reported, output)
        mask = self._settled.mask
        if not mask:
            return cut, None
        text = mask(prompt)
        if text is prompt and not self._settled.by_request:
            return cut, None
        masked = self._masked.cut(text.encode(), answer, namespace, reported or cut.prompt_tokens, output)
        return cut, Masked(masked.prompt, masked.context)

    def _cut_ids(self, row: Row, prompt: list[Any], output: int | None) -> tuple[Cut, Masked | None]:
        answer = self.finder.find_parsed("output_token_ids")
        answer = [] if answer is None else answer
        if not isinstance(answer, list):
            raise row.error(f"output token ids must be a list, got {shown(answer)}")
        namespace, mask = self._namespace(self.text(row, "model"), self.text(row, "salt")), self._settled.mask
        try:
            cut = self._blocks_of(prompt, answer, namespace, output)
            text = text_of_ids(prompt) if mask else ""
        except (TokensError, TypeError, OverflowError) as error:
            raise row.error(str(error)) from error
        without = mask(text) if mask else text
        if without == text:
            return cut, None
        masked = self._blocks_of(ids_of_text(without).tolist(), answer, namespace, output)
        return cut, Masked(masked.prompt, masked.context)

    def _blocks_of(self, prompt: list[int], answer: list[int], namespace: Namespace | None, output: int | None) -> Cut:
        """Return prompt and answer in blocks, of token ids."""
        size = self._settled.block_size
        context = hash_blocks(prompt + answer, size, namespace)
        blocks: BlockHashes = context.head(len(prompt) // size, len(prompt))
        return answered(blocks, context if answer else blocks, len(answer), output)

    def _namespace(self, model: str | None, salt: str | None) -> Namespace | None:
        key = model, salt
        if key not in self._namespaces:
            self._namespaces[key] = Namespace(model=model or "", salt=salt or "")
        return self._namespaces[key]

    def _cached(self, row: Row, tokens: int, reported: int | None, rate: float) -> int | None:
        """Return the cached tokens the log reports, on the scale of ``tokens``.

        Of a text whose tokens nobody reports, as many as it has bytes are believed.
        """
        cached = self.count(row, "cached_tokens")
        if cached is None:
            return None
        if reported:
            return min(tokens, round(cached * tokens / reported))
        if self.count(row, "prompt_tokens") is not None and rate != 1:
            return None  # of a prompt whose reported tokens are not believed, nor are these
        most = math.ceil(tokens * rate)
        if cached > most:
            raise row.error(f"cached_tokens must be a whole number, 0 to the prompt's {most}, got {cached}")
        return min(tokens, cached)

    def reported_prompt_tokens(self, row: Row) -> int | None:
        """Return the prompt tokens that the log reports, with those that it counts apart as read or written."""
        tokens = self.count(row, "prompt_tokens")
        if tokens is None:
            return None
        read = self.count(row, "cached_tokens")
        written = self.count(row, "cache_write_tokens") or 0
        if self._counts_apart(reads=read is not None):
            tokens += written + (read or 0)
        if read is not None and read > tokens:
            hint = "where the log counts them apart, say so in a field map: cached_apart = true"
            raise row.error(f"cached_tokens must be a whole number, 0 to the prompt's {tokens}, got {read}; {hint}")
        return tokens or None

    def _counts_apart(self, *, reads: bool) -> bool:
        """Return whether the prompt tokens leave out those of the cache, as ``input_tokens`` of Anthropic's API do.

        ``prompt_tokens`` of OpenAI's have them all, whatever is named beside them; so have ``input_tokens`` of its
        Responses API, which names the cached ones in details.
        """
        if self._layout.cached_apart is not None:
            return self._layout.cached_apart
        name = self.finder.path_of("prompt_tokens").split(".")[-1]
        cached = self.finder.path_of("cached_tokens").split(".")[-1] if reads else ""
        return cached in COUNTED_APART.get(name, ())

    def text(self, row: Row, name: str) -> str | None:
        """Return a field that is a text, or a whole number as one.

        Raises:
            TraceError: it is neither.
        """
        return text_of(row, name, self.finder.find(name))

    def count(self, row: Row, name: str) -> int | None:
        """Return a field that is a whole number, or None.

        Raises:
            TraceError: it is something else.
        """
        value = self.finder.find(name)
        return None if value is None else whole(row, name, _number(value))

    def has_time(self) -> bool:
        """Return whether the row has a time."""
        return self.finder.find("end_time") is not None or self.finder.find("time") is not None

    def _arrival(self, row: Row) -> float:
        ended = self.finder.find("end_time")
        if ended is not None:
            duration = self.finder.find("duration")
            return self._time(row, "end_time", ended) - (0 if duration is None else self._duration(row, duration))
        started = self.finder.find("time")
        if started is None:
            raise row.error(_missing("time", row))
        return self._time(row, "time", started)

    def _time(self, row: Row, name: str, value: Any) -> float:
        value = _number(value)
        if isinstance(value, str):
            return date_of(row, "time", value)
        return seconds_of(time_of(row, "time", value), self._time_unit(name))

    def _time_unit(self, name: str) -> str | None:
        return self._layout.time_unit or unit_of(self.finder.path_of(name))

    def _duration(self, row: Row, value: Any) -> float:
        unit = self._layout.duration_unit or unit_of(self.finder.path_of("duration")) or "s"
        return seconds_of(time_of(row, "duration", value, least=0), unit)

    def clock_note(self) -> str | None:
        """Return what has to be assumed to read the row's time, if anything; a wrong time is another's error."""
        name = "time" if self.finder.find("end_time") is None else "end_time"
        value = _number(self.finder.find(name))
        if isinstance(value, str):
            return ZONELESS if is_zoneless(value) else None
        if type(value) not in {int, float} or abs(value) >= _EPOCHS_FROM or self._time_unit(name) is not None:
            return None
        return SMALL_TIMES


def _missing(what: str, row: Row) -> str:
    """Return what a row has instead of what the field map looks for in it, as far as a line holds."""
    names = [str(name)[:MOST_LETTERS] for name in row.fields]
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return (
        f"no {what} in its fields {', '.join(names[:MOST_NAMES]) or '(none)'}{more}; a field map names another place "
        "(docs/traces.md)"
    )


def has_request(fields: dict[str, Any]) -> bool:
    """Return whether a row has a prompt of any kind where the usual layouts have one, or is known to be none."""
    row = joined(span_row(fields))
    finder = Finder(DEFAULT_PATHS)
    finder.take(row)
    return other_kind(row, finder.follow) is not None or any(finder.find(name) is not None for name in PROMPTS)


def _number(value: Any) -> Any:
    """Return a text that is a number as one, and anything else as it is."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
