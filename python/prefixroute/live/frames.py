"""The frames of KV events, replays and load reports, as vLLM and SGLang send them.

Untrusted: checked, never assumed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence as Frames
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

from prefixroute.errors import EventError
from prefixroute.extras import extra_module

END = -1
"""The number of a replay's end marker."""
MAX_MESSAGE_BYTES = 1 << 24
"""A message larger than this is dropped by the transport, and its sender disconnected. A million pages of one token
take 15 MB."""
_LIVE, _OLD_REPLAY = 3, 2
_FLOAT64 = 0xCB


class Batch(NamedTuple):
    """One numbered batch.

    Attributes:
        topic: what the engine publishes under.
        number: its place in the engine's sequence; :data:`END` for a replay's end marker.
        payload: msgpack.
    """

    topic: bytes
    number: int
    payload: bytes


def read_live(frames: Frames[bytes]) -> Batch | None:
    """Read a published message ``[topic, number, payload]``; ``None`` if it is none."""
    if len(frames) != _LIVE or len(frames[1]) != struct.calcsize(">q"):
        return None
    batch = Batch(frames[0], struct.unpack(">q", frames[1])[0], frames[2])
    return batch if batch.number >= 0 else None


def read_replay(frames: Frames[bytes]) -> Batch | None:
    """Read an answer ``["", topic, number, payload]``, or as older engines send it without topic.

    ``None`` if it is none.
    """
    frames = frames[1:] if len(frames) > _OLD_REPLAY and not frames[0] else frames
    if len(frames) == _OLD_REPLAY:
        frames = [b"", *frames]
    if len(frames) != _LIVE or len(frames[1]) != struct.calcsize(">q"):
        return None
    batch = Batch(frames[0], struct.unpack(">q", frames[1])[0], frames[2])
    return batch if batch.number >= END else None


def replay_request(start: int) -> list[bytes]:
    """Return the frames that ask for all batches from a number on. The empty one is required of a DEALER socket."""
    return [b"", struct.pack(">Q", start)]


def sent_at(payload: bytes) -> float | None:
    """Return the Unix time at which the engine made a batch, its first element; ``None`` if it is no float."""
    if len(payload) < 10 or payload[1] != _FLOAT64:  # noqa: PLR2004  # an array header and a float64
        return None
    seconds: float = struct.unpack_from(">d", payload, 2)[0]
    return seconds if isfinite(seconds) else None


@dataclass(frozen=True, slots=True)
class LoadStat:
    """An engine's load as SGLang publishes it.

    Attributes:
        running: requests in the batch.
        waiting: requests in the queue.
        kv_tokens: tokens in the KV cache that are in use.
        capacity_tokens: tokens that the KV cache holds.
        rank: data-parallel rank.
        waiting_tokens: uncached prompt tokens in the queue; ``None`` = not published by this release.
    """

    running: int
    waiting: int
    kv_tokens: int
    capacity_tokens: int
    rank: int
    waiting_tokens: int | None

    @property
    def kv_use(self) -> float | None:
        """Share of the KV cache in use."""
        return min(1.0, self.kv_tokens / self.capacity_tokens) if self.capacity_tokens > 0 else None


def read_load(payload: bytes) -> LoadStat:
    """Read a load report, an array that later releases append to.

    Raises:
        EventError: it is no load report.
    """
    msgpack = extra_module("msgpack", "events")
    try:
        fields: list[Any] = msgpack.unpackb(payload, max_array_len=64, max_str_len=64)
    except Exception as error:
        raise EventError(f"not a load report: {error}") from error
    numbers = fields[1:7] if isinstance(fields, list) and fields[:1] == ["LoadStat"] else []
    if len(numbers) < len(("running", "waiting", "kv_tokens", "capacity", "rank")):
        raise EventError(f"not a load report: {fields!r:.80}")
    waiting_tokens = numbers[5] if len(numbers) > 5 else None  # noqa: PLR2004  # absent in older releases
    rank = numbers[4] or 0
    checked = [*numbers[:4], rank, *([] if waiting_tokens is None else [waiting_tokens])]
    if any(not isinstance(number, int) or isinstance(number, bool) or number < 0 for number in checked):
        raise EventError(f"a load report has counts, got {fields!r:.80}")
    return LoadStat(numbers[0], numbers[1], numbers[2], numbers[3], rank, waiting_tokens)
