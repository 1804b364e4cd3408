"""Publish numbered KV-event batches as an engine does, with replay, and with faults on demand."""

from __future__ import annotations

import struct
import threading
from collections import deque
from types import TracebackType
from typing import Literal, Self

from prefixroute.errors import ConfigError
from prefixroute.extras import extra_module
from prefixroute.live.frames import END
from prefixroute.validation import check_int

LOCAL = "tcp://127.0.0.1:*"
"""A free port of this machine."""
BUFFER_STEPS = 10_000
"""vLLM's default for the batches kept for replay."""
Fault = Literal["drop", "burn", "twice"]
_POLL_MS = 50


class EventPublisher:
    """The publisher of one engine process: a PUB socket, and a ROUTER socket for replays. Thread-safe.

    Args:
        endpoint: where to publish; with ``*`` as the port the system chooses one, see :attr:`endpoint`.
        replay: where to answer replays; ``None`` = nowhere.
        topic: what to publish under.
        buffer_steps: batches kept for replay.
        connect: connect to ``endpoint``, where a subscriber listens, instead of listening.
        first: number of the first batch.

    Raises:
        ConfigError: an address cannot be used.
    """

    def __init__(
        self,
        endpoint: str = LOCAL,
        *,
        replay: str | None = LOCAL,
        topic: str = "",
        buffer_steps: int = BUFFER_STEPS,
        connect: bool = False,
        first: int = 0,
    ) -> None:
        check_int("buffer_steps", buffer_steps, 1)
        zmq = self._zmq = extra_module("zmq", "testing")
        self.topic, self.number = topic.encode(), first
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=buffer_steps)
        self._lock, self._closing = threading.Lock(), False
        self._context = zmq.Context()
        self._live = self._context.socket(zmq.XPUB)  # a PUB that knows who subscribes
        self._live.linger = self._live.sndhwm = 0
        self._router = self._context.socket(zmq.ROUTER)
        self._router.linger = self._router.sndhwm = 0
        try:
            self._live.connect(endpoint) if connect else self._live.bind(endpoint)
            if replay is not None:
                self._router.bind(replay)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise ConfigError(f"cannot publish at {endpoint} and {replay}: {error}") from error
        self.endpoint: str = endpoint if connect else self._live.last_endpoint.decode()
        self.replay: str | None = None if replay is None else self._router.last_endpoint.decode()
        self._thread = threading.Thread(target=self._serve, name="prefixroute-replay", daemon=True)
        self._thread.start()

    def publish(self, payload: bytes, fault: Fault | None = None) -> int:
        """Publish a batch; return its number.

        Args:
            payload: msgpack.
            fault: ``drop`` = it is lost on the way, and only replay has it; ``burn`` = its number is taken and nothing
                sent, as when a batch cannot be encoded; ``twice`` = it arrives two times.

        Returns:
            The number of the batch.
        """
        with self._lock:
            number = self.number
            self.number += 1
            if fault == "burn":
                return number
            self._kept.append((number, payload))
            for _ in range({"drop": 0, "twice": 2}.get(fault or "", 1)):
                self.send(number, payload)
            return number

    def send(self, number: int, payload: bytes) -> None:
        """Send a batch under a number, whatever was sent before; replay does not know of it.

        Args:
            number: of the batch.
            payload: the batch.
        """
        self.send_frames([self.topic, struct.pack(">Q", number), payload])

    def send_frames(self, frames: list[bytes]) -> None:
        """Send the frames of a message as they are, such as ones that no engine would send.

        Args:
            frames: topic, number as 8 bytes and batch, if the message is well-formed.
        """
        self._live.send_multipart(frames)

    def wait_for_subscriber(self, seconds: float = 10.0) -> None:
        """Wait until somebody subscribes, so that nothing that follows is lost; raise TimeoutError if nobody does.

        Args:
            seconds: to wait at most.
        """
        with self._lock:
            if not self._live.poll(round(seconds * 1000)):
                raise TimeoutError(f"nobody subscribed to {self.endpoint} within {seconds:g} s")
            self._live.recv()

    def close(self) -> None:
        """Stop at once: what was not sent is lost, as when a process dies."""
        if self._closing:
            return
        self._closing = True
        self._thread.join()
        with self._lock:
            self._live.close()
        self._router.close()
        self._context.term()

    def __enter__(self) -> Self:
        """Publish until the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.close()

    def _serve(self) -> None:
        """Answer replays until closed."""
        while not self._closing:
            if self._router.poll(_POLL_MS):
                self._answer(self._router.recv_multipart())

    def _answer(self, frames: list[bytes]) -> None:
        """Answer one request ``[client, "", first number]``; of any other shape it is never answered, as by engines."""
        if len(frames) != len(("client", "", "first")):
            return
        client, empty, first = frames
        start = int.from_bytes(first, "big")
        with self._lock:
            kept = [batch for batch in self._kept if batch[0] >= start]
        for number, payload in kept:
            self._router.send_multipart([client, empty, self.topic, struct.pack(">q", number), payload])
        self._router.send_multipart([client, empty, b"", struct.pack(">q", END), b""])
