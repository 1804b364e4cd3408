"""The prompt in a request's body, whichever API the body is for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prefixroute.errors import TokensError
from prefixroute.validation import check_instance, shown

_PROMPTS = {"/completions": "prompt", "/messages": "messages", "/responses": "input"}
"""The field that holds the prompt, by the end of the path."""
_BESIDE = ("tools", "functions", "system", "instructions")
"""Fields beside the messages that engines render into the prompt."""
_RAW = ("prompt", "input_ids", "text", "token_ids")
"""Fields that hold a prompt as text or token ids: completions, SGLang's ``/generate`` and vLLM's ``/inference``."""


def prompt_of(body: Any, path: str | None = None) -> tuple[Any, str]:
    """Return the prompt in a request's body and its kind, as :meth:`Router.route` takes them.

    Chat completions, Anthropic messages and Responses come as kind ``messages``, with tools and system prompt; one
    conversation has the same hashes in all three forms. Legacy completions and the engines' native calls come as
    ``text`` or ``tokens``. Of a batch of prompts in one body the first counts. The turns behind
    ``previous_response_id`` are not in the body: bind that id by :meth:`Ticket.alias`.

    >>> prompt, kind = prompt_of({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
    >>> kind
    'messages'

    Args:
        body: the parsed JSON object.
        path: of the URL, where the body alone does not tell which field is the prompt; ``None`` = the body alone tells.

    Returns:
        The prompt and its kind, for ``router.route(prompt, prompt_kind=kind)``.

    Raises:
        TokensError: the body is no object, or has no prompt in it.
        ConfigError: the path is no string.
    """
    if not isinstance(body, Mapping):
        raise TokensError(f"a request's body must be an object, got {type(body).__name__}")
    field = _field(body, path)
    value = body.get(field)
    if field in ("messages", "input"):
        if not value or isinstance(value, Mapping) or not isinstance(value, Sequence):
            raise TokensError(f"{field} must be a list of messages, got {type(value).__name__}")
        kept = {name: body[name] for name in _BESIDE if body.get(name)}
        if "functions" in kept:
            kept.setdefault("tools", kept.pop("functions"))
        return {field: value if isinstance(value, str) else list(value), **kept}, "messages"
    return _raw(field, value)


def _field(body: Mapping[str, Any], path: str | None) -> str:
    """Return the field that holds the prompt: by the path, else the first that is there."""
    if path is not None:
        check_instance("path", path, str)
        path = path.partition("?")[0].rstrip("/")
        ending = "/messages" if path.endswith(("/chat/completions", "/count_tokens")) else path[path.rfind("/") :]
        if ending in _PROMPTS:
            return _PROMPTS[ending]
    for field in ("messages", "input", *_RAW):
        if body.get(field) is not None:
            return field
    raise TokensError(f"a body holds messages, input, {', '.join(_RAW)}; got {shown(list(body))}")


def _raw(field: str, value: Any) -> tuple[Any, str]:
    if isinstance(value, list) and value and isinstance(value[0], str | list):
        value = value[0]
    if isinstance(value, str):
        return value, "text"
    if isinstance(value, list) and value and all(type(token) is int for token in value[:1]):
        return value, "tokens"
    raise TokensError(f"{field} must be a text or a list of token ids, got {shown(value)}")
