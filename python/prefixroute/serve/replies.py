"""Answers of our own: errors, in the form of the API that was asked."""

from __future__ import annotations

import json

from prefixroute.serve.headers import RawHeaders, retry_after

TOO_BUSY_S = 1.0
"""Retry-After of our own refusals, in seconds."""
_ANTHROPIC = {
    400: "invalid_request_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class Refused(Exception):  # noqa: N818  # an outcome: nothing has reached the client yet
    """A request that was not answered, or not by this engine.

    Attributes:
        status: for the client, should no other engine answer.
        headers: beside the length.
        body: what the client gets.
        why: in a word, for metrics.
    """

    def __init__(self, status: int, headers: RawHeaders, body: bytes, why: str) -> None:
        """Keep what the client would get."""
        super().__init__(status, why)
        self.status, self.headers, self.body, self.why = status, headers, body, why


def refusal(
    status: int, message: str, why: str, *, retry_s: float | None = None, close: bool = False, openai: bool = True
) -> Refused:
    """Return a refusal of ours.

    Args:
        status: HTTP's.
        message: for people.
        why: in a word, for metrics.
        retry_s: seconds after which a further attempt is reasonable.
        close: end the connection, of which a part is still unread.
        openai: in OpenAI's form, else in Anthropic's.
    """
    headers: RawHeaders = [(b"content-type", b"application/json")]
    if retry_s is not None:
        headers.append(retry_after(retry_s))
    if close:
        headers.append((b"connection", b"close"))
    return Refused(status, headers, error_body(status, message, openai=openai), why)


def ending(*, openai: bool) -> Refused:
    """Return what a client gets whose request was not answered when the server ends."""
    said = "the proxy is ending, and this request was not answered in the time that was left"
    return refusal(503, said, "ending", retry_s=TOO_BUSY_S, close=True, openai=openai)


def error_body(status: int, message: str, *, openai: bool = True) -> bytes:
    """Return the body of an error."""
    if openai:
        body: dict[str, object] = {"error": {"message": message, "type": "proxy_error", "code": status}}
    else:
        body = {"type": "error", "error": {"type": _ANTHROPIC.get(status, "api_error"), "message": message}}
    return json.dumps(body).encode(errors="backslashreplace")
