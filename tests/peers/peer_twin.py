"""The dull twin of a router's account of its peers: it keeps every message that came, and works the answer out from all."""

from __future__ import annotations

from collections import Counter, defaultdict

from prefixroute.peers import wire
from prefixroute.peers.names import mark_of
from prefixroute.peers.wire import Frame, Kind


class TwinPeers:
    """Messages by peer and sequence; a duplicate changes nothing, and no order is looked at."""

    def __init__(self, fingerprint: int) -> None:
        self.fingerprint = fingerprint
        self.messages: dict[int, dict[int, Frame]] = defaultdict(dict)
        self.floors: Counter[int] = Counter()

    def apply(self, data: bytes) -> None:
        frame = wire.read(data, self.fingerprint)
        if frame.sequence > self.floors[frame.peer]:
            self.messages[frame.peer][frame.sequence] = frame

    def expire(self, peer: int) -> None:
        self.floors[peer] = max(self.messages.pop(peer, {0: None}))

    def load(self, names: list[str]) -> dict[str, tuple[int, int, int]]:
        """Return requests in flight, uncached tokens that wait, and tokens decoding, by replica."""
        marks = {mark_of(name): name for name in names}
        load = {name: [0, 0, 0] for name in names}
        for frames in self.messages.values():
            for replica, uncached, context, started in self._open(frames):
                row = load[marks[replica]]
                row[0] += 1
                row[1] += 0 if started else uncached
                row[2] += context if started else 0
        return {name: tuple(row) for name, row in load.items()}  # type: ignore[misc]

    @staticmethod
    def _open(frames: dict[int, Frame]) -> list[tuple[int, int, int, bool]]:
        beats = [number for number, frame in frames.items() if frame.kind == Kind.BEAT]
        last = max(beats, default=0)
        rows: dict[int, tuple[int, int, int, bool]] = {}
        if last:
            for ident, replica, _, uncached, context, started in wire.rows(wire.OPEN, frames[last].body):
                rows[ident] = replica, uncached, context, bool(started)
        later = {number: frame for number, frame in frames.items() if number > last}
        for number, frame in later.items():
            if frame.kind == Kind.BOOKED:
                replica, _, _, uncached, context, *_ = wire.BOOKED.unpack_from(frame.body)
                rows[number] = replica, uncached, context, False
        for frame in later.values():
            if frame.kind == Kind.STARTED:
                (ident,) = wire.STARTED.unpack(frame.body)
                if ident in rows:
                    rows[ident] = *rows[ident][:3], True
        for frame in later.values():
            if frame.kind == Kind.ENDED:
                rows.pop(wire.ENDED.unpack_from(frame.body)[0], None)
        return list(rows.values())
