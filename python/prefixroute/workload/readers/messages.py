"""Prompts and answers of a log in the canonical form that the Router matches messages in."""

from __future__ import annotations

from typing import Any

from prefixroute.messages import canonical, segment


def conversation_text(messages: list[Any], *, tools: Any = None, system: Any = None) -> str:
    """Return the text of a prompt: tools, system prompt, messages.

    A message without a role stands under its type (items of the Responses API), or is the user's.

    Raises:
        ValueError: if ``messages`` has anything but objects; the text says which.
    """
    first = [{"role": "system", "content": system}] if system else []
    return canonical([*first, *(_with_role(at, message) for at, message in enumerate(messages))], _listed(tools))


def answer_text(answer: Any) -> str | None:
    """Return the text of the assistant's message that an answer becomes in the next prompt, or None if there is none."""
    if isinstance(answer, dict):
        return segment({**answer, "role": str(answer.get("role") or "assistant")})
    if isinstance(answer, list | str) and answer:
        return segment({"role": "assistant", "content": answer})
    return None


def has_media(messages: Any) -> bool:
    """Return whether any of the messages has an image, a sound or a file."""
    if not isinstance(messages, list):
        return False
    contents = (message.get("content") for message in messages if isinstance(message, dict))
    parts = (part for content in contents if isinstance(content, list) for part in content)
    return any(isinstance(part, dict) and not isinstance(part.get("text"), str) for part in parts)


def _with_role(at: int, message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise ValueError(f"message {at} must be an object, got {message!r:.40}")  # noqa: TRY004 - data, not a call
    role = message.get("role") or message.get("type") or "user"
    return message if message.get("role") is role and isinstance(role, str) else {**message, "role": str(role)}


def _listed(tools: Any) -> list[Any]:
    return tools if isinstance(tools, list) else [tools] if tools else []
