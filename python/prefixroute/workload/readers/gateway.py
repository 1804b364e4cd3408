"""Logs of a gateway or an engine, one request a line: OpenAI-style messages, a prompt's text, or its token ids.

Where each field is says a :class:`FieldMap`. Text is cut into blocks of bytes that stand for ``block_size`` tokens:
4 bytes a token, or as many as the log's own ``prompt_tokens`` tell. Prompts of different models share nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from prefixroute.costmodel.assumption import Assumption
from prefixroute.errors import TokensError, TraceError
from prefixroute.hashing import BlockHashes, hash_blocks
from prefixroute.limits import BYTES_PER_TOKEN, MAX_BLOCK_SIZE
from prefixroute.messages import MEDIA_MARK, MEDIA_TOKENS, CanonicalForm
from prefixroute.types import Namespace
from prefixroute.workload.readers.fields import DEFAULT_PATHS, FieldMap, Finder, seconds_of, unit_of
from prefixroute.workload.readers.heads import Heads
from prefixroute.workload.readers.lines import (
    ZONELESS,
    Row,
    date_of,
    is_zoneless,
    read_rows,
    shown,
    time_of,
    whole,
)
from prefixroute.workload.readers.messages import conversation_text
from prefixroute.workload.readers.reading import Reading
from prefixroute.workload.readers.record import Opened, Options, Record, Sample
from prefixroute.workload.readers.volatile import Span, Spans, mask
from prefixroute.workload.request import cached_tokens

NAME = "gateway"
BLOCK_SIZE = 16
REORDER_S = 600.0
"""Logs are written when a request ends; few take longer than this."""
_CALIBRATION_ROWS = 500
_STRAY_KEYS = 0.1
"""Share of requests with a session key up to which sessions are inferred for the others."""
_EPOCHS_FROM = 1e9
"""Seconds since 1970 from which on a number is the time of a log: 2001."""
_SMALL_TIMES = (
    "times are numbers too small for a date and are taken as seconds; where they are in another unit, say so in a field "
    'map: time_unit = "ms"'
)
_PROMPTS = ("token_ids", "messages", "prompt")


def recognises(sample: Sample) -> bool:
    """Return whether the first row has a time and a prompt of any kind where the usual layouts have them."""
    if sample.fields is None:
        return False
    finder = Finder(DEFAULT_PATHS)
    finder.take(sample.fields)
    return finder.find("time") is not None and any(finder.find(name) is not None for name in _PROMPTS)


def open_file(sample: Sample, options: Options) -> Opened:
    """Settle how many bytes a token has, and whether there are session keys, from the first 500 rows."""
    layout = options.fields or FieldMap()
    size = options.block_size or layout.block_size or BLOCK_SIZE
    survey = _survey(sample, layout, Reading(skip_bad_lines=options.skip_bad_lines))
    per_token = layout.bytes_per_token or survey.bytes_per_token or BYTES_PER_TOKEN
    unit = max(1, round(per_token * size / BYTES_PER_TOKEN))
    if unit > MAX_BLOCK_SIZE:
        hint = "give a smaller block_size, or bytes_per_token where prompt_tokens are not those of the whole prompt"
        found = f"a block of {size} tokens at {per_token:.4g} bytes a token must have {BYTES_PER_TOKEN * MAX_BLOCK_SIZE} bytes at most"
        raise TraceError(f"{sample.path}:{sample.line}: {found}: {hint}")

    def records(path: Path, reading: Reading, *, masked: bool = False) -> Iterator[Record]:
        return _Reader(layout, size, unit, masked=masked).records(path, reading)

    assumptions, remarks = _remarks(layout, survey, BYTES_PER_TOKEN * unit / size)
    notes = (*remarks, *survey.clocks, *survey.absent, *survey.keys.notes())
    reorder_s = REORDER_S if layout.reorder_s is None else layout.reorder_s
    masked = partial(records, masked=True) if survey.span else None
    head = round(survey.head / per_token) if survey.text else survey.head
    return Opened(
        size,
        records,
        not survey.keys.few,
        reorder_s,
        assumptions,
        notes,
        masked,
        survey.span,
        head,
        per_token,
        has_stray_keys=survey.keys.few and survey.keys.keyed > 0,
    )


class _Keys(NamedTuple):
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


class _Survey(NamedTuple):
    """What the first rows tell."""

    text: bool
    media: bool
    keys: _Keys
    clocks: tuple[str, ...]
    """What had to be assumed of times."""
    absent: tuple[str, ...]
    """Which fields of the map no row has."""
    bytes_per_token: float | None
    span: Span | None
    head: int
    """Characters, or tokens where prompts are token ids, that prompts begin with in common."""
    answers: bool
    """Whether answers are in the log, as text or token ids."""
    lengths: bool
    """Whether lengths of answers are."""


def _survey(sample: Sample, layout: FieldMap, reading: Reading) -> _Survey:
    reader = _Reader(layout, BLOCK_SIZE, BLOCK_SIZE)
    text = media = answers = lengths = False
    requests = keyed = bytes_seen = tokens_seen = 0
    spans, heads = Spans(), Heads()
    clocks: dict[str, None] = {}
    absent = {name: paths for name, paths in layout.paths.items() if paths != DEFAULT_PATHS[name]}
    rows = itertools.islice(read_rows(sample.path, reading), _CALIBRATION_ROWS)
    for prompt, reported in reading.parsed(rows, reader.prompt_and_length):
        found = reader.finder.find
        for name in [name for name in absent if found(name) is not None]:
            del absent[name]
        if (clock := reader.clock_note()) is not None:
            clocks[clock] = None
        answers = answers or bool(found("output") or found("output_token_ids"))
        lengths = lengths or found("output_tokens") is not None
        session = found("session")
        requests, keyed = requests + 1, keyed + (session is not None)
        if prompt is not None:
            heads.add(reading.lines if session is None else str(session), prompt)
        if not isinstance(prompt, str):
            continue
        text = True
        media = media or MEDIA_MARK in prompt
        spans.add(prompt)
        if reported:
            bytes_seen += len(prompt.encode())
            tokens_seen += reported
    per_token = bytes_seen / tokens_seen if tokens_seen else None
    keys = _Keys(keyed, requests)
    nowhere = tuple(
        f"none of the first {requests:,} requests has {name} where the field map says: {', '.join(paths)}"
        for name, paths in absent.items()
    )
    return _Survey(
        text, media, keys, tuple(clocks), nowhere, per_token, spans.result(), heads.result(), answers, lengths
    )


def _remarks(layout: FieldMap, survey: _Survey, per_token: float) -> tuple[tuple[Assumption, ...], tuple[str, ...]]:
    figures, notes = _unanswered(survey)
    if not survey.text:
        return figures, notes
    if layout.bytes_per_token:
        source, assumed = "given by the user", False
    elif survey.bytes_per_token:
        source, assumed = f"the log's own prompt tokens, first {_CALIBRATION_ROWS} rows", False
    else:
        source, assumed = "4 bytes a token, no prompt tokens in the log", True
    figures += (Assumption("bytes_per_token", per_token, "bytes", source, assumed),)
    if survey.media:
        flat = "flat figure for an image, sound or file"
        figures += (Assumption("media_tokens", MEDIA_TOKENS, "tokens", flat, assumed=True),)
    return figures, (
        "prompts are text: blocks are cut by bytes, not by a tokenizer",
        *notes,
        *_spoilt(survey, per_token),
    )


def _spoilt(survey: _Survey, per_token: float) -> tuple[str, ...]:
    """Return what to say of something that changes, if it is what ends the head that prompts have in common."""
    span = survey.span
    if span is None or not span.ends_head:
        return ()
    what = f"{'an' if span.kind == 'id' else 'a'} {span.kind}"
    note = (
        f"{100 * span.share:.0f} % of the prompts have {what} that changes, about {span.characters / per_token:,.0f} tokens "
        "from their start: nothing behind it is shared by prompts in which it differs"
    )
    return (note,)


def _unanswered(survey: _Survey) -> tuple[tuple[Assumption, ...], tuple[str, ...]]:
    """Return what has to be assumed, and said, where a log leaves out the answers or even their lengths."""
    if survey.answers:
        return (), ()
    note = (
        "answers are not in the log: what a next turn repeats of an answer counts as computed again, though an engine that "
        "has just written it holds it; recompute and floor are too high by that"
    )
    if survey.lengths:
        return (), (note,)
    source = "neither answers nor their lengths are in the log: decoding takes no time"
    return (Assumption("output_tokens", 0, "tokens a request", source, assumed=True),), (note,)


class _Reader:
    """Turns rows into records."""

    def __init__(self, layout: FieldMap, block_size: int, unit: int, *, masked: bool = False) -> None:
        """Cut text into blocks of ``4 * unit`` bytes, which stand for ``block_size`` tokens."""
        self.masked = masked
        self.layout = layout
        self.block_size = block_size
        self.unit = unit
        self.finder = Finder(layout.paths)
        self.form = CanonicalForm()
        self._namespaces: dict[str | None, Namespace | None] = {None: None}

    def records(self, path: Path, reading: Reading) -> Iterator[Record]:
        """Yield the records of a file."""
        return reading.parsed(read_rows(path, reading), self._record)

    def prompt_and_length(self, row: Row) -> tuple[str | list[Any] | None, int | None]:
        """Return a row's prompt, and how many tokens the log says it has."""
        self.finder.take(row.fields)
        return self.prompt_of(row), self.reported_prompt_tokens(row)

    def _record(self, row: Row) -> Record:
        self.finder.take(row.fields)
        model = self._text(row, "model")
        prompt = self.prompt_of(row)
        if prompt is None:
            places = ", ".join(self.layout.paths["messages"])
            raise row.error(f"no prompt: looked for {', '.join(_PROMPTS)}, as in {places}; a field map names another")
        reported = self.reported_prompt_tokens(row)
        output_tokens = self._count(row, "output_tokens")
        if isinstance(prompt, str):
            prompt = mask(prompt) if self.masked else prompt
            blocks, context = self._cut_text(prompt, self._answer(row), model)
            tokens = blocks.token_count
            if output_tokens is None:
                output_tokens = context.token_count - tokens
        else:
            answer_ids = self.finder.find("output_token_ids")
            blocks, context = self._cut_ids(row, prompt, [] if answer_ids is None else answer_ids, model)
            tokens = blocks.token_count
            output_tokens = context.token_count - tokens if output_tokens is None else output_tokens
        if not tokens:
            raise row.error("the prompt is empty")
        if context is not blocks:
            cached = cached_tokens(tokens, context.token_count - tokens)
            context = context.head(min(len(context), cached // self.block_size), cached)
        return Record(
            row.line,
            self._arrival(row),
            blocks,
            context,
            tokens,
            output_tokens,
            self._text(row, "session"),
            self._text(row, "tenant"),
            model,
            self._cached(row, tokens, reported, text=isinstance(prompt, str)),
        )

    def _cached(self, row: Row, tokens: int, reported: int | None, *, text: bool) -> int | None:
        """Return the cached tokens the log reports, on the scale of ``tokens``.

        Of a text whose tokens nobody reports, as many as it has bytes are believed.
        """
        cached = self._count(row, "cached_tokens")
        if cached is None:
            return None
        if reported:
            return min(tokens, round(cached * tokens / reported))
        most = math.ceil(tokens * BYTES_PER_TOKEN * self.unit / self.block_size) if text else tokens
        if cached > most:
            raise row.error(f"cached_tokens must be a whole number, 0 to the prompt's {most}, got {cached}")
        return min(tokens, cached)

    def prompt_of(self, row: Row) -> str | list[Any] | None:
        """Return the prompt: text, or a list of token ids, or None."""
        ids = self.finder.find("token_ids")
        if ids is not None:
            if not isinstance(ids, list):
                raise row.error(f"token ids must be a list, got {shown(ids)}")
            return ids
        messages = self.finder.find("messages")
        if messages is None:
            prompt = self.finder.find("prompt")
            if isinstance(prompt, list) and prompt and type(prompt[0]) is int:
                return prompt
            if prompt is not None and not isinstance(prompt, str):
                raise row.error(f"prompt must be text or a list of token ids, got {shown(prompt)}")
            return prompt
        if not isinstance(messages, list):
            raise row.error(f"messages must be a list, got {shown(messages)}")
        try:
            tools, system = self.finder.find("tools"), self.finder.find("system")
            return conversation_text(self.form, messages, tools=tools, system=system)
        except TokensError as error:
            raise row.error(str(error)) from error

    def _answer(self, row: Row) -> str:
        try:
            return self.form.answer(self.finder.find("output"))
        except TokensError as error:
            raise row.error(str(error)) from error

    def reported_prompt_tokens(self, row: Row) -> int | None:
        """Return the prompt tokens the log reports, with those that it counts apart as read from or written to a cache."""
        tokens = self._count(row, "prompt_tokens")
        if tokens is None:
            return None
        read = self._count(row, "cached_tokens")
        written = self._count(row, "cache_write_tokens") or 0
        if self._counts_apart(reads=read is not None):
            tokens += written + (read or 0)
        if read is not None and read > tokens:
            hint = "where the log counts them apart, say so in a field map: cached_apart = true"
            raise row.error(f"cached_tokens must be a whole number, 0 to the prompt's {tokens}, got {read}; {hint}")
        return tokens

    def _counts_apart(self, *, reads: bool) -> bool:
        """Return whether the prompt tokens leave out those of the cache, as ``input_tokens`` of Anthropic's API do.

        ``prompt_tokens`` of OpenAI's have them all, whatever is named beside them; so have ``input_tokens`` of its Responses
        API, which names the cached ones in details.
        """
        if self.layout.cached_apart is not None:
            return self.layout.cached_apart
        names = [self.finder.path_of(name).split(".")[-1] for name in ("prompt_tokens", *["cached_tokens"] * reads)]
        return names in (["input_tokens"], ["input_tokens", "cache_read_input_tokens"])

    def _cut_text(self, prompt: str, answer: str, model: str | None) -> tuple[BlockHashes, BlockHashes]:
        data = prompt.encode()
        text = data + answer.encode()
        hashes = hash_blocks(text, self.unit, self._namespace(model))
        bytes_per_block = BYTES_PER_TOKEN * self.unit

        def tokens(size: int) -> int:
            return math.ceil(size * self.block_size / bytes_per_block)

        context = BlockHashes(hashes.array, token_count=tokens(len(text)), block_size=self.block_size)
        prompt_blocks = context.head(len(data) // bytes_per_block, tokens(len(data)))
        return prompt_blocks, context if answer else prompt_blocks

    def _cut_ids(self, row: Row, prompt: list[Any], answer: Any, model: str | None) -> tuple[BlockHashes, BlockHashes]:
        if not isinstance(answer, list):
            raise row.error(f"output token ids must be a list, got {shown(answer)}")
        try:
            context = hash_blocks(prompt + answer, self.block_size, self._namespace(model))
        except (TokensError, TypeError, OverflowError) as error:
            raise row.error(str(error)) from error
        blocks = context.head(len(prompt) // self.block_size, len(prompt))
        return blocks, context if answer else blocks

    def _namespace(self, model: str | None) -> Namespace | None:
        if model not in self._namespaces:
            self._namespaces[model] = Namespace(model=model or "")
        return self._namespaces[model]

    def _text(self, row: Row, name: str) -> str | None:
        value = self.finder.find(name)
        if value is None or isinstance(value, str):
            return value
        if type(value) is int:
            return str(value)
        raise row.error(f"{name} must be text, got {shown(value)}")

    def _count(self, row: Row, name: str) -> int | None:
        value = self.finder.find(name)
        return None if value is None else whole(row, name, value)

    def _arrival(self, row: Row) -> float:
        ended = self.finder.find("end_time")
        if ended is not None:
            duration = self.finder.find("duration")
            return self._time(row, "end_time", ended) - (0 if duration is None else self._duration(row, duration))
        started = self.finder.find("time")
        if started is None:
            raise row.error(f"no time: looked for {', '.join(self.layout.paths['time'])}")
        return self._time(row, "time", started)

    def _time(self, row: Row, name: str, value: Any) -> float:
        value = _number(value)
        if isinstance(value, str):
            return date_of(row, "time", value)
        return seconds_of(time_of(row, "time", value), self._time_unit(name))

    def _time_unit(self, name: str) -> str | None:
        return self.layout.time_unit or unit_of(self.finder.path_of(name))

    def _duration(self, row: Row, value: Any) -> float:
        unit = self.layout.duration_unit or unit_of(self.finder.path_of("duration")) or "s"
        return seconds_of(time_of(row, "duration", value, least=0), unit)

    def clock_note(self) -> str | None:
        """Return what has to be assumed to read the row's time, if anything; a wrong time is another's error."""
        name = "time" if self.finder.find("end_time") is None else "end_time"
        value = _number(self.finder.find(name))
        if isinstance(value, str):
            return ZONELESS if is_zoneless(value) else None
        if type(value) not in {int, float} or abs(value) >= _EPOCHS_FROM or self._time_unit(name) is not None:
            return None
        return _SMALL_TIMES


def _number(value: Any) -> Any:
    """Return a text that is a number as one, and anything else as it is."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
