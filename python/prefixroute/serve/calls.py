"""A client's request, in whichever API it comes: what to route by, and what goes to the engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from starlette.requests import Request

from prefixroute.bodies import Api, SessionKeys, prompt_of, session_of
from prefixroute.hashing import BlockHashes
from prefixroute.serve.headers import RANK, REQUEST_ID, RawHeaders, end_to_end
from prefixroute.types import Namespace

_ASKING = b'{"stream_options": {"include_usage": true}, '
"""What a body begins with that asks for usage at the end of its stream."""


@dataclass(frozen=True, slots=True)
class ParsedBody:
    """What a body says.

    Attributes:
        prompt: what the router hashes; of a large body its hashes.
        prompt_kind: what it is, see :class:`~prefixroute.router.RouterConfig`.
        session: names the conversation; ``None`` = nothing in the body does.
        previous: a response that the engine has stored, and this request goes on from.
        namespace: what else must be equal for blocks to be shared.
        hide_usage: the engine is asked for a usage chunk that the client did not ask for.
        rewritten: the body that asks for it, where that is another than the client's with :data:`_ASKING` before it.
    """

    prompt: Any
    prompt_kind: str
    session: str | None
    previous: str | None
    namespace: Namespace
    hide_usage: bool = False
    rewritten: bytes | None = None

    @classmethod
    def of(cls, api: Api, content: bytes, keys: SessionKeys) -> Self:
        """Read a body; raise ``ValueError`` if it is none. What routing does not need is the engine's to check."""
        try:
            body = json.loads(content.decode("utf-8-sig"))
        except ValueError as error:
            raise ValueError(f"the body must be JSON: {error}") from error
        if not isinstance(body, dict):
            raise ValueError(f"the body must be a JSON object, got {type(body).__name__}")  # noqa: TRY004  # HTTP 400
        hide_usage, rewritten = False, None
        if body.get("stream") and api in {Api.CHAT, Api.COMPLETIONS}:
            hide_usage, rewritten = _asking_for_usage(body)
        prompt, kind = _prompt(api, body)
        previous = body.get("previous_response_id") if api is Api.RESPONSES else None
        return cls(
            prompt=prompt,
            prompt_kind=kind,
            session=session_of(None, body, keys),
            previous=previous if isinstance(previous, str) and previous else None,
            namespace=_namespace(body),
            hide_usage=hide_usage,
            rewritten=rewritten,
        )


@dataclass(frozen=True, slots=True)
class Call:
    """A client's request.

    Attributes:
        api: which API it is of.
        target: path and query, as the engine gets them.
        headers: what the engine gets of the headers.
        content: the body that the engine gets.
        session: names the conversation; ``None`` = nothing does.
        reading: what the client's body says.
    """

    api: Api
    target: str
    headers: RawHeaders
    content: bytes
    session: str | None
    reading: ParsedBody

    @classmethod
    def of(cls, api: Api, request: Request, content: bytes, reading: ParsedBody, keys: SessionKeys) -> Self:
        """Return the call whose body was read. Headers that name the conversation count before its fields."""
        query, headers = request.scope["query_string"], request.headers
        if reading.rewritten is not None:
            content = reading.rewritten
        elif reading.hide_usage:
            content = _ASKING + content[content.index(b"{") + 1 :]
        return cls(
            api=api,
            target=f"{api.value}?{query.decode('latin-1')}" if query else api.value,
            headers=[
                *end_to_end(headers.raw, REQUEST_ID, RANK),
                (b"accept-encoding", b"identity"),
            ],  # the answer is read as it passes
            content=content,
            session=session_of(headers, None, keys) or reading.session,
            reading=reading,
        )

    @property
    def is_hashed(self) -> bool:
        """Whether the prompt is known by its hashes alone: no text can be put behind it."""
        return type(self.reading.prompt) is BlockHashes


def _asking_for_usage(body: Mapping[str, Any]) -> tuple[bool, bytes | None]:
    """Return whether the client did not ask for usage at the end of its stream, and the body if it is written again."""
    options = body.get("stream_options")
    if options is None and "stream_options" not in body:  # a whole body is not written again for it
        return True, None
    options = options or {}
    if not isinstance(options, dict):
        raise ValueError(f"stream_options must be an object, got {type(options).__name__}")  # noqa: TRY004  # HTTP 400
    if options.get("include_usage"):
        return False, None
    return True, json.dumps({**body, "stream_options": {**options, "include_usage": True}}).encode()


def _namespace(body: Mapping[str, Any]) -> Namespace:
    """Return what a body says, besides its prompt, of blocks that may be shared. The engine refuses what is no text."""
    model, lora, salt = (
        value if isinstance(value, str) else "" for value in map(body.get, ("model", "lora_path", "cache_salt"))
    )
    return Namespace(model=model, lora=lora, salt=salt)


def _prompt(api: Api, body: Mapping[str, Any]) -> tuple[Any, str]:
    """Return what the router hashes, and its kind.

    An empty conversation has no blocks, and is the engine's to refuse.
    """
    field = "input" if api is Api.RESPONSES else "messages"
    if api is not Api.COMPLETIONS and not body.get(field) and (field in body or api is Api.RESPONSES):
        return {"messages": []}, "messages"
    return prompt_of(body, api.value)
