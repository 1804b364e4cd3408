"""What vLLM's own publisher sent over ZeroMQ, read here; and our publisher, which must answer as it did."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from prefixroute import PrefixIndex
from prefixroute.live import KvFeed, Sequence
from prefixroute.live.frames import END, read_live, read_replay, replay_request, sent_at
from prefixroute.live.sequence import Action, Apply, Ask, Clear
from prefixroute.testing import EventPublisher

TRANSCRIPTS = json.loads((Path(__file__).parent / "golden" / "zmq_transcripts.json").read_text())
ENGINE, MANAGER = TRANSCRIPTS["engines"], TRANSCRIPTS["managers"]
TOPIC = b"kv@pod-1@m"
SENT = [bytes([number]) * 124 for number in range(8)]
"""Payloads of our publisher, as long as the engine's."""


@pytest.fixture
def publisher() -> Iterator[EventPublisher]:
    """The publisher of the transcripts: eight batches, the last five kept."""
    with EventPublisher(topic=TOPIC.decode(), buffer_steps=5) as one:
        for payload in SENT:
            one.publish(payload)
        yield one


def ask(
    publisher: EventPublisher, request: list[bytes], kind: int = zmq.DEALER, wait_ms: int = 200
) -> list[list[bytes]]:
    """Answers until the end marker, or until nothing comes."""
    answers: list[list[bytes]] = []
    with zmq.Context() as context, context.socket(kind) as socket:
        socket.linger = 0
        socket.connect(publisher.replay)
        socket.send_multipart(request)
        while socket.poll(wait_ms if len(request) != 2 else 10_000):
            answers.append(socket.recv_multipart())
            if kind == zmq.REQ or answers[-1][2] == struct.pack(">q", END):
                break
    return answers


def numbers(answers: list[list[bytes]]) -> list[int]:
    batches = [read_replay(answer) for answer in answers]
    return [batch.number for batch in batches if batch is not None]


def test_the_engine_s_first_batch_is_read() -> None:
    frames = [bytes.fromhex(frame) for frame in MANAGER["live: frames of the first batch (hex)"]]
    batch = read_live(frames)
    assert batch is not None
    assert (batch.topic, batch.number, len(batch.payload)) == (TOPIC, 0, 124)
    assert sent_at(batch.payload) == 0.0
    index = PrefixIndex(block_size=4)
    index.add_replica("a")
    assert index.apply("a", batch.payload).stored == 1
    live = [frames[:2] for frames in ENGINE["live_frames"]]
    assert live == [[TOPIC.decode(), number] for number in MANAGER["live: sequence numbers"]]


@pytest.mark.parametrize(
    ("transcript", "name"),
    [
        (MANAGER, 'DEALER ["", 1]: answers [frames in hex, long ones as lengths]'),
        (ENGINE, 'DEALER sends [b"", start u64 BE] and asks from 1 (5 kept)'),
    ],
)
def test_the_engine_s_answers_are_read_and_ours_are_the_same(
    publisher: EventPublisher, transcript: dict[str, Any], name: str
) -> None:
    answers = [frames_of(row) for row in transcript[name]]
    assert numbers(answers) == [3, 4, 5, 6, 7, END]
    assert [read_replay(answer).topic for answer in answers] == [TOPIC] * 5 + [b""]  # type: ignore[union-attr]
    ours = ask(publisher, replay_request(1))
    assert [frames[:3] for frames in ours] == [frames[:3] for frames in answers]
    assert [len(frames[3]) for frames in ours] == [len(frames[3]) for frames in answers]


def frames_of(row: list[Any]) -> list[bytes]:
    """The frames of one answer, whose payload was recorded by its length alone."""
    if isinstance(row[0], int):  # number of frames, the first as text, topic, number, bytes of the payload
        _, empty, topic, number, length = row
        return [empty.encode(), topic.encode(), struct.pack(">q", number), bytes(length)]
    return [*(bytes.fromhex(frame) for frame in row[:3]), bytes(int((row[3] or "0").split()[0]))]


@pytest.mark.parametrize(
    ("name", "request_frames"),
    [
        ('DEALER ["", 6]: sequences', replay_request(6)),
        ('DEALER ["", 100] (beyond the last): sequences', replay_request(100)),
        ('DEALER ["", ""] (empty start = 0): sequences', [b"", b""]),
        ('DEALER ["", 06] (1 byte): sequences', [b"", b"\x06"]),
        ('DEALER ["", ffffffffffffffff]: sequences', [b"", b"\xff" * 8]),
    ],
)
def test_our_publisher_answers_what_the_engine_answered(
    publisher: EventPublisher, name: str, request_frames: list[bytes]
) -> None:
    assert numbers(ask(publisher, request_frames)) == MANAGER[name]


def test_a_request_without_its_empty_frame_is_never_answered(publisher: EventPublisher) -> None:
    recorded = MANAGER["DEALER [1] (no empty frame): answers"]
    assert len(ask(publisher, [struct.pack(">Q", 1)])) == recorded


def test_a_req_socket_reads_the_first_answer_alone(publisher: EventPublisher) -> None:
    first = ask(publisher, [struct.pack(">Q", 6)], zmq.REQ)
    recorded = MANAGER["REQ [6]: first answer"][0]
    assert [[frame.hex() for frame in first[0][:2]], f"{len(first[0][2])} bytes"] == [recorded[:2], recorded[2]]
    other = ENGINE["REQ asks from 4, first reply frames"]
    first = ask(publisher, [struct.pack(">Q", 4)], zmq.REQ)
    assert [*(frame.hex() for frame in first[0][:2]), len(first[0][2])] == other


def test_numbers_burn_and_begin_anew_as_the_engine_s() -> None:
    burnt = MANAGER["after a batch that cannot be encoded (int over 64 bits): next sequence"]
    restarted = MANAGER["restart on the same port: first sequence"]
    with EventPublisher() as publisher:
        for fault in (None, None, "burn", None):
            last = publisher.publish(b"x", fault)
        assert last == burnt
        assert numbers(ask(publisher, replay_request(0))) == MANAGER["  and its replay"]
    with EventPublisher() as again:
        assert again.publish(b"x") == restarted


def test_ports_of_ranks_are_those_of_the_engine() -> None:
    shifts = MANAGER["port shift, rank 3"]
    for address in ("tcp://*:5557", "inproc://cache"):
        assert KvFeed(address, rank=3).addresses[0] == shifts[address]


def test_the_engine_s_replay_of_a_short_buffer_rebuilds_the_replica() -> None:
    """Batch 0 was applied and 7 arrives: the engine answers with 3 to 7, and what it lost cannot be had."""
    sequence = Sequence()
    applied: list[int] = []

    def take(actions: list[Action]) -> bool:
        for action in actions:
            if isinstance(action, Apply):
                applied.append(action.number)
            elif isinstance(action, Clear):
                applied.clear()
        return any(isinstance(action, Ask) for action in actions)

    take(sequence.live(0, SENT[0]))
    take(sequence.connected())
    take(sequence.live(7, SENT[7]))
    answers = [row[3] for row in ENGINE['DEALER sends [b"", start u64 BE] and asks from 1 (5 kept)']]
    while sequence.asking:
        for number in answers:
            if take(sequence.replay_ended() if number == END else sequence.replayed(number, SENT[number])):
                break  # a newer request ends this one
    assert applied == [3, 4, 5, 6, 7]
    assert sequence.partial
    assert sequence.stats.rebuilds == 1
