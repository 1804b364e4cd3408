"""Where the usual gateways, engines and exporters put each field of a request: the paths that need no field map."""

from __future__ import annotations

_BODIES = (
    "",
    "request.",
    "body.",
    "request.body.",
    "request_body.",
    "requestBody.",
    "proxy_server_request.",
    "proxy_server_request.body.",
    "payload.",
    "input.",
)
_ANSWERS = ("", "response.", "response.body.", "response_body.", "responseBody.", "output.")
_TIMES = (
    "timestamp",
    "time",
    "ts",
    "timestamp_ms",
    "time_ms",
    "ts_ms",
    "start_time",
    "startTime",
    "start_time_unix_nano",
    "startTimeUnixNano",
    "request_time",
    "request_created_at",
    "created_at",
    "createdAt",
    "@timestamp",
    "created",
)
_SESSIONS = (
    "session",
    "session_id",
    "sessionId",
    "conversation_id",
    "thread_id",
    "x-session-id",
    "Helicone-Session-Id",
    "helicone-session-id",
)
_HEADERS = (
    "",
    "headers.",
    "request.headers.",
    "metadata.",
    "request.metadata.",
    "body.metadata.",
    "request_properties.",
    "properties.",
)
_DETAILS = ("usage.", "usage_details.")
_USAGES = ("usage.", "", "usage_details.", "metadata.usage_object.")


def _in(places: tuple[str, ...], *names: str) -> tuple[str, ...]:
    return tuple(place + name for place in places for name in names)


def _used(*names: str) -> tuple[str, ...]:
    return _in(_ANSWERS, *_in(_USAGES, *names))


_USERS = ("user_id", "userId", "user", "request_user_id", *_in(_BODIES[1:], "user"))

DEFAULT_PATHS: dict[str, tuple[str, ...]] = {
    "time": _TIMES,
    "end_time": (),
    "duration": (),
    "messages": _in(_BODIES, "messages", "input"),
    "system": _in(_BODIES, "system", "instructions"),
    "tools": _in(_BODIES, "tools"),
    "prompt": (*_in(_BODIES, "prompt", "text_input"), "text"),
    "token_ids": _in(_BODIES, "prompt_token_ids", "token_ids", "input_ids"),
    "output": (
        *_in(_ANSWERS, "choices.0.message", "choices.0.text", "content", "output_text", "completion", "output"),
        "response",
    ),
    "output_token_ids": _in(_ANSWERS, "output_token_ids", "completion_token_ids", "output_ids"),
    "session": _in(_HEADERS, *_SESSIONS),
    "tenant": ("tenant", "tenant_id", "organization", "team_id", *_USERS),
    "user": _USERS,
    "model": (*_in(_BODIES, "model"), "request_model", "provided_model_name"),
    "replica": ("replica", "backend", "upstream", "upstream_host", "api_base", "served_by", "instance", "pod"),
    "salt": _in(_BODIES, "cache_salt"),
    "prompt_tokens": (*_used("prompt_tokens", "input_tokens"), *_in(_DETAILS, "input")),
    "output_tokens": (*_used("completion_tokens", "output_tokens"), *_in(_DETAILS, "output")),
    "cached_tokens": _used(
        "prompt_tokens_details.cached_tokens",
        "input_tokens_details.cached_tokens",
        "cache_read_input_tokens",
        "input_cached_tokens",
        "cached_tokens",
    ),
    "cache_write_tokens": _used("cache_creation_input_tokens"),
    "response_id": (*_in(_ANSWERS[1:], "id"), "response_id"),
    "previous_response": _in(_BODIES, "previous_response_id"),
}
"""Paths that are tried for each field in every row; the first that leads to anything but null, an empty text, an
empty list or an empty object wins."""

COUNTED_APART = frozenset(
    {
        ("input_tokens", None),
        ("input_tokens", "cache_read_input_tokens"),
        ("input", None),
        ("input", "input_cached_tokens"),
        ("input", "cache_read_input_tokens"),
    }
)
"""Names of prompt tokens and of cached tokens that are counted beside each other: Anthropic's usage, Langfuse's
details."""
