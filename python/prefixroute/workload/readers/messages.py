"""Chat messages as one text that grows at its end only, so that prefixes of conversations are prefixes of texts.

Tools come first, as chat templates have them, then the system prompt, then each message under a header with its role.
Images, sounds and files stand for a fixed number of tokens made of their digest: equal media are equal text, and the
length of their base64 does not count.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any

MEDIA_TOKENS = 1_000
"""Tokens that one image, sound or file counts for."""
_BYTES_PER_TOKEN = 4
_EXTRAS = ("name", "tool_calls", "tool_call_id", "function_call")


def conversation_text(messages: list[Any], *, tools: Any = None, system: Any = None) -> str:
    """Return the text of a prompt.

    Raises:
        ValueError: if ``messages`` has anything but objects; the text says which.
    """
    parts = [f"<|tools|>\n{_plain(tools)}\n"] if tools else []
    if system:
        parts.append(f"<|system|>\n{_content(system)}\n")
    for at, message in enumerate(messages):
        if not isinstance(message, dict):
            raise ValueError(f"message {at} must be an object, got {message!r:.40}")  # noqa: TRY004 - data, not a call
        parts.append(message_text(message))
    return "".join(parts)


def has_media(messages: Any) -> bool:
    """Return whether any of the messages has an image, a sound or a file."""
    if not isinstance(messages, list):
        return False
    contents = (message.get("content") for message in messages if isinstance(message, dict))
    parts = (part for content in contents if isinstance(content, list) for part in content)
    return any(isinstance(part, dict) and _is_media(part) for part in parts)


def message_text(message: dict[str, Any]) -> str:
    """Return the text of one message: the header, the content, and tool calls in canonical JSON."""
    extras = "".join(f"{name} {_plain(message[name])}\n" for name in _EXTRAS if message.get(name))
    return f"<|{message.get('role', message.get('type', 'user'))}|>\n{_content(message.get('content'))}\n{extras}"


def answer_text(answer: Any) -> str | None:
    """Return the text of the assistant's message that an answer becomes in the next prompt, or None if there is none."""
    if isinstance(answer, dict):
        return message_text({"role": "assistant", **answer})
    if isinstance(answer, list | str) and answer:
        return message_text({"role": "assistant", "content": answer})
    return None


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, list):
        return "".join(_part(part) for part in content)
    return _plain(content)


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        text = part.get("text")
        if isinstance(text, str):
            return text
        if _is_media(part):
            digest = blake2b(_plain(part).encode(), digest_size=32).hexdigest()
            size = MEDIA_TOKENS * _BYTES_PER_TOKEN
            return (digest * (size // len(digest) + 1))[:size]
        part = {key: value for key, value in part.items() if key != "cache_control"}
    return _plain(part)


def _is_media(part: dict[str, Any]) -> bool:
    return any(word in str(part.get("type", "")) for word in ("image", "audio", "video", "file", "document"))


def _plain(value: Any) -> str:
    """Return canonical JSON: sorted keys, no spaces, letters as they are."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
