"""The layout of frames.

Pinned by a file for each version, and read by a twin that was written after its description.
"""

from __future__ import annotations

from pathlib import Path

from frames import HEADER, KINDS, VERSION, framed, read

from prefixroute.peers.seal import seal_of
from prefixroute.peers.wire import PEER_VERSION

SECRET = b"0" * 16
FILE = Path(__file__).parent.parent / "golden" / f"peer_frames_v{PEER_VERSION}.txt"


def test_the_twin_reads_and_seals_as_the_compiled_code_does() -> None:
    seal, *lines = FILE.read_text().splitlines()
    assert PEER_VERSION == VERSION
    assert f"{seal_of(16, 7, SECRET).fingerprint:08x}" == seal.split()[0]
    told = list[str]()
    for line in lines:
        data = bytes.fromhex(line)
        messages = read(data)
        peer, sequence = messages[0][:2]
        assert data == framed(
            data[HEADER.size :], peer=peer, sequence=sequence, block_size=16, hash_key=7, secret=SECRET
        )
        told += [message.kind for message in messages]
        assert [message.sequence for message in messages] == list(range(sequence, sequence + len(messages)))
    assert set(told) == set(KINDS)


def test_the_twin_reads_what_was_said() -> None:
    _, *lines = FILE.read_text().splitlines()
    booked, bare, started, ended, retracted, beat, fleet, cleared, bound, held, missing, chain, *_ = (
        message.fields for message in read(bytes.fromhex(lines[-1]))
    )
    first, rest, parent = 1_000_015, [0x1111222233334444, 0x5555666677778888], 0x0123456789ABCDEF
    at = {"process": 0xA0A1, "uncached": 300, "context": 70_000}
    assert booked == {**at, "session": (0xB0B1).to_bytes(16, "little"), "known": 200, "parent": parent, "rest": rest}
    assert bare == {
        "process": 0xA0A1, "session": None, "uncached": 0, "context": 2**32 - 1, "known": 0, "parent": 0, "rest": [],
    }  # fmt: skip
    assert started == {"attempt": first - 15}
    assert ended == {"how": 0, "attempt": first - 15, "known": 202, "parent": parent, "rest": rest}
    assert retracted == {"how": 2, "attempt": first - 14, "known": 0, "parent": 0, "rest": []}
    assert beat == {"rows": [{"attempt": 3, **at, "started": True}, {"attempt": first - 14, **at, "started": False}]}
    assert fleet == {
        "replica": 0xC0C1, "version": 300, "author": 0xD0D1, "state": 2, "left": 2.5, "incarnation": b"pod-7",
    }  # fmt: skip
    assert cleared == {"replica": 0xC0C1}
    assert bound == {"rows": [((0xB0B1).to_bytes(16, "little"), 0xA0A1, 1.5)]}
    assert held == {"process": 0xA0A1, "known": 202, "parent": parent, "rest": rest}
    assert missing == {"peer": 0xE0E1, "known": 202, "parent": rest[-1]}
    assert chain == {"known": 0, "parent": 0, "rest": rest}
