"""A tokenizer and a chat template that need no model: every 4 bytes of text are a token, and its id is those bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prefixroute.limits import BYTES_PER_TOKEN


def tokenize(text: str) -> list[int]:
    """Return the token ids of a text: 4 UTF-8 bytes each, little-endian; the last may have fewer."""
    data = text.encode()
    return [int.from_bytes(data[at : at + BYTES_PER_TOKEN], "little") for at in range(0, len(data), BYTES_PER_TOKEN)]


def render(prompt: Iterable[Mapping[str, Any]] | Mapping[str, Any]) -> str:
    """Apply the chat template to messages, or to a request's body that has them: what the engine reads before it answers.

    An answer that is sent back as the next turn's ``assistant`` message continues the same text, so its blocks are hit.
    """
    messages: Iterable[Mapping[str, Any]] = prompt["messages"] if isinstance(prompt, Mapping) else prompt
    turns = "".join(f"[{message.get('role')}]\n{_content(message.get('content'))}\n" for message in messages)
    return turns + "[assistant]\n"


def _content(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", part)) if isinstance(part, dict) else str(part) for part in content)
    return "" if content is None else str(content)
