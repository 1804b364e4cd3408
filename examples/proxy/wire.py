"""OpenAI's wire format, as far as a router needs it: what to route by, and what to learn from the answer."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, TypeAlias

from starlette.datastructures import Headers

import prefixroute as pr

CHAT = "/v1/chat/completions"
EVENT_END = re.compile(rb"(?<=\n\n)|(?<=\r\n\r\n)|(?<=\r\r)")
"""Where a server-sent event ends."""
OFF_LOOP_BYTES = 256 * 1024
"""A body above this is hashed in a thread, so that other requests go on meanwhile."""
HOP_BY_HOP = frozenset(
    {b"accept-encoding", b"connection", b"content-length", b"date", b"expect", b"host", b"keep-alive"}
    | {b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"server", b"te", b"trailer"}
    | {b"transfer-encoding", b"upgrade"}
)
"""Headers that concern one connection, not the message (RFC 9110, 7.6.1), and those that each side sets itself."""

RawHeaders: TypeAlias = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Call:
    """A client's request: what the router looks at, and what goes to the engine."""

    path: str
    headers: RawHeaders
    content: bytes
    prompt: dict[str, Any]
    session: str | None
    namespace: pr.Namespace
    hide_usage: bool  # the usage chunk is ours, the client did not ask for it
    is_large: bool  # hash it in a thread

    @classmethod
    def read(cls, path: str, headers: Headers, content: bytes) -> Call:
        """Read a request; raise ``ValueError`` if it is none. What routing does not need is the engine's to check."""
        try:
            body = json.loads(content)
        except ValueError as error:
            raise ValueError(f"the body must be JSON: {error}") from error
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
            prompt=_prompt(path, body),
            session=headers.get("x-session-id") or str(body.get("prompt_cache_key") or ""),
            namespace=pr.Namespace(model=str(body.get("model", "")), salt=str(body.get("cache_salt", ""))),
            hide_usage=hide_usage,
            is_large=len(content) > OFF_LOOP_BYTES,
        )


def _prompt(path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return what the router hashes: the conversation and its tools. A bare prompt is a conversation of one message."""
    if path == CHAT:
        return {"messages": body.get("messages"), "tools": body.get("tools")}
    prompt = body.get("prompt")
    if not isinstance(prompt, str | list):
        raise ValueError(f"prompt must be a string or a list, got {type(prompt).__name__}")  # noqa: TRY004
    return {"messages": [{"role": "user", "content": prompt if isinstance(prompt, str) else json.dumps(prompt)}]}


def end_to_end(headers: RawHeaders, *dropped: bytes) -> RawHeaders:
    """Return the headers that a proxy passes on.

    Left out are those of one connection, by their own name or named by ``Connection``, and those ``dropped`` (lower case).
    """
    named = {
        option.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for option in value.split(b",")
    }
    gone = HOP_BY_HOP | named | set(dropped)
    return [(name, value) for name, value in headers if name.lower() not in gone]


class Answer:
    """What is learned from an answer as it passes: its text, and what the engine reports of the prompt."""

    def __init__(self) -> None:
        """Know nothing yet. ``None`` = not reported, which is not zero."""
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        self._texts: list[str] = []
        self._plain = True  # one choice, and no tool calls

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
                self.prompt_tokens = _count(usage.get("prompt_tokens"))
                self.cached_tokens = _count((usage.get("prompt_tokens_details") or {}).get("cached_tokens"))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return False
        return bool(usage) and not choices

    def _read_choice(self, choice: dict[str, Any]) -> None:
        said = choice.get("delta") or choice.get("message") or {}
        self._plain = self._plain and not choice.get("index") and not said.get("tool_calls")
        self._texts.append(said.get("content") or "")

    def output(self, call: Call) -> str | None:
        """Return the text of the assistant's message, ``None`` if the next turn will not repeat just that."""
        if not self._plain or call.path != CHAT:
            return None
        return "".join(self._texts).encode(errors="replace").decode()  # JSON may carry half of a surrogate pair


def _count(tokens: object) -> int | None:
    """Return a count as an engine reports it; what is no count is not reported."""
    return tokens if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= 0 else None
