"""Lines that hold several requests.

Exports of OpenTelemetry spans, and inputs of aiperf with the turns of a session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prefixroute.workload.readers.row import Row, objects


def unbundled(row: Row) -> Iterator[Row]:
    """Yield the requests of a line as rows of their own; a line that is one request is yielded as it is."""
    fields = row.fields
    spans = fields.get("resourceSpans", fields.get("resource_spans"))
    if isinstance(spans, list):
        yield from _spans(row, spans)
    elif isinstance(fields.get("data"), list) and any("payloads" in one for one in objects(fields["data"])):
        for session in objects(fields["data"]):
            name = session.get("session_id")
            for payload in objects(session.get("payloads")):
                yield Row({"session_id": name, **payload}, row.file, row.line)
    elif isinstance(fields.get("turns"), list) and "messages" not in fields:
        yield from _turns(row, objects(fields["turns"]))
    else:
        yield row


def _spans(row: Row, groups: list[Any]) -> Iterator[Row]:
    for group in objects(groups):
        for scope in objects(group.get("scopeSpans", group.get("scope_spans"))):
            for span in objects(scope.get("spans")):
                yield Row(dict(span), row.file, row.line)


def _turns(row: Row, turns: list[Mapping[str, Any]]) -> Iterator[Row]:
    """Yield a request for each turn of a session, with the turns before it; what was answered is not there."""
    messages: list[dict[str, Any]] = []
    for turn in turns:
        text = turn.get("text", turn.get("content"))
        messages.append({"role": turn.get("role") or "user", "content": text})
        rest = {name: value for name, value in turn.items() if name in {"timestamp", "model"}}
        session = row.fields.get("session_id")
        yield Row({"session_id": session, **rest, "messages": list(messages)}, row.file, row.line)
