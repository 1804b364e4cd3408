"""Spans of OpenTelemetry's conventions for generative AI (``gen_ai.*``), and of those before and beside them.

A span becomes a row as a gateway writes it. Its are an object, or a list of keys and typed values. Messages are in
``gen_ai.input.messages``, in events, or numbered (``gen_ai.prompt.0.content``,
``llm.input_messages.0.message.content``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from prefixroute.workload.readers.layouts import SPANS
from prefixroute.workload.readers.lines import json_in
from prefixroute.workload.readers.row import objects

_MARKS = ("gen_ai.", "llm.")
_TYPED = ("stringValue", "intValue", "doubleValue", "boolValue")
_NUMBERED = re.compile(r"(?:gen_ai\.(prompt|completion)|llm\.(input_messages|output_messages))\.(\d{1,6})\.(.+)")


def span_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a span as a row that a gateway might have written; any other row as it is."""
    found = row.get("attributes")
    attributes = _attributes(found) if found is not None else row if any("gen_ai." in key for key in row) else None
    if attributes is None:
        return row
    for event in objects(row.get("events")):
        attributes = {**_attributes(event.get("attributes")), **attributes}
    if not any(key.startswith(_MARKS) for key in attributes):
        return (
            {**row, "gen_ai.operation.name": "tool"} if "spanId" in row or "span_id" in row or "context" in row else row
        )
    made = {
        field: value
        for field, names in SPANS.items()
        if (value := next((attributes[name] for name in names if name in attributes), None)) is not None
    }
    _add_numbered(attributes, made)
    for field in ("messages", "output", "system", "tools"):
        if field in made:
            made[field] = _messages(made[field])
    for field in ("prompt_tokens", "output_tokens", "cached_tokens"):
        if isinstance(made.get(field), str) and made[field].isdecimal():
            made[field] = int(made[field])
    named = str(made.get("gen_ai.operation.name")).lower()
    rest = {
        key: value for key, value in row.items() if key not in {"attributes", "events", "name", "input", "response"}
    }
    return {**rest, **made, "gen_ai.operation.name": named}


def _attributes(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    pairs = ((one.get("key"), one.get("value")) for one in objects(value))
    return {str(key): _plain(inner) for key, inner in pairs}


def _plain(value: Any) -> Any:
    """Return what OTLP's typed value holds."""
    if not isinstance(value, Mapping):
        return value
    for name in _TYPED:
        if name in value:
            return int(value[name]) if name == "intValue" and str(value[name]).isdecimal() else value[name]
    if isinstance(value.get("arrayValue"), Mapping):
        return [_plain(one) for one in value["arrayValue"].get("values") or ()]
    if isinstance(value.get("kvlistValue"), Mapping):
        return _attributes(value["kvlistValue"].get("values"))
    return dict(value)


def _add_numbered(attributes: Mapping[str, Any], made: dict[str, Any]) -> None:
    """Put together messages whose fields are attributes of their own."""
    numbered: dict[str, dict[int, dict[str, Any]]] = {"messages": {}, "output": {}}
    for key, value in attributes.items():
        match = _NUMBERED.fullmatch(key)
        if match:
            side = "messages" if (match[1] or match[2]) in {"prompt", "input_messages"} else "output"
            numbered[side].setdefault(int(match[3]), {})[match[4].removeprefix("message.")] = value
    for side, messages in numbered.items():
        if messages and side not in made:
            made[side] = [_unfolded(messages[at]) for at in sorted(messages)]


def _unfolded(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message with the tool calls that its numbered fields describe."""
    calls: dict[str, dict[str, Any]] = {}
    message: dict[str, Any] = {}
    for key, value in fields.items():
        head, _, rest = key.partition(".")
        if head == "tool_calls":
            number, _, name = rest.partition(".")
            calls.setdefault(number, {})[name.rpartition(".")[2]] = value
        elif head in {"role", "content", "tool_call_id", "name"} and not rest:
            message[head] = value
    if calls:
        message["tool_calls"] = [
            {"function": {"name": call.get("name"), "arguments": call.get("arguments", "")}} for call in calls.values()
        ]
    return message


def _messages(value: Any) -> Any:
    """Return messages whose parts are named as the other APIs name them."""
    if isinstance(value, str):
        parsed = json_in(value)
        value = value if parsed is None else parsed
    if not isinstance(value, list):
        return value
    return [_message(one) if isinstance(one, Mapping) else one for one in value]


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    parts = message.get("parts")
    if not isinstance(parts, list):
        return _part(message) if "role" not in message else dict(message)
    role = "user" if message.get("role") == "tool" else str(message.get("role") or "user")
    return {"role": role, "content": [_part(part) for part in objects(parts)]}


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    kind, content = part.get("type"), part.get("content")
    if kind == "text" and isinstance(content, str):
        return {"type": "text", "text": content}
    if kind == "reasoning":
        return {"type": "thinking", "thinking": content}
    if kind == "tool_call":
        return {"type": "tool_use", "name": part.get("name"), "input": part.get("arguments")}
    if kind == "tool_call_response":
        return {"type": "tool_result", "content": part.get("response", part.get("result"))}
    if kind in {"blob", "uri", "file"}:
        kind = str(part.get("modality") or "file")
        data = part.get("content", part.get("uri", part.get("file_id")))
        return {"type": kind if kind in {"image", "audio", "video"} else "file", "data": data}
    return dict(part)
