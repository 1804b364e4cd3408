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
        why: in a word, for metrics.
        headers: beside the length.

    Args:
        status: HTTP's.
        why: in a word, for metrics.
        message: for people.
        retry_s: seconds after which a further attempt is reasonable.
        close: end the connection, of which a part is still unread.
    """

    def __init__(
        self, status: int, why: str, message: str, *, retry_s: float | None = None, close: bool = False
    ) -> None:
        super().__init__(status, why)
        self.status, self.why, self._message = status, why, message
        self.headers: RawHeaders = [(b"content-type", b"application/json")]
        if retry_s is not None:
            self.headers.append(retry_after(retry_s))
        if close:
            self.headers.append((b"connection", b"close"))

    def body(self, *, openai: bool) -> bytes:
        """Return what the client gets.

        Args:
            openai: in OpenAI's form, else in Anthropic's.
        """
        return error_body(self.status, self._message, openai=openai)


class RefusedByEngine(Refused):
    """An engine's own refusal, which the client gets as it is if no other engine answers.

    Args:
        status: HTTP's.
        headers: of the engine, without the length.
        body: of the engine.
    """

    def __init__(self, status: int, headers: RawHeaders, body: bytes) -> None:
        super().__init__(status, f"status {status}", "")
        self.headers, self._body = headers, body

    def body(self, *, openai: bool) -> bytes:
        """Return the engine's words, whichever API was asked."""
        del openai
        return self._body


def ending() -> Refused:
    """Return what a client gets whose request was not answered when the server ends."""
    said = "the proxy is ending, and this request was not answered in the time that was left"
    return Refused(503, "ending", said, retry_s=TOO_BUSY_S, close=True)


def error_body(status: int, message: str, *, openai: bool = True) -> bytes:
    """Return the body of an error.

    Args:
        status: HTTP's.
        message: for people.
        openai: in OpenAI's form, else in Anthropic's.
    """
    if openai:
        body: dict[str, object] = {"error": {"message": message, "type": "proxy_error", "code": status}}
    else:
        body = {"type": "error", "error": {"type": _ANTHROPIC.get(status, "api_error"), "message": message}}
    return json.dumps(body).encode(errors="backslashreplace")
