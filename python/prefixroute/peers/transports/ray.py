"""Peers in a Ray cluster by one detached actor, which keeps the latest frames and hands them to all."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any, NamedTuple

from prefixroute.errors import ConfigError
from prefixroute.extras import extra_module
from prefixroute.peers.transports.threads import Threads
from prefixroute.validation import check_instance

NAME = "prefixroute-peers"
MAX_FRAMES = 100_000
"""Frames that the actor keeps, some 25 MB."""
READ_FRAMES = 5_000
TIMEOUT_S = 10.0
"""Seconds after which an actor that does not answer counts as gone."""


class Frames(NamedTuple):
    """What a reader gets: which life of the actor this is, the number of the next frame, and frames."""

    life: int
    cursor: int
    frames: list[bytes]


class Mailbox:
    """What the actor runs: a ring of frames with numbers, and readers that wait for the next."""

    def __init__(self, max_frames: int = MAX_FRAMES) -> None:
        """Start empty."""
        self._life, self._next = secrets.randbits(62), 0
        self._frames: deque[bytes] = deque(maxlen=max_frames)
        self._news = asyncio.Condition()

    async def publish(self, frames: list[bytes]) -> None:
        """Keep frames, the oldest give way, and wake the readers."""
        async with self._news:
            self._frames.extend(frames)
            self._next += len(frames)
            self._news.notify_all()

    async def read(self, life: int, cursor: int, wait_s: float) -> Frames:
        """Return frames from a number on, waiting for the first.

        A reader of another life, or a new one (0), gets none and learns where to go on.
        """
        if life != self._life:
            return Frames(self._life, 0 if life else self._next, [])
        async with self._news:
            if cursor >= self._next:
                try:
                    await asyncio.wait_for(self._news.wait(), wait_s)
                except TimeoutError:
                    return Frames(life, cursor, [])
            first = self._next - len(self._frames)
            begin = max(cursor, first)
            frames = list(islice(self._frames, begin - first, begin - first + READ_FRAMES))
            return Frames(life, begin + len(frames), frames)


class RayPeers(Threads):
    """Carries frames by a detached actor, that the first router of a cluster starts. No decision waits for it.

    Args:
        name: of the actor; one for each fleet.
        namespace: of Ray, in which the actor lives: the same for all routers, whatever job they belong to.

    Raises:
        ConfigError: Ray is not installed or not connected.
    """

    def __init__(self, name: str = NAME, *, namespace: str = "prefixroute") -> None:
        """Find or start the actor."""
        super().__init__("ray")
        self._ray: Any = extra_module("ray", "ray")
        check_instance("name", name, str)
        check_instance("namespace", namespace, str)
        if not self._ray.is_initialized():
            raise ConfigError("Ray is not connected: call ray.init() first")
        self._name, self._namespace = name, namespace
        self._life, self._cursor = 0, 0
        self._actor: Any = self._find()

    def _find(self) -> Any:
        options = {"name": self._name, "namespace": self._namespace, "lifetime": "detached", "num_cpus": 0}
        return self._ray.remote(Mailbox).options(**options, get_if_exists=True, max_concurrency=1_000).remote()

    def _call(self, method: str, *arguments: Any, wait_s: float = 0.0) -> Any:
        """Call the actor. After a failed call it is looked for again, or replaced: it or its cluster may be gone."""
        if not self._ray.is_initialized():  # a call would start a cluster of its own
            self._actor = None
            raise ConnectionError("Ray is no longer connected")
        try:
            actor = self._actor = self._actor or self._find()
            return self._ray.get(getattr(actor, method).remote(*arguments), timeout=TIMEOUT_S + wait_s)
        except SystemExit as error:  # Ray ends every thread that waits when it is shut down
            self._actor = None
            raise ConnectionError("Ray was shut down") from error
        except Exception:
            self._actor = None
            raise

    def _position(self) -> None:
        self._life, self._cursor, _ = self._call("read", 0, 0, 0.0)

    def _send(self, frames: list[bytes]) -> None:
        self._call("publish", frames)

    def _read(self, wait_s: float) -> Iterable[bytes]:
        self._life, self._cursor, frames = self._call("read", self._life, self._cursor, wait_s, wait_s=wait_s)
        return list(frames)
