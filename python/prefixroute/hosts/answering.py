"""What adapters over HTTP share: an answer followed from its first byte to its end, and what of it is learned."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

from prefixroute.bodies import MAX_READ_BYTES, AnswerReader, Api, EventCutter, answer_reader
from prefixroute.errors import ConfigError, TokensError
from prefixroute.router import Ticket

_LAST = (b"data: [DONE]", b"data:[DONE]", b"event: message_stop", b"event: response.completed")
"""How the last event of a stream begins: clients may close it there, without reading on to its end."""


class Answering:
    """An answer on its way to the client, and the ticket that it ends. As a context it ends the ticket, or gives it up.

    Args:
        ticket: of the request.
        path: of the URL, which tells what the answer looks like.
        status: the HTTP status.
        headers: of the answer, found by their names in lower case. One that is compressed passes unread.
    """

    def __init__(self, ticket: Ticket, path: str, status: int, headers: Mapping[str, str]) -> None:
        self.ticket, self._succeeds = ticket, 200 <= status < 300  # noqa: PLR2004  # RFC 9110
        api = Api.of(path) if headers.get("content-encoding", "identity") == "identity" else None
        self._answer: AnswerReader | None = answer_reader(api) if api is not None and self._succeeds else None
        is_stream = headers.get("content-type", "").startswith("text/event-stream")
        self._events = EventCutter() if is_stream else None
        self._body = bytearray()
        self._said_all = False

    def heard(self, data: bytes) -> None:
        """Note a part of the answer: the engine is at work, and may say what it has cached."""
        if not data:
            return
        if self._succeeds:
            self.ticket.first_token()
        if self._answer is None:
            return
        if self._events is not None:
            for event in self._events.cut(data):
                self._answer.read_event(event)
                self._said_all = self._said_all or event.startswith(_LAST)
            return
        self._body += data
        if len(self._body) > MAX_READ_BYTES:
            self._answer, self._body = None, bytearray()

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the request; after an exception give it up."""
        if error is None:
            self.end()
        else:
            self.leave()

    def end(self) -> None:
        """End the request: it is answered as a whole, by an answer or by an error."""
        if not self.ticket.open:
            return
        if not self._succeeds:
            self.ticket.abort()
            return
        answer = self._answer
        if answer is None:
            self.ticket.finish()
            return
        if self._events is None:
            answer.read(bytes(self._body))
        if answer.response_id is not None:
            self.ticket.alias(answer.response_id)
        with suppress(ConfigError, TokensError):  # it has ended all the same; what cannot be read is not learned from
            is_chat = self.ticket.decision.query.kind == "messages"
            self.ticket.finish(output=answer.output() if is_chat else None, usage=answer.usage)

    def leave(self) -> None:
        """Give the request up if it has not ended: the engine broke off, or the client has gone."""
        if self._said_all:
            self.end()
        elif self.ticket.open:
            self.ticket.abort()
