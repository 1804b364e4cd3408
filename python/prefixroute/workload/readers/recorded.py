"""Recorded agent sessions, one session a line: the re-encoded WEKA coding-agent trace and the LMCache agent traces.

A request says how many leading blocks it keeps of the request before it (of the same agent) and which ids follow, as
runs. When a session began is not in the files: starts are drawn, and the sessions' requests merged in time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from prefixroute.costmodel.assumption import Assumption
from prefixroute.draws import LONGEST, chain
from prefixroute.hashing import BlockHashes
from prefixroute.types import EMPTY_ATTRS
from prefixroute.workload.arrivals import Poisson
from prefixroute.workload.readers.lines import read_rows
from prefixroute.workload.readers.log_pass import LogPass
from prefixroute.workload.readers.record import FirstRow, OpenedLog, Options, TraceRecord
from prefixroute.workload.readers.row import Row, shown
from prefixroute.workload.readers.source import LogFile
from prefixroute.workload.request import Request
from prefixroute.workload.streams import chain_key, stream

NAME = "recorded-sessions"
SESSIONS_PER_HOUR = 60.0
SHARED_SYSTEM: Final = "sessions of one model with equal tools and system lengths share these: an assumption"
UNSHARED_SESSIONS: Final = "block ids are per session: nothing is shared between sessions, not even system prompts"
_SECONDS_PER_HOUR = 3600
_MODELS = ("opus-4-5", "haiku-4-5", "sonnet-4-5", "opus-4-6", "sonnet-4", "opus-4-1")


class _Layout(NamedTuple):
    """How the two files differ."""

    block_size: int
    scoped: bool
    """Ids mean something inside one session only."""


_WEKA = _Layout(64, scoped=True)
_LMCACHE = _Layout(16, scoped=False)


def recognises(sample: FirstRow) -> bool:
    """Return whether the first row is a session with requests."""
    return sample.has("session", "requests")


def open_file(sample: FirstRow, options: Options) -> OpenedLog:
    """Tell the two files apart and say what is drawn."""
    layout = _WEKA if sample.has("tool_tokens") else _LMCACHE
    size = layout.block_size
    if options.block_size not in {None, size}:
        raise sample.row.error(f"the file has blocks of {size} tokens, got {options.block_size}")
    per_hour = SESSIONS_PER_HOUR if options.sessions_per_hour is None else options.sessions_per_hour
    starts = Assumption(
        "sessions_per_hour",
        per_hour,
        "1/h",
        f"starts of sessions are not in the file: Poisson, seed {options.seed}",
        assumed=options.sessions_per_hour is None,
    )
    notes = ["session starts are drawn, times inside a session are recorded"]
    if not layout.scoped:
        notes.append("blocks are 64 bytes of text, 4 bytes counted as a token")
    elif options.share_system:
        notes.append(SHARED_SYSTEM)
    else:
        notes.append(UNSHARED_SESSIONS)

    def read(file: LogFile, reading: LogPass) -> Iterator[TraceRecord]:
        return merged(_sessions(file, layout, options, reading), per_hour, options.seed)

    return OpenedLog(
        size,
        lambda reading: lambda file: read(file, reading),
        has_sessions=True,
        assumptions=(starts,),
        notes=tuple(notes),
    )


def merged(sessions: Iterator[list[TraceRecord]], per_hour: float, seed: int) -> Iterator[TraceRecord]:
    """Yield the requests of all sessions in order of time; only the sessions that run at a time are held."""
    starts = Poisson(per_hour / _SECONDS_PER_HOUR).times(stream(seed, "recorded.starts"))
    waiting: list[tuple[float, int, TraceRecord]] = []
    count = 0
    for session, start in zip(sessions, starts, strict=False):
        while waiting and waiting[0][0] <= start:
            yield heapq.heappop(waiting)[2]
        for record in session:
            arrival = start + record.request.arrival_s
            placed = TraceRecord(record.line, record.request._replace(arrival_s=arrival))
            heapq.heappush(waiting, (arrival, count, placed))
            count += 1
    while waiting:
        yield heapq.heappop(waiting)[2]


def _sessions(file: LogFile, layout: _Layout, options: Options, reading: LogPass) -> Iterator[list[TraceRecord]]:
    def parse(row: Row) -> list[TraceRecord]:
        name = row.text("session")
        if name is None:
            raise row.error("a session must have a name")
        records = list(_expand(row, name, layout, share_system=options.share_system))
        # Sub-agents overlap with the request they were spawned from; a stable sort keeps equal times as recorded.
        records.sort(key=lambda record: record.request.arrival_s)
        return records

    yield from reading.parsed(read_rows(file, reading), parse)


def _expand(row: Row, name: str, layout: _Layout, *, share_system: bool) -> Iterator[TraceRecord]:
    scope = chain_key(0, "session", name) if layout.scoped else 0
    shared = _shared_blocks(row, layout) if share_system and layout.scoped else None
    before: dict[int, NDArray[np.uint64]] = {}
    for at, fields in enumerate(row.sequence("requests")):
        if not isinstance(fields, dict):
            raise row.error(f"requests[{at}] must be an object, got {shown(fields)}")
        request = Row(fields, row.file, row.line)
        agent = request.integer("agent") if "agent" in fields else 0
        tokens = request.integer("in", least=1)
        ids = _ids(request, at, before.get(agent), scope, tokens // layout.block_size)
        if shared is not None:
            length = min(len(shared), len(ids))
            ids = np.concatenate([shared[:length], ids[length:]])
        before[agent] = ids
        prompt = BlockHashes(ids, token_count=tokens, block_size=layout.block_size)
        made = Request(
            request.time("t") / 1000,
            prompt,
            prompt,
            tokens,
            request.integer("out"),
            session=name,
            model=_model(request),
            attrs={"agent": str(agent)} if agent else EMPTY_ATTRS,
        )
        yield TraceRecord(row.line, made)


def _ids(request: Row, at: int, before: NDArray[np.uint64] | None, scope: int, room: int) -> NDArray[np.uint64]:
    """Return the request's block hashes: what it keeps of the request before, then its runs of ids.

    At most ``room``.
    """
    keep = request.integer("keep")
    held = 0 if before is None else len(before)
    if keep > held:
        raise request.error(f"requests[{at}] keeps {keep} blocks of the {held} before")
    runs = [_run(request, at, run) for run in request.sequence("add")]
    blocks, most = keep + sum(count for _, count in runs), min(room, LONGEST)
    if blocks > most:
        raise request.error(f"requests[{at}]: {blocks} blocks, where its tokens and the longest prompt allow {most}")
    fresh = [chain(scope, start, start + count) for start, count in runs]
    kept = [] if before is None else [before[:keep]]
    return np.concatenate([*kept, *fresh]) if kept or fresh else np.empty(0, np.uint64)


def _run(request: Row, at: int, run: Any) -> tuple[int, int]:
    if isinstance(run, list) and len(run) == 2 and all(type(part) is int for part in run):  # noqa: PLR2004 - a pair
        start, count = run
        if 0 <= start < 2**62 and 0 < count <= request.integer("in"):
            return start, count
    raise request.error(f"requests[{at}].add must hold [first id, count] pairs, got {shown(run)}")


def _shared_blocks(row: Row, layout: _Layout) -> NDArray[np.uint64]:
    """Return blocks for tools and system prompt that sessions with the same lengths and model have in common."""
    tools, system = row.integer("tool_tokens"), row.integer("system_tokens")
    requests = row.sequence("requests")
    model = requests[0].get("m") if requests and isinstance(requests[0], dict) else None
    return chain(chain_key(0, "system", model, tools, system), 0, min((tools + system) // layout.block_size, LONGEST))


def _model(request: Row) -> str | None:
    if "m" not in request.fields:
        return None
    index = request.integer("m")
    return _MODELS[index] if index < len(_MODELS) else str(index)
