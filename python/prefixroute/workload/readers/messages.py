"""Prompts of a log in the canonical form that the Router matches messages in."""

from __future__ import annotations

from typing import Any

from prefixroute.messages import CanonicalForm


def conversation_text(form: CanonicalForm, messages: list[Any], *, tools: Any = None, system: Any = None) -> str:
    """Return the text of a prompt: tools, system prompt, messages. A message without role and type is the user's.

    Raises:
        TokensError: names the first message that is no object, or has no text.
    """
    named = [_with_role(message) if isinstance(message, dict) else message for message in messages]
    return form.conversation(named, tools or (), system)


def _with_role(message: dict[str, Any]) -> dict[str, Any]:
    role = message.get("role") or message.get("type") or "user"
    return message if isinstance(message.get("role", message.get("type")), str) else {**message, "role": str(role)}
