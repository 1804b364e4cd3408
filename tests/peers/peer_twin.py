"""The reference model of a router's account of its peers.

It keeps every message that came, and works the answer out from all.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from frames import Message, read

from prefixroute.peers.names import mark_of


class TwinPeers:
    """Messages by peer and sequence; a duplicate changes nothing, and no order is looked at."""

    def __init__(self) -> None:
        self.messages: dict[int, dict[int, Message]] = defaultdict(dict)
        self.floors: Counter[int] = Counter()

    def apply(self, data: bytes) -> None:
        for message in read(data):
            if message.sequence > self.floors[message.peer]:
                self.messages[message.peer][message.sequence] = message

    def expire(self, peer: int) -> None:
        self.floors[peer] = max(self.messages.pop(peer, {0: None}))

    def load(self, names: list[str]) -> dict[str, tuple[int, int, int]]:
        """Return requests in flight, uncached tokens that wait, and tokens decoding, by replica."""
        marks = {mark_of(name): name for name in names}
        load = {name: [0, 0, 0] for name in names}
        for messages in self.messages.values():
            for process, uncached, context, started in self._open(messages):
                row = load[marks[process]]
                row[0] += 1
                row[1] += 0 if started else uncached
                row[2] += context if started else 0
        return {name: tuple(row) for name, row in load.items()}  # type: ignore[misc]

    @staticmethod
    def _open(messages: dict[int, Message]) -> list[tuple[int, int, int, bool]]:
        last = max((number for number, message in messages.items() if message.kind == "beat"), default=0)
        rows: dict[int, tuple[int, int, int, bool]] = {}
        for row in messages[last].fields["rows"] if last else ():
            rows[row["attempt"]] = row["process"], row["uncached"], row["context"], row["started"]
        later = {number: message for number, message in messages.items() if number > last}
        for number, (_, _, kind, fields) in later.items():
            if kind == "booked":
                rows[number] = fields["process"], fields["uncached"], fields["context"], False
        for _, _, kind, fields in later.values():
            if kind == "started" and fields["attempt"] in rows:
                rows[fields["attempt"]] = *rows[fields["attempt"]][:3], True
        for _, _, kind, fields in later.values():
            if kind == "ended":
                rows.pop(fields["attempt"], None)
        return list(rows.values())
