"""Answers that were logged as they were streamed.

Lists of chunks, or the text of server-sent events, joined to one body.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prefixroute.workload.readers.lines import json_in
from prefixroute.workload.readers.row import objects

_PLACES = ("response", "response_body", "responseBody", "output", "chunks", "response_chunks", "stream", "events")
_INNER = ("body", "chunks", "events")
_EVENTS = frozenset(
    {"message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "ping"}
)


def joined(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row whose answer is one body, where it was a list of chunks or the text of events.

    Else the row itself.
    """
    for name in _PLACES:
        value = row.get(name)
        if isinstance(value, Mapping):
            inner = next((key for key in _INNER if key in value), None)
            value = None if inner is None else value[inner]
        chunks = _chunks(value)
        if chunks is not None:
            return {**row, name: body_of(chunks), "response": body_of(chunks)}
    return row


def _chunks(value: Any) -> list[Mapping[str, Any]] | None:
    """Return chunks of an answer, if that is what a value holds."""
    if isinstance(value, str):
        start = value[:64].lstrip()
        if start.startswith(("data:", "event:")):
            return _events(value)
        if not any(name in value[:400] for name in ('"delta"', '"message_start"', ".delta")):
            return None
        value = json_in(value, "[{")
    if not isinstance(value, list) or not value or not isinstance(value[0], Mapping):
        return None
    return objects(value) if _is_chunk(value[0]) else None


def _is_chunk(value: Mapping[str, Any]) -> bool:
    if str(value.get("type")) in _EVENTS or str(value.get("type")).startswith("response."):
        return True
    choices = value.get("choices")
    return isinstance(choices, list) and (
        str(value.get("object")).endswith(".chunk") or any("delta" in one for one in objects(choices))
    )


def _events(text: str) -> list[Mapping[str, Any]] | None:
    found = []
    for line in text.splitlines():
        if line.startswith("data:") and line[5:].strip() != "[DONE]":
            chunk = json_in(line[5:])
            if isinstance(chunk, Mapping):  # else the stream was cut: what came before counts
                found.append(chunk)
    return found or None


def body_of(chunks: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the body of an answer that was streamed by the API of OpenAI or of Anthropic."""
    listed = list(chunks)
    if any("choices" in chunk for chunk in listed):
        return _of_choices(listed)
    done = next((chunk["response"] for chunk in reversed(listed) if isinstance(chunk.get("response"), Mapping)), None)
    return dict(done) if done is not None else _of_blocks(listed)


def _of_choices(chunks: list[Mapping[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    calls: dict[int, dict[str, Any]] = {}
    body: dict[str, Any] = {}
    for chunk in chunks:
        body |= {name: chunk[name] for name in ("id", "model", "usage") if chunk.get(name)}
        choices = chunk.get("choices")
        first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], Mapping) else {}
        delta = first.get("delta")
        if isinstance(first.get("text"), str):
            message["content"] += first["text"]
        if not isinstance(delta, Mapping):
            continue
        for name in ("content", "reasoning_content", "reasoning"):
            if isinstance(delta.get(name), str):
                message[name] = message.get(name, "") + delta[name]
        for at, part in enumerate(objects(delta.get("tool_calls"))):
            place = part["index"] if type(part.get("index")) is int else at
            _add_call(calls.setdefault(place, {"name": "", "arguments": ""}), part)
    if calls:
        message["tool_calls"] = [{"type": "function", "function": calls[place]} for place in sorted(calls)]
    return {**body, "choices": [{"message": message}]}


def _add_call(call: dict[str, Any], part: Mapping[str, Any]) -> None:
    function = part.get("function")
    if isinstance(function, Mapping):
        for name in ("name", "arguments"):
            if isinstance(function.get(name), str):
                call[name] += function[name]


def _of_blocks(events: list[Mapping[str, Any]]) -> dict[str, Any]:
    blocks: dict[int, dict[str, Any]] = {}
    inputs: dict[int, str] = {}
    body: dict[str, Any] = {"role": "assistant"}
    usage: dict[str, Any] = {}
    for event in events:
        message = event.get("message")
        if isinstance(message, Mapping):
            body |= {name: message[name] for name in ("id", "model") if name in message}
            usage |= message["usage"] if isinstance(message.get("usage"), dict) else {}
        usage |= {name: count for name, count in _object(event.get("usage")).items() if count is not None}
        at = event["index"] if type(event.get("index")) is int else 0
        if isinstance(event.get("content_block"), Mapping):
            blocks[at] = dict(event["content_block"])
        for name, text in _object(event.get("delta")).items():
            if name == "partial_json" and isinstance(text, str):
                inputs[at] = inputs.get(at, "") + text
            elif name in {"text", "thinking"} and isinstance(text, str):
                block = blocks.setdefault(at, {"type": name})
                block[name] = str(block.get(name) or "") + text
    for at, text in inputs.items():
        blocks.setdefault(at, {"type": "tool_use"})["input"] = text
    return {**body, "content": [blocks[at] for at in sorted(blocks)], "usage": usage}


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
