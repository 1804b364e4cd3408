"""The requests of a log that were asked for: of a time, a model, a tenant, or with any other field of a value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prefixroute.workload.readers.log_pass import LogPass
from prefixroute.workload.readers.record import Options, TraceRecord
from prefixroute.workload.request import Request

EARLIER: Final = "before the time asked for"
LATER: Final = "after the time asked for"
LEFT_OUT: Final = "with another {name} or none"
"""Why a request was not asked for: of what field its value is another."""
_FIELDS = frozenset({"model", "tenant", "session"})


def selected(records: Iterator[TraceRecord], options: Options, reading: LogPass) -> Iterator[TraceRecord]:
    """Yield the records that the options ask for; the others are counted as left out."""
    if options.since is None and options.until is None and not options.where:
        yield from records
        return
    for record in records:
        unasked = _unasked(record.request, options)
        if unasked is None:
            yield record
        else:
            reading.tally.left_out[unasked] += 1


def _unasked(request: Request, options: Options) -> str | None:
    """Return why a request was not asked for, or None."""
    if options.since is not None and request.arrival_s < options.since:
        return EARLIER
    if options.until is not None and request.arrival_s >= options.until:
        return LATER
    for name, value in options.where:
        found = getattr(request, name) if name in _FIELDS else request.attrs.get(name)
        if found is None or str(found) != value:
            return LEFT_OUT.format(name=name)
    return None
