"""Logs of a gateway, an engine or an exporter, one request a line.

Messages of any API, a prompt's text, or its token ids.

Where each field is says a :class:`FieldMap`; the usual layouts need none. Text is cut into blocks of bytes that stand
for ``block_size`` tokens: as many as the log's own ``prompt_tokens`` tell, prompt by prompt, or 4 bytes a token.
Prompts of different models or cache salts share nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prefixroute.costmodel.assumption import GIVEN, Assumption
from prefixroute.errors import TraceError
from prefixroute.limits import BYTES_PER_TOKEN, MAX_BLOCK_SIZE
from prefixroute.messages import MEDIA_TOKENS
from prefixroute.volatile import Span
from prefixroute.workload.readers.bundles import unbundled
from prefixroute.workload.readers.cutting import EvenCutter
from prefixroute.workload.readers.fields import FieldMap
from prefixroute.workload.readers.log_pass import LogPass
from prefixroute.workload.readers.record import BURST, FirstRow, OpenedLog, Options, TraceRecord
from prefixroute.workload.readers.requests import RequestReader, Settled, has_request
from prefixroute.workload.readers.source import LogFile
from prefixroute.workload.readers.survey import FIRST_ROWS, Survey, survey

NAME = "gateway"
BLOCK_SIZE: Final = 16
REORDER_S: Final = 600.0
"""Logs are written when a request ends; few take longer than this."""
UNANSWERED: Final = (
    "answers are not in the log: what a next turn repeats of an answer counts as computed again, though an engine that "
    "has just written it holds it; recompute and floor are too high by that"
)


def recognises(sample: FirstRow) -> bool:
    """Return whether the first row has a prompt where the usual layouts have them, or is a row beside such rows."""
    return sample.fields is not None and any(has_request(row.fields) for row in unbundled(sample.row))


def open_file(sample: FirstRow, options: Options) -> OpenedLog:
    """Settle, from the first 500 rows, the tokens of text, times and session keys, and what is volatile."""
    layout = options.fields or FieldMap()
    size = options.block_size or layout.block_size or BLOCK_SIZE
    found = survey(sample.file, layout, options)
    (measured, _), (span, mask) = found.rate(), found.volatile()
    rate = layout.bytes_per_token or measured or float(BYTES_PER_TOKEN)
    cutter = EvenCutter(size, rate)
    if cutter.unit > MAX_BLOCK_SIZE:
        most = f"must have {BYTES_PER_TOKEN * MAX_BLOCK_SIZE} bytes at most: give a smaller block_size"
        raise TraceError(f"{sample.file}:{sample.line}: a block of {size} tokens at {rate:.4g} bytes a token {most}")
    by_request = measured is not None and layout.bytes_per_token is None
    settled = Settled(
        size, rate if by_request else cutter.bytes_per_token, by_request, found.timed, mask, found.chained
    )

    def records(reading: LogPass) -> Callable[[LogFile], Iterator[TraceRecord]]:
        return RequestReader(layout, options, settled, reading).records

    figures, notes = _remarks(layout, found, span, settled.bytes_per_token)
    head = round(found.head / rate) if found.text else found.head
    reorder_s = REORDER_S if layout.reorder_s is None else layout.reorder_s
    return OpenedLog(
        size,
        records,
        not found.keys.few,
        reorder_s if found.timed else 0.0,
        figures,
        (*notes, *found.clocks, *found.absent, *found.keys.notes(), *([] if found.timed else [BURST])),
        span,
        head,
        rate if found.text else 1.0,
        prompt_kind=found.prompt_kind,
    )


def _remarks(
    layout: FieldMap, found: Survey, span: Span | None, rate: float
) -> tuple[tuple[Assumption, ...], tuple[str, ...]]:
    figures, notes = _unanswered(found)
    if not found.text:
        return figures, (*notes, *_spoilt(span, 1.0, "tokens"))
    figures += (Assumption("bytes_per_token", rate, "bytes", *_source_of_rate(layout, found)),)
    if found.media:
        flat = "flat figure for an image, sound or file"
        figures += (Assumption("media_tokens", MEDIA_TOKENS, "tokens", flat, assumed=True),)
    cut = "prompts are text: blocks are cut by bytes, not by a tokenizer"
    return figures, (cut, *notes, *_spoilt(span, rate, "characters"))


def _source_of_rate(layout: FieldMap, found: Survey) -> tuple[str, bool]:
    """Return where the bytes of a token are from, and whether they are assumed."""
    measured, implausible = found.rate()
    if layout.bytes_per_token:
        return GIVEN, False
    if measured:
        return f"the log's own prompt tokens, first {FIRST_ROWS} rows; each prompt has those it reports", False
    if implausible:
        return "4 bytes a token, prompt tokens in the log do not fit its text", True
    return "4 bytes a token, no prompt tokens in the log", True


def _spoilt(span: Span | None, rate: float, units: str) -> tuple[str, ...]:
    """Return what to say of something volatile in the heads of prompts, of which a token has ``rate`` characters."""
    if span is None:
        return ()
    what = f"{'an' if span.kind == 'id' else 'a'} {span.kind}"
    note = (
        f"{100 * span.share:.0f} % of the prompts differ from the nearest earlier one by {what} of about {span.length} {units}, "
        f"about {span.characters / rate:,.0f} tokens from their start: nothing behind it is shared, though about "
        f"{span.gain / rate:,.0f} tokens behind it are the same"
    )
    return (note,)


def _unanswered(found: Survey) -> tuple[tuple[Assumption, ...], tuple[str, ...]]:
    """Return what has to be assumed, and said, where a log leaves out the answers or even their lengths."""
    if found.answers:
        return (), ()
    if found.lengths:
        return (), (UNANSWERED,)
    source = "neither answers nor their lengths are in the log: decoding takes no time"
    return (Assumption("output_tokens", 0, "tokens per request", source, assumed=True),), (UNANSWERED,)
