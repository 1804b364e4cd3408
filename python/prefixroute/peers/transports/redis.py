"""Peers on several hosts by one capped stream of a Redis or Valkey server."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from functools import partial
from typing import Any

from prefixroute.errors import ConfigError
from prefixroute.extras import extra_module
from prefixroute.peers.transports.threads import Threads
from prefixroute.validation import check_instance, check_int

STREAM = "prefixroute:peers"
MAX_ENTRIES = 100_000
"""Entries that the stream keeps, about: some 25 MB, and half a minute of 1,000 requests a second."""
READ_ENTRIES = 1_000
TIMEOUT_S = 5.0
"""Seconds after which a server that does not answer counts as gone."""
_FIELD = b"f"


class RedisPeers(Threads):
    """Carries frames by a stream that all routers write to and read from. No decision waits for the server.

    While the server is gone the router goes on alone. When it returns, what waits is sent, and what was missed is read
    as far as the stream still has it. A stream that was deleted or flushed begins anew.

    Args:
        url: of the server, e.g. ``"redis://10.0.0.5:6379/0"``, ``"rediss://..."`` or ``"unix:///run/redis.sock"``.
            Whoever can write there can mislead every router: use a password and a network that others do not reach.
        stream: key of the stream; one for each fleet.
        max_entries: entries that the stream keeps, about.
        timeout_s: seconds after which a server that does not answer counts as gone.
        client_options: more keywords of ``redis.Redis.from_url``.

    Raises:
        ConfigError: redis-py is not installed, or an option is not allowed.
    """

    def __init__(
        self,
        url: str,
        *,
        stream: str = STREAM,
        max_entries: int = MAX_ENTRIES,
        timeout_s: float = TIMEOUT_S,
        **client_options: Any,
    ) -> None:
        """Connect to nothing yet."""
        super().__init__("redis")
        redis = extra_module("redis", "redis")
        check_instance("url", url, str)
        check_instance("stream", stream, str)
        check_int("max_entries", max_entries, 1)
        self._stream, self._max_entries = stream, max_entries
        never = extra_module("redis.retry", "redis").Retry(extra_module("redis.backoff", "redis").NoBackoff(), 0)
        options = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s, "retry": never, **client_options}
        options |= {"protocol": 2, "decode_responses": False}  # the shapes that are read below
        self._connect = partial(redis.Redis.from_url, url, **options)
        try:
            self._sender, self._reader = self._connect(), self._connect()
            # A first connection imports modules, and looking a host up does. Not in a thread: a child that is forked in
            # the middle of it has them half imported for ever.
            self._connect().connection_pool.make_connection()
            codecs.lookup("idna")
        except (ValueError, TypeError) as error:
            raise ConfigError(f"url {url!r}: {error}") from error
        self._last = b"0-0"

    def forked(self) -> None:
        """Let go of the parent's connections; a child has its own."""
        self._begin()
        self._sender, self._reader, self._last = self._connect(), self._connect(), b"0-0"

    def _send(self, frames: list[bytes]) -> None:
        pipeline = self._sender.pipeline(transaction=False)
        for frame in frames:
            pipeline.xadd(self._stream, {_FIELD: frame}, maxlen=self._max_entries, approximate=True)
        for answer in pipeline.execute(raise_on_error=False):  # what it would raise quotes the frame
            if isinstance(answer, Exception):
                raise answer

    def _position(self) -> None:
        self._last = self._newest()  # what was before, the peers tell a newcomer

    def _read(self, wait_s: float) -> Iterable[bytes]:
        answer = self._reader.xread({self._stream: self._last}, count=READ_ENTRIES, block=max(1, int(1_000 * wait_s)))
        if not answer:
            if _number(self._newest()) < _number(self._last):  # another server's stream, whose clock is behind
                self._last = b"0-0"
            return
        for ident, fields in answer[0][1]:
            self._last = ident
            frame = fields.get(_FIELD)
            if frame is not None:
                yield frame

    def _newest(self) -> bytes:
        entries = self._reader.xrevrange(self._stream, count=1)
        ident: bytes = entries[0][0] if entries else b"0-0"
        return ident

    def _release(self) -> None:
        self._sender.close()
        self._reader.close()


def _number(ident: bytes) -> tuple[int, int]:
    """Return the identifier of an entry as numbers: milliseconds, and a count within them."""
    milliseconds, _, count = ident.partition(b"-")
    return int(milliseconds), int(count)
