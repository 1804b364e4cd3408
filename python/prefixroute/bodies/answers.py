"""What is learned from an answer as it passes: its text, and what the engine reports of the prompt."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any


class Api(Enum):
    """The APIs that are read, by their paths."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    RESPONSES = "/v1/responses"
    MESSAGES = "/v1/messages"

    @classmethod
    def of(cls, path: str) -> Api | None:
        """Return the API that a path is of, whatever stands before its version; ``None`` = another.

        Args:
            path: of the URL.
        """
        return next((api for api in cls if path.endswith(api.value.removeprefix("/v1"))), None)

    @property
    def is_openai(self) -> bool:
        """Return whether errors have OpenAI's form."""
        return self is not Api.MESSAGES


RETRIED_STATUSES = frozenset({429, 502, 503, 504})
"""Statuses by which an engine refuses a request that another may serve. Not 500: a request that breaks one engine would
be sent round to break them all."""
_EVENT_END = re.compile(rb"(?<=\n\n)|(?<=\r\n\r\n)|(?<=\r\r)")
_LONGEST_END = 4
MAX_READ_BYTES = 1 << 20
"""Bytes of an answer that are kept to be read at once: a larger event or body passes, and says nothing."""


class EventCutter:
    """Cuts a stream into whole server-sent events, in time that is linear in its bytes, and bounded memory."""

    def __init__(self) -> None:
        """Have nothing."""
        self._parts: list[bytes] = []
        self._size = 0

    def cut(self, data: bytes) -> list[bytes]:
        """Return the events that end in the next bytes of the stream.

        One above :data:`MAX_READ_BYTES` comes in pieces.

        Args:
            data: the next bytes; they may end anywhere.
        """
        before = b"".join(self._parts[-_LONGEST_END:])[1 - _LONGEST_END :] if self._parts else b""
        self._parts.append(data)
        self._size += len(data)
        if self._size <= MAX_READ_BYTES and _EVENT_END.search(before + data) is None:
            return []
        *events, rest = _EVENT_END.split(self.rest())
        if len(rest) > MAX_READ_BYTES:
            return [*events, rest]
        if rest:
            self._parts, self._size = [rest], len(rest)
        return events

    def rest(self) -> bytes:
        """Return what belongs to no whole event, and forget it."""
        rest = b"".join(self._parts)
        self._parts, self._size = [], 0
        return rest


def event_data(event: bytes) -> bytes:
    """Return what a server-sent event carries; nothing for a comment.

    Args:
        event: with the blank line at its end.
    """
    if event.startswith(b"data: ") and event.find(b"\n") >= len(event) - 2:  # one line, as nearly all are
        return event[6:]
    return b"\n".join(line[5:] for line in event.splitlines() if line.startswith(b"data:"))


class AnswerReader:
    """Reads what an answer says, in passing. Whatever cannot be read says nothing, and passes all the same.

    Attributes:
        usage: what the engine reports of tokens, in its API's form; ``None`` = nothing, which is not zero.
        response_id: the id under which the engine has stored the answer (Responses API).
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self.usage: Mapping[str, Any] | None = None
        self.response_id: str | None = None
        self._texts: list[str] = []
        self._plain = True  # one text, and no tool calls

    def read_event(self, event: bytes) -> bool:
        """Learn from a server-sent event; return whether it is a bare usage chunk.

        Args:
            event: with the blank line at its end.

        Returns:
            True for a chunk that holds nothing but a usage.
        """
        return self.read(event_data(event))

    def read(self, data: bytes) -> bool:
        """Learn from JSON, a whole body or a chunk; return whether it is a bare usage chunk.

        Anything else says nothing.

        Args:
            data: the JSON.

        Returns:
            True for a chunk that holds nothing but a usage.
        """
        try:
            return self._learn(json.loads(data))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return False

    def output(self) -> str | None:
        """Return the text of the assistant's message, ``None`` if the next turn will not repeat just that."""
        if not self._plain:
            return None
        return "".join(self._texts).encode(errors="replace").decode()  # JSON may carry half of a surrogate pair

    def _say(self, text: Any) -> None:
        """Note a part of the answer's text; what is none, such as a list of parts, is not repeated as it is."""
        if isinstance(text, str):
            self._texts.append(text)
        elif text:
            self._plain = False

    def _learn(self, body: Any) -> bool:
        raise NotImplementedError


class Choices(AnswerReader):
    """An answer of the chat completions API."""

    def _learn(self, body: Any) -> bool:
        choices, usage = body["choices"], body.get("usage")
        for choice in choices:
            said = choice.get("delta") or choice.get("message") or {}
            self._plain = self._plain and not choice.get("index") and not said.get("tool_calls")
            self._say(said.get("content"))
        self.usage = usage or self.usage
        return bool(usage) and not choices


class Texts(Choices):
    """An answer of the completions API: no later prompt need begin with it."""

    def output(self) -> str | None:
        """Return nothing."""
        return None


class Items(AnswerReader):
    """An answer of the Responses API."""

    def _learn(self, body: Any) -> bool:
        kind = body.get("type")
        if kind == "response.output_text.delta":
            self._say(body.get("delta"))
            self._plain = self._plain and not body.get("content_index")
        elif kind == "response.output_item.added":
            self._plain = self._plain and body["item"].get("type") == "message" and not body.get("output_index")
        response = body.get("response", body)
        if "usage" not in response or "output" not in response:
            return False
        if kind is None:
            self._whole(response["output"])
        self.usage = response["usage"]
        self.response_id = response["id"] if isinstance(response.get("id"), str) and response["id"] else None
        return False

    def _whole(self, output: Any) -> None:
        self._plain = len(output) == 1 and output[0].get("type") == "message"
        if self._plain:
            for part in output[0].get("content") or ():
                self._say(part.get("text"))


class MessageBlocks(AnswerReader):
    """An answer of the Anthropic messages API.

    A stream tells of the prompt at its begin, and of the answer at its end.
    """

    def _learn(self, body: Any) -> bool:
        kind = body.get("type")
        if kind == "content_block_delta":
            self._say(body["delta"].get("text"))
        elif kind == "content_block_start":
            self._plain = self._plain and body["content_block"].get("type") == "text" and not body.get("index")
        elif kind == "message_start":
            self.usage = body["message"].get("usage")
        elif kind == "message":
            content = body["content"]
            self._plain = len(content) == 1 and content[0].get("type") == "text"
            for block in content:
                self._say(block.get("text"))
            self.usage = body.get("usage")
        return False


_READERS: Mapping[Api, type[AnswerReader]] = {
    Api.CHAT: Choices,
    Api.COMPLETIONS: Texts,
    Api.RESPONSES: Items,
    Api.MESSAGES: MessageBlocks,
}


def answer_reader(api: Api) -> AnswerReader:
    """Return what learns from an answer of an API.

    Args:
        api: that was asked.
    """
    return _READERS[api]()
