"""From the records of files to a workload: in order of time, from second zero, with a session where one can be told."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from prefixroute.errors import TraceError
from prefixroute.recent import Recent
from prefixroute.workload.readers.log_pass import LogPass
from prefixroute.workload.readers.record import TraceRecord
from prefixroute.workload.readers.source import LogFile
from prefixroute.workload.request import CacheEntry, Request

_OPEN_SESSIONS = 1_000_000
_LEAST_BLOCKS = 2


def in_order(
    files: Iterable[tuple[LogFile, Iterator[TraceRecord]]], window_s: float, reading: LogPass
) -> Iterator[Request]:
    """Yield the requests of some files by arrival, holding those of the last ``window_s`` seconds.

    Raises:
        TraceError: at a record that is older than one already handed out.
    """
    waiting: list[tuple[float, int, Request]] = []
    latest = given = float("-inf")
    located = ((file, record) for file, records in files for record in records)
    for number, (file, (line, request)) in enumerate(located):
        arrival = request.arrival_s
        if arrival < given:
            held = f"; rows may be {window_s:g} s out of order" if window_s else ""
            went = f"time goes back from {given:.3f} to {arrival:.3f} s{held}"
            reading.refuse(line, TraceError(f"{file}:{line}: {went}"))
            continue
        if not window_s:
            given = arrival
            yield request
            continue
        heapq.heappush(waiting, (arrival, number, request))
        latest = max(latest, arrival)
        while waiting[0][0] < latest - window_s:
            given, _, ready = heapq.heappop(waiting)
            yield ready
    while waiting:
        yield heapq.heappop(waiting)[2]


class SessionFinder:
    """Tells conversations apart where no key does: a prompt that extends an earlier prompt continues its session.

    The earlier prompt must have two full blocks or more, and is extended once: the next prompt that extends it too is
    a session of its own (two chats behind one system prompt are not one chat). The last million sessions are held.
    """

    def __init__(self) -> None:
        """Start with no session."""
        self._open: Recent[int, str] = Recent(_OPEN_SESSIONS)
        self._count = 0

    def session_of(self, prompt: NDArray[np.uint64]) -> str | None:
        """Return the session of the next request, or None where its prompt is too short to tell."""
        if len(prompt) < _LEAST_BLOCKS:
            return None
        hashes = prompt.tolist()
        session = None
        for block in reversed(hashes[_LEAST_BLOCKS - 1 :]):
            session = self._open.pop(block, None)
            if session is not None:
                break
        if session is None:
            self._count += 1
            session = f"inferred-{self._count}"
        self._open[hashes[-1]] = session
        return session


def placed(requests: Iterator[Request], sessions: SessionFinder | None) -> Iterator[Request]:
    """Yield requests as a workload has them: the first arrives at 0.

    With ``sessions``, those without one get an inferred one.
    """
    start: float | None = None
    for request in requests:
        start = request.arrival_s if start is None else start
        session = request.session
        if session is None and sessions is not None:
            session = sessions.session_of(request.prompt.array)
        held = request.prompt_tokens + request.output_tokens
        yield Request(  # not `_replace`, which takes three times as long
            request.arrival_s - start,
            request.prompt,
            request.context,
            request.prompt_tokens,
            request.output_tokens,
            session=session,
            tenant=request.tenant,
            model=request.model,
            entry=None if session is None else CacheEntry(session, held),
            reported_hit_tokens=request.reported_hit_tokens,
            attrs=request.attrs,
            masked=request.masked,
        )
