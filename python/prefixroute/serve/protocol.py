"""HTTP/1 on a client's connection: uvicorn's protocol, with bounds on a request's head in bytes and in time."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from prefixroute.serve.replies import error_body
from prefixroute.serve.settings import Limits

LINGER_S = 1.0
"""What a client still sends after it was refused is read and dropped for so long, in seconds."""
MAX_AHEAD = 8
"""Requests of a connection that wait for the answer to one before them."""


class BoundedProtocol(HttpToolsProtocol):
    """Refuses a head that is too large (431) or does not come (408), and closes the connection.

    The parser has no bounds of its own: without these a client could send a header for ever, or hold a connection by a
    byte a minute. Requests may come before the answers to those before them (pipelining), :data:`MAX_AHEAD` of them at
    most. What comes beyond that, or with a large body, is not read, and the connection ends with the last answer.
    uvicorn by itself stops reading at the first, and does not notice then that the client leaves.
    """

    limits = Limits()

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request's head."""
        super().connection_made(transport)
        self._head_bytes, self._is_over = 0, False
        self._served: RequestResponseCycle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._head_came()
        if self._served is not None and not self._served.response_complete:  # uvicorn tells the newest alone
            self._served.disconnected = True
            self._served.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has come; count what belongs to a head."""
        if self._is_over:
            return
        if self._is_between and self._deadline is None:
            self._await_head()
        waits = self._deadline is not None
        self._head_bytes += len(data)
        super().data_received(data)
        if waits and self._head_is_too_large:
            self._refuse_head()

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser cannot read, such as a head beyond its own bounds, which are above ours."""
        if self._head_is_too_large:
            self._refuse_head()
        else:
            super().send_400_response(msg)

    def on_headers_complete(self) -> None:
        """Serve a request whose head is there, or let it wait for those before it."""
        self._head_came()
        if len(self.pipeline) == MAX_AHEAD:
            self._end_with(self.cycle)
        if self._is_over:
            return
        super().on_headers_complete()
        if not self.pipeline:
            self._served = self.cycle
        self.flow.resume_reading()  # whoever waits: else nothing tells that the client leaves

    def on_body(self, body: bytes) -> None:
        """Take a part of a request's body."""
        if self._is_over:
            return
        super().on_body(body)
        if self.pipeline and len(self.cycle.body) > HIGH_WATER_LIMIT:
            self.pipeline.popleft()
            before = self.pipeline[0][0] if self.pipeline else self._served
            if before is not None:
                self._end_with(before)
            self.flow.resume_reading()

    def on_message_complete(self) -> None:
        """Note that a request is complete."""
        if not self._is_over:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Serve the next request, if one waits."""
        if self.pipeline:
            self._served = self.pipeline[-1][0]
        super().on_response_complete()

    def _end_with(self, last: RequestResponseCycle) -> None:
        """Read no more, and end the connection with the answer to this request."""
        self._is_over, self.cycle, last.keep_alive = True, last, False

    @property
    def _is_between(self) -> bool:
        """Whether no request is in progress."""
        return self.cycle is None or self.cycle.response_complete

    def _await_head(self) -> None:
        self._head_bytes = 0
        self._deadline = self.loop.call_later(self.limits.header_timeout_s, self._too_slow)

    def _head_came(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    @property
    def _head_is_too_large(self) -> bool:
        """Whether a head has not ended within its bounds."""
        return self._deadline is not None and self._head_bytes > self.limits.max_header_bytes

    def _refuse_head(self) -> None:
        self._refuse(431, f"the head must have at most {self.limits.max_header_bytes} bytes")

    def _too_slow(self) -> None:
        self._deadline = None
        if self._head_bytes:
            self._refuse(408, f"the head must arrive within {self.limits.header_timeout_s:g} s")
        else:
            self.transport.close()  # a connection that was opened ahead of use

    def _refuse(self, status: int, message: str) -> None:
        self._head_came()
        if self.transport.is_closing():
            return
        body = error_body(status, message)
        head = [
            STATUS_LINE[status],
            b"content-type: application/json\r\n",
            b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body),
        ]
        self.transport.write(b"".join([*head, body]))
        if not self.transport.can_write_eof():
            self.transport.close()
            return
        # A connection that is closed before all was read is reset, and a client that still sends loses the answer.
        self._is_over = True
        self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.close)


def bounded_by(limits: Limits) -> type[BoundedProtocol]:
    """Return the protocol with these limits, for uvicorn, which takes a class."""
    return type("Bounded", (BoundedProtocol,), {"limits": limits})
