"""A tokenizer and a chat template that need no model: every 4 bytes of text are a token, and its id is those bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prefixroute.errors import TokensError
from prefixroute.limits import BYTES_PER_TOKEN
from prefixroute.validation import shown


def tokenize(text: str) -> list[int]:
    """Return the token ids of a text: 4 UTF-8 bytes each, little-endian; the last may have fewer.

    Args:
        text: any text of valid Unicode.

    Raises:
        TokensError: the text is not valid Unicode.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise TokensError(
            f"text must be valid Unicode, got {text[error.start]!r} at character {error.start}"
        ) from error
    return [int.from_bytes(data[at : at + BYTES_PER_TOKEN], "little") for at in range(0, len(data), BYTES_PER_TOKEN)]


def render(prompt: Iterable[Mapping[str, Any]] | Mapping[str, Any]) -> str:
    """Apply the chat template to messages, or to the body of a chat, Responses or Anthropic request.

    What the engine reads.

    An answer that is sent back as the next turn's ``assistant`` message continues the same text, so its blocks are hit.

    Args:
        prompt: messages, or a body that has them.

    Returns:
        The text that is tokenized.
    """
    messages: Any = prompt
    if isinstance(prompt, Mapping):
        messages = prompt["messages"] if "messages" in prompt else prompt["input"]
        messages = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        system = prompt.get("system") or prompt.get("instructions")
        messages = [{"role": "system", "content": system}, *messages] if system else messages
    return "".join(map(_turn, messages)) + "[assistant]\n"


def _turn(message: Any) -> str:
    if not isinstance(message, Mapping):
        raise TokensError(f"a message must be a mapping with a role, got {shown(message)}")
    return f"[{message.get('role')}]\n{_content(message.get('content'))}\n"


def _content(content: Any) -> str:
    if isinstance(content, list):
        return "".join(
            _content(part.get("text", str(part))) if isinstance(part, dict) else _content(part) for part in content
        )
    return "" if content is None else str(content)
