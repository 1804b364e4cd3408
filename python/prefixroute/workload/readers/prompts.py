"""The prompt and the answer of a row, whatever API they were made for.

As text in the canonical form, or as token ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from prefixroute.errors import TokensError
from prefixroute.messages import CanonicalForm, answer_messages
from prefixroute.workload.readers.fields import Finder
from prefixroute.workload.readers.lines import json_in
from prefixroute.workload.readers.row import Row, shown

Prompt: TypeAlias = str | list[Any]
"""Text, or token ids that nobody has checked."""
_BODY = ("messages", "input", "prompt")


class PromptParts(NamedTuple):
    """A prompt of messages: what stands before the conversation, and the conversation."""

    head: str
    conversation: str


def prompt_of(row: Row, finder: Finder, form: CanonicalForm) -> Prompt | PromptParts | None:
    """Return the prompt of the row that ``finder`` looks at, or None where it has none.

    Raises:
        TraceError: there is one, of no known form.
    """
    ids = finder.find_parsed("token_ids")
    if ids is not None:
        if not isinstance(ids, list):
            raise row.error(f"token ids must be a list, got {shown(ids)}")
        return ids
    messages, tools, system = finder.find_parsed("messages"), finder.find_parsed("tools"), finder.find("system")
    if isinstance(messages, Mapping) and any(messages.get(name) for name in _BODY[:2]):
        tools, system = messages.get("tools") or tools, messages.get("system") or messages.get("instructions") or system
        messages = messages.get("messages") or messages.get("input")
    if isinstance(messages, list) and all(type(one) is int for one in messages):
        return messages
    if isinstance(messages, list | str):
        return _parts(row, form, messages, tools, system)
    prompt = finder.find("prompt")
    if prompt is None:
        if messages is not None:
            raise row.error(f"messages must be a list or a text, got {shown(messages)}")
        return None
    return _plain(row, form, prompt, tools, system)


def _plain(row: Row, form: CanonicalForm, prompt: Any, tools: Any, system: Any) -> Prompt | PromptParts:
    """Return a prompt that is a text or a list of token ids; one that is messages all the same is read as such."""
    if isinstance(prompt, str):
        messages = _listed(prompt)
        return prompt if messages is None else _parts(row, form, messages, tools, system)
    if isinstance(prompt, list) and prompt and type(prompt[0]) is int:
        return prompt
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        return prompt[0]
    if _are_messages(prompt):
        return _parts(row, form, prompt, tools, system)
    raise row.error(f"prompt must be text or a list of token ids, got {shown(prompt)}")


def _listed(text: str) -> list[Any] | None:
    """Return the messages that a text is the JSON of, if it is."""
    value = json_in(text, "[{")
    return value if _are_messages(value) else None


def _are_messages(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) and "role" in one for one in value)


def _parts(row: Row, form: CanonicalForm, messages: list[Any] | str, tools: Any, system: Any) -> PromptParts:
    if isinstance(system, str):
        system = json_in(system, "[{") or system
    try:
        head = form.conversation([], tools or (), system)
        return PromptParts(
            head, form.conversation([_with_role(one) for one in messages] if isinstance(messages, list) else messages)
        )
    except TokensError as error:
        raise row.error(str(error)) from error


def _with_role(message: Any) -> Any:
    """Return a message with a role: one without role and type is the user's."""
    if not isinstance(message, dict) or isinstance(message.get("role", message.get("type")), str):
        return message
    return {**message, "role": str(message.get("role") or message.get("type") or "user")}


def answer_of(row: Row, finder: Finder, form: CanonicalForm) -> str:
    """Return the text that the row's answer adds to its conversation; empty where the row has none.

    Raises:
        TraceError: there is one, of no known form.
    """
    answer = finder.find("output")
    if isinstance(answer, str) and answer.lstrip()[:1] in {"{", "["}:
        parsed = finder.find_parsed("output")
        answer = parsed if _messages(parsed) is not None else answer
    messages = _messages(answer)
    if not messages:
        return ""
    try:
        return "".join(form.segment(_with_role(message), where="the answer") for message in messages)
    except TokensError as error:
        raise row.error(str(error)) from error


def _messages(answer: Any) -> list[Any] | None:
    """Return the messages of an answer: a text, a message, a body, content parts or items.

    None if it is none of these.
    """
    if isinstance(answer, str):
        return answer_messages(answer)
    if isinstance(answer, list):
        return answer_messages(answer) if answer and all(isinstance(part, Mapping | str) for part in answer) else None
    if not isinstance(answer, Mapping):
        return None
    choices = answer.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
        return _messages(choices[0].get("message", choices[0].get("text")))
    if isinstance(answer.get("output"), list):
        return _messages(answer["output"])
    return (
        answer_messages(answer)
        if any(answer.get(name) for name in ("content", "tool_calls", "reasoning_content"))
        else None
    )
