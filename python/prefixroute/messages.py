"""Chat messages in canonical form: one text per conversation, such that a longer conversation extends a shorter one.

Tools come first, since chat templates put them in front, then one segment per message: a line with the role (and name),
then its parts. Texts are kept to the letter. A part that is not text stands as its kind and the digest of its content,
so that two images differ wherever their bytes do. Tool calls stand as JSON with sorted keys. Segments are framed by
control characters that are escaped in texts, so that no content can imitate a frame.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from prefixroute.errors import TokensError

_FRAME, _PART = "\x1e", "\x1f"
_SKIPPED = frozenset({"role", "content", "name"})
MEDIA_TOKENS = 256
"""Estimated tokens of an image or a sound: its digest is followed by so much filling, 4 characters a token."""


def canonical(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return the canonical text of a conversation.

    Raises:
        TokensError: names the first message that is not a mapping with a role.
    """
    parts = [f"{_FRAME}tools{_PART}{_json(tools)}"] if tools else []
    for at, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise TokensError(f"message {at} must be a mapping with a role, got {message!r:.80}")
        parts.append(segment(message))
    return "".join(parts)


def segment(message: Mapping[str, Any]) -> str:
    """Return the canonical text of one message."""
    name = f" {_escaped(str(message['name']))}" if message.get("name") else ""
    text = f"{_FRAME}{_escaped(message['role'])}{name}{_PART}{_content(message.get('content'))}"
    rest = {key: value for key, value in message.items() if key not in _SKIPPED and value not in (None, [], "")}
    return text + (f"{_PART}{_json(rest)}" if rest else "")


def _content(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return _escaped(content)
    return _PART.join(_part(part) for part in (content if isinstance(content, Sequence) else [content]))


def _part(part: Any) -> str:
    if not isinstance(part, Mapping):  # what is no part is the engine's to refuse
        return _escaped(part if isinstance(part, str) else _json(part))
    kind = str(part.get("type"))
    if kind in {"text", "input_text", "output_text"} and isinstance(part.get("text"), str):
        return _escaped(part["text"])
    digest = blake2b(_json(part).encode(), digest_size=16).hexdigest()
    return f"{_PART}{kind}:{digest}".ljust(4 * MEDIA_TOKENS, _PART)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=repr)


def _escaped(text: str) -> str:
    if _FRAME not in text and _PART not in text and "\x1b" not in text:
        return text
    return text.replace("\x1b", "\x1b\x1b").replace(_FRAME, "\x1br").replace(_PART, "\x1bu")
