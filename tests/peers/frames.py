"""Frames read and sealed by a reference model of the compiled code, written after the table in docs/design/peers.md."""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import Any, NamedTuple

VERSION = 2
HEADER = struct.Struct("<QBIQQ")
KINDS = [
    "booked",
    "started",
    "ended",
    "beat",
    "fleet",
    "cleared",
    "bound",
    "held",
    "missing",
    "chain",
    "hello",
    "welcome",
    "left",
]


class Message(NamedTuple):
    """One message of a frame."""

    peer: int
    sequence: int
    kind: str
    fields: dict[str, Any]


class Reader:
    """Takes one field after the other off some bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def fixed(self, layout: str) -> Any:
        (value,) = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return value

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.fixed("B")
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def raw(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def part(self, flags: int) -> dict[str, Any]:
        known, parent = (self.number(), self.fixed("Q")) if flags & 4 else (0, 0)
        return {"known": known, "parent": parent, "rest": [self.fixed("Q") for _ in range(self.number())]}

    def message(self, sequence: int) -> tuple[str, dict[str, Any]]:
        kind = KINDS[self.fixed("B") - 1]
        fields: dict[str, Any] = getattr(self, f"_{kind}", lambda _: {})(sequence)
        return kind, fields

    def _booked(self, _: int) -> dict[str, Any]:
        flags = self.fixed("B")
        told = {"process": self.fixed("Q"), "session": self.raw(16) if flags & 1 else None}
        return told | {"uncached": self.number(), "context": self.number(), **self.part(flags)}

    def _started(self, sequence: int) -> dict[str, Any]:
        return {"attempt": sequence - self.number()}

    def _ended(self, sequence: int) -> dict[str, Any]:
        flags = self.fixed("B")
        return {"how": flags & 3, "attempt": sequence - self.number(), **self.part(flags)}

    def _beat(self, sequence: int) -> dict[str, Any]:
        def row() -> dict[str, Any]:
            told = {"attempt": sequence - self.number(), "process": self.fixed("Q"), "uncached": self.number()}
            context = self.number()
            return told | {"context": context >> 1, "started": bool(context & 1)}

        return {"rows": [row() for _ in range(self.number())]}

    def _fleet(self, _: int) -> dict[str, Any]:
        told = {"replica": self.fixed("Q"), "version": self.number(), "author": self.fixed("Q")}
        return told | {"state": self.fixed("B"), "left": self.fixed("d"), "incarnation": self.raw(self.number())}

    def _cleared(self, _: int) -> dict[str, Any]:
        return {"replica": self.fixed("Q")}

    def _bound(self, _: int) -> dict[str, Any]:
        return {"rows": [(self.raw(16), self.fixed("Q"), self.fixed("f")) for _ in range(self.number())]}

    def _held(self, _: int) -> dict[str, Any]:
        return {"process": self.fixed("Q"), **self.part(self.fixed("B"))}

    def _missing(self, _: int) -> dict[str, Any]:
        return {"peer": self.fixed("Q"), "known": self.number(), "parent": self.fixed("Q")}

    def _chain(self, _: int) -> dict[str, Any]:
        return self.part(self.fixed("B"))


def read(data: bytes) -> list[Message]:
    """Return the messages of a frame."""
    _, version, _, peer, sequence = HEADER.unpack_from(data)
    assert version == VERSION
    reader, found = Reader(data[HEADER.size :]), list[Message]()
    while reader.at < len(reader.data):
        found.append(Message(peer, sequence, *reader.message(sequence)))
        sequence += 1
    return found


def kinds(data: bytes) -> list[str]:
    """Return what the messages of a frame say."""
    return [message.kind for message in read(data)]


def framed(messages: bytes, *, peer: int, sequence: int, block_size: int, hash_key: int, secret: bytes = b"") -> bytes:
    """Return a frame with these bytes in the place of messages, sealed as it should be."""
    told = b"%d %d %d" % (VERSION, block_size, hash_key)
    mark = int.from_bytes(blake2b(told, digest_size=4, key=secret, person=b"prefixroute peer").digest(), "little")
    key = blake2b(told, digest_size=16, key=secret, person=b"prefixroute tags").digest()
    rest = HEADER.pack(0, VERSION, mark, peer, sequence)[8:] + messages
    return siphash(key, rest).to_bytes(8, "little") + rest


def siphash(key: bytes, data: bytes) -> int:
    """Return SipHash-2-4 (Aumasson, Bernstein 2012)."""
    mask = 2**64 - 1
    k0, k1 = struct.unpack("<QQ", key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def left(value: int, by: int) -> int:
        return (value << by | value >> (64 - by)) & mask

    def mix(rounds: int) -> None:
        for _ in range(rounds):
            for a, b, c, d, e, f in ((0, 1, 2, 3, 13, 16), (2, 1, 0, 3, 17, 21)):
                v[a] = (v[a] + v[b]) & mask
                v[c] = (v[c] + v[d]) & mask
                v[b] = left(v[b], e) ^ v[a]
                v[d] = left(v[d], f) ^ v[c]
                v[a] = left(v[a], 32)

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        mix(2)
        v[0] ^= word
    v[2] ^= 0xFF
    mix(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]
