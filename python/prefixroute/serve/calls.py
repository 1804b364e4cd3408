"""A client's request, in whichever API it comes: what to route by, and what goes to the engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers

from prefixroute.bodies import Api, SessionKeys, prompt_of, session_of
from prefixroute.serve.headers import RANK, REQUEST_ID, RawHeaders, end_to_end
from prefixroute.types import Namespace

OFF_LOOP_BYTES = 256 * 1024
"""A body above this is hashed in a thread, so that other requests go on meanwhile."""


@dataclass(frozen=True, slots=True)
class Call:
    """A client's request.

    Attributes:
        api: which API it is of.
        target: path and query, as the engine gets them.
        headers: what the engine gets of the headers.
        content: the body that the engine gets.
        prompt: what the router hashes.
        prompt_kind: what it is, see :class:`~prefixroute.router.RouterConfig`.
        session: names the conversation; ``None`` = nothing does.
        previous: a response that the engine has stored, and this request goes on from.
        namespace: what else must be equal for blocks to be shared.
        hide_usage: the usage chunk is ours, the client did not ask for it.
        is_large: hash it in a thread.
    """

    api: Api
    target: str
    headers: RawHeaders
    content: bytes
    prompt: Any
    prompt_kind: str
    session: str | None
    previous: str | None
    namespace: Namespace
    hide_usage: bool
    is_large: bool

    @classmethod
    def read(cls, api: Api, query: bytes, headers: Headers, content: bytes, keys: SessionKeys) -> Call:
        """Read a request; raise ``ValueError`` if it is none. What routing does not need is the engine's to check."""
        try:
            body = json.loads(content)
        except ValueError as error:
            raise ValueError(f"the body must be JSON: {error}") from error
        if not isinstance(body, dict):
            raise ValueError(f"the body must be a JSON object, got {type(body).__name__}")  # noqa: TRY004  # HTTP 400
        hide_usage = False
        if body.get("stream") and api in {Api.CHAT, Api.COMPLETIONS}:
            content, hide_usage = _with_usage(content, body)
        prompt, kind = _prompt(api, body)
        previous = body.get("previous_response_id") if api is Api.RESPONSES else None
        return cls(
            api=api,
            target=f"{api.value}?{query.decode('latin-1')}" if query else api.value,
            headers=[
                *end_to_end(headers.raw, REQUEST_ID, RANK),
                (b"accept-encoding", b"identity"),
            ],  # the answer is read as it passes
            content=content,
            prompt=prompt,
            prompt_kind=kind,
            session=session_of(headers, body, keys),
            previous=previous if isinstance(previous, str) and previous else None,
            namespace=Namespace(model=str(body.get("model", "")), salt=str(body.get("cache_salt", ""))),
            hide_usage=hide_usage,
            is_large=len(content) > OFF_LOOP_BYTES,
        )


def _with_usage(content: bytes, body: Mapping[str, Any]) -> tuple[bytes, bool]:
    """Return a body that asks for usage at the end of its stream, and whether the client did not ask for it."""
    options = body.get("stream_options")
    if options is None and "stream_options" not in body:  # a whole body is not written again for it
        rest = content[content.index(b"{") + 1 :]
        return b'{"stream_options": {"include_usage": true}, ' + rest, True
    options = options or {}
    if not isinstance(options, dict):
        raise ValueError(f"stream_options must be an object, got {type(options).__name__}")  # noqa: TRY004  # HTTP 400
    if options.get("include_usage"):
        return content, False
    return json.dumps({**body, "stream_options": {**options, "include_usage": True}}).encode(), True


def _prompt(api: Api, body: Mapping[str, Any]) -> tuple[Any, str]:
    """Return what the router hashes, and its kind. An empty conversation has no blocks, and is the engine's to refuse."""
    field = "input" if api is Api.RESPONSES else "messages"
    if api is not Api.COMPLETIONS and not body.get(field) and (field in body or api is Api.RESPONSES):
        return {"messages": []}, "messages"
    return prompt_of(body, api.value)
