"""OpenAI's wire format, as far as a router needs it: what to route by, and what to learn from the answer."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, TypeAlias

from starlette.datastructures import Headers

import prefixroute as pr

CHAT = "/v1/chat/completions"
EVENT_END = re.compile(rb"(?<=\n\n)|(?<=\r\n\r\n)|(?<=\r\r)")
"""Where a server-sent event ends."""
HOP_BY_HOP = frozenset(
    {b"accept-encoding", b"connection", b"content-length", b"date", b"expect", b"host", b"keep-alive"}
    | {b"proxy-authorization", b"server", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
"""Headers that concern one connection, not the message."""

RawHeaders: TypeAlias = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Call:
    """A client's request: what the router looks at, and what goes to the engine."""

    path: str
    headers: RawHeaders
    content: bytes
    prompt: str
    session: str | None
    namespace: pr.Namespace
    hide_usage: bool  # the usage chunk is ours, the client did not ask for it

    @classmethod
    def read(cls, path: str, headers: Headers, content: bytes) -> Call:
        """Read a request; raise ``ValueError`` if it is none. What routing does not need is the engine's to check."""
        try:
            body = json.loads(content)
        except RecursionError as error:
            raise ValueError("the body is nested too deeply") from error
        if not isinstance(body, dict):
            raise ValueError(f"the body must be a JSON object, got {type(body).__name__}")  # noqa: TRY004  # HTTP 400
        hide_usage = False
        if body.get("stream"):
            options = body.get("stream_options") or {}
            if not isinstance(options, dict):
                raise ValueError(f"stream_options must be an object, got {type(options).__name__}")
            hide_usage = not options.get("include_usage")
            content = json.dumps({**body, "stream_options": {**options, "include_usage": True}}).encode()
        return cls(
            path=path,
            headers=[*end_to_end(headers.raw), (b"accept-encoding", b"identity")],  # the answer is read as it passes
            content=content,
            prompt=_unicode(_chat_prompt(body) if path == CHAT else _text_prompt(body)),
            session=headers.get("x-session-id") or _unicode(str(body.get("prompt_cache_key") or "")),
            namespace=pr.Namespace(
                model=_unicode(str(body.get("model", ""))), salt=_unicode(str(body.get("cache_salt", "")))
            ),
            hide_usage=hide_usage,
        )


def end_to_end(headers: RawHeaders) -> RawHeaders:
    """Return the headers that a proxy passes on."""
    return [(name, value) for name, value in headers if name.lower() not in HOP_BY_HOP]


class Answer:
    """What is learned from an answer as it passes: its text, and the cached tokens that the engine reports."""

    def __init__(self) -> None:
        """Know nothing yet. ``None`` = not reported, which is not zero."""
        self.text = ""
        self.plain = True  # one choice, and no tool calls
        self.cached_tokens: int | None = None

    def read_event(self, event: bytes) -> bool:
        """Learn from a server-sent event; return whether it is a bare usage chunk."""
        return self.read(b"\n".join(line[5:] for line in event.splitlines() if line.startswith(b"data:")))

    def read(self, data: bytes) -> bool:
        """Learn from JSON, a whole body or a chunk; return whether it is a bare usage chunk. Anything else says nothing."""
        try:
            body = json.loads(data)
            choices, usage = body["choices"], body.get("usage")
            for choice in choices:
                self._read_choice(choice)
            if usage:
                self.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return False
        return bool(usage) and not choices

    def _read_choice(self, choice: dict[str, Any]) -> None:
        said = choice.get("delta") or choice.get("message") or {}
        self.plain = self.plain and not choice.get("index") and not said.get("tool_calls")
        self.text += said.get("content") or choice.get("text") or ""

    def output(self, call: Call) -> str | None:
        """Return the text as the next turn's prompt will have it, ``None`` if that cannot be known."""
        if not self.plain:
            return None
        return _unicode(_message("assistant", self.text) if call.path == CHAT else self.text)


def _text_prompt(body: dict[str, Any]) -> str:
    prompt = body.get("prompt")
    if not isinstance(prompt, str | list):
        raise ValueError(f"prompt must be a string or a list, got {type(prompt).__name__}")  # noqa: TRY004
    return prompt if isinstance(prompt, str) else json.dumps(prompt)


def _chat_prompt(body: dict[str, Any]) -> str:
    """Return a conversation as text: what begins alike in the chat template begins alike here."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise ValueError("messages must be a list of objects")
    tools = json.dumps(body["tools"], sort_keys=True) if body.get("tools") else ""
    return tools + "".join(_message(str(message.get("role")), _content(message)) for message in messages)


def _message(role: str, content: str) -> str:
    return f"<|{role}|>{content}"


def _content(message: dict[str, Any]) -> str:
    """Return a message's content: text as it is; images, audio and tool calls by their digest."""
    content = message.get("content") or ""
    parts = content if isinstance(content, list) else [content]
    parts = [part.get("text") or part if isinstance(part, dict) else part for part in parts]
    if message.get("tool_calls"):
        parts.append(message["tool_calls"])
    return "".join(part if isinstance(part, str) else _digest(part) for part in parts)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _unicode(text: str) -> str:
    """Return text without lone surrogates, which JSON may carry and no hash can take."""
    return text.encode(errors="replace").decode()
