"""Request bodies of a log, with what else its rows say of caching: the reader of traces keeps none of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from prefixroute.errors import PrefixRouteError, TraceError
from prefixroute.plan.prompts import Prompt
from prefixroute.providers import Diagnosis, diagnosis_of
from prefixroute.workload import FieldMap, LogFile, log_files
from prefixroute.workload.readers.fields import Finder, seconds_of, unit_of
from prefixroute.workload.readers.kinds import other_kind
from prefixroute.workload.readers.layouts import DEFAULT_PATHS
from prefixroute.workload.readers.lines import read_rows
from prefixroute.workload.readers.log_pass import LogPass

MOST_ROWS = 20_000
"""Rows whose bodies are looked at; what is wrong with prompts shows in the first."""
MOST_BYTES = 256 * 1024 * 1024
"""Bytes of different texts that are held; rows after that are not looked at."""
_BODIES = ("", "request.", "body.", "request.body.")
_RESPONSES = ("response", "response.body", "response_body", "body.response")
"""Where rows keep the provider's response, which may say why it missed the cache."""
_ROUTING = {
    "key": tuple(f"{body}prompt_cache_key" for body in _BODIES),
    "workspace": ("workspace", "workspace_id", "project", "project_id", "organization", "metadata.workspace"),
    "cache_control": tuple(f"{body}cache_control" for body in _BODIES),
}


class LogEntry(NamedTuple):
    """One row: its line, time in seconds, blocks of its prompt, and who sent it how. None is not said."""

    line: int
    time_s: float | None
    prompt: Prompt
    marked: bool
    session: str | None
    model: str | None
    key: str | None
    workspace: str | None
    diagnosis: Diagnosis | None = None


def read_entries(
    path: str | Path | Sequence[str | Path | LogFile], fields: FieldMap | None = None, *, most: int = MOST_ROWS
) -> list[LogEntry]:
    """Return the first rows of a log that have messages; none of a file that is no log of requests.

    Args:
        path: the log, or its files, as :func:`~prefixroute.workload.read_trace` takes them.
        fields: where it has what; the usual places unless given.
        most: rows that are read.
    """
    layout = FieldMap() if fields is None else fields
    finder = Finder({**DEFAULT_PATHS, **layout.paths, **_ROUTING})
    entries: list[LogEntry] = []
    texts: dict[str, str] = {}
    held = 0
    try:
        rows = (row for file in log_files(path) for row in read_rows(file, LogPass(skip_bad=most)))
        for number, row in enumerate(rows):
            if number >= most or held > MOST_BYTES:
                break
            finder.take(row.fields)
            entry = None if other_kind(row.fields, finder.follow) else _entry(finder, row.line, layout)
            if entry is None:
                continue
            held += sum(len(block.text) for block in entry.prompt.blocks if block.text not in texts)
            entries.append(entry._replace(prompt=_shared(entry.prompt, texts)))
    except TraceError:
        # The reader of traces has read the file before and says what is wrong with it; what came before counts.
        return entries
    return entries


def _shared(prompt: Prompt, texts: dict[str, str]) -> Prompt:
    """Return the prompt with texts that earlier prompts have too held once: turns repeat all that was said before."""
    return Prompt(tuple(replace(block, text=texts.setdefault(block.text, block.text)) for block in prompt.blocks))


def _entry(finder: Finder, line: int, layout: FieldMap) -> LogEntry | None:
    messages = finder.find("messages")
    if not isinstance(messages, (list, str)):
        return None
    body = {"messages": messages, **{name: finder.find(name) for name in ("tools", "system", "cache_control")}}
    try:
        prompt = Prompt.of(body)
    except PrefixRouteError:
        return None
    texts = {name: finder.find(name) for name in ("session", "model", "key", "workspace")}
    named = {name: value if isinstance(value, str) else None for name, value in texts.items()}
    return LogEntry(
        line,
        _time(finder, layout),
        prompt,
        any(block.marked for block in prompt.blocks),
        named["session"],
        named["model"],
        named["key"],
        named["workspace"],
        next((told for place in _RESPONSES if (told := diagnosis_of(finder.follow(place)))), None),
    )


def _time(finder: Finder, layout: FieldMap) -> float | None:
    value: Any = finder.find("time")
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return seconds_of(float(value), layout.time_unit or unit_of(finder.path_of("time")))
    return None
