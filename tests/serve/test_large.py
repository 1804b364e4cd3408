"""Large bodies and answers: what they must not do to others, to memory, and to the accounts."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import httpx
import pytest
from loopback import Engine, MakeProxy, MakeScripted, Proxy, chat_body, whole

from prefixroute.bodies import MAX_READ_BYTES
from prefixroute.errors import ConfigError
from prefixroute.serve import Service, Settings
from prefixroute.serve.reader import LARGE_BYTES
from waiting import until

LARGE = "word " * (LARGE_BYTES // 4)
ANSWER = b'{"choices": [{"text": "w"}]}'
HEAD = b"HTTP/1.1 200 OK\r\nconnection: close\r\n"


@contextmanager
def stopped(proxy: Proxy) -> Iterator[int]:
    """Stop the process that reads large bodies."""
    pid = proxy.service.reader.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield pid
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def test_other_requests_go_on_while_a_large_body_is_read(pair: list[Engine], make_proxy: MakeProxy) -> None:
    proxy = make_proxy(pair)
    assert proxy.chat(LARGE).is_success
    with ThreadPoolExecutor(2) as pool:
        with stopped(proxy):
            large = [pool.submit(proxy.chat, LARGE) for _ in range(2)]
            until(lambda: proxy.metric("open_requests") == 2)
            assert all(proxy.chat(f"{number}").is_success for number in range(20))
            assert not any(one.done() for one in large)
        assert [one.result().status_code for one in large] == [200, 200]
    assert proxy.idle()


def test_a_reader_that_dies_costs_one_request(pair: list[Engine], make_proxy: MakeProxy) -> None:
    proxy = make_proxy(pair[:1])
    assert proxy.chat(LARGE).is_success
    with ThreadPoolExecutor(1) as pool, stopped(proxy) as pid:
        large = pool.submit(proxy.chat, LARGE)
        until(lambda: proxy.metric("open_requests") == 1)
        os.kill(pid, signal.SIGKILL)
        assert large.result().status_code == 500
        assert proxy.chat(LARGE).is_success
        new = proxy.service.reader.pid
        assert new is not None
        assert new != pid
        os.kill(new, signal.SIGTERM)  # a group of processes is told, and drains
        assert proxy.chat(LARGE).is_success


@pytest.mark.parametrize(
    "body",
    [
        b"[" * LARGE_BYTES + b"]",
        b'{"a": ' * LARGE_BYTES,
        b"{" + b" " * LARGE_BYTES,
        b'{"messages": "' + b"\xff" * LARGE_BYTES,
    ],
)
def test_a_large_body_that_is_no_request_is_a_400(pair: list[Engine], make_proxy: MakeProxy, body: bytes) -> None:
    proxy = make_proxy(pair[:1])
    assert proxy.client.post("/v1/chat/completions", content=body).status_code == 400
    assert proxy.idle()


def test_a_large_stream_is_asked_for_its_usage(make_scripted: MakeScripted, make_proxy: MakeProxy) -> None:
    engine = make_scripted([whole(ANSWER)])
    proxy = make_proxy([engine])
    for options in ({}, {"stream_options": {"include_usage": False, "other": 1}}):
        proxy.chat(LARGE, stream=True, **options)
    assert [json.loads(body)["stream_options"] for body in engine.bodies] == [
        {"include_usage": True},
        {"include_usage": True, "other": 1},
    ]


def test_what_pickle_cannot_carry_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="pickle"):
        Service(Settings.of({"discovery.replicas": ["http://127.0.0.1:9"]}), tokenizer=lambda text: [len(text)])


def test_bodies_have_room_together(pair: list[Engine], make_proxy: MakeProxy) -> None:
    proxy = make_proxy(pair[:1], limits__max_held_bytes=1_000)
    content = json.dumps(chat_body("word " * 150)).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: p\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(
        content
    )
    with proxy.connected() as slow:
        slow.sendall(head + content[:-1])
        until(lambda: proxy.chat("word " * 150).status_code == 429)
        assert proxy.chat("short").is_success
        slow.sendall(content[-1:])
        assert slow.makefile("rb").read().startswith(b"HTTP/1.1 200 ")
    assert proxy.chat("word " * 150).is_success


@pytest.mark.parametrize("framing", ["length", "chunks", "close"])
def test_a_large_answer_passes_unread(make_scripted: MakeScripted, make_proxy: MakeProxy, framing: str) -> None:
    answer = b'{"choices": [], "usage": {}, "rest": "' + b"x" * (3 * MAX_READ_BYTES) + b'"}'
    pieces = {
        "length": [HEAD + b"content-length: %d\r\n\r\n" % len(answer), answer],
        "chunks": [HEAD + b"transfer-encoding: chunked\r\n\r\n%x\r\n" % len(answer), answer, b"\r\n0\r\n\r\n"],
        "close": [HEAD + b"\r\n", answer],
    }
    proxy = make_proxy([make_scripted(pieces[framing])])
    assert proxy.chat().content == answer
    assert proxy.idle()


def test_an_answer_shorter_than_its_length_is_an_error(make_scripted: MakeScripted, make_proxy: MakeProxy) -> None:
    short, long = (HEAD + b"content-length: %d\r\n\r\n" % length for length in (len(ANSWER) + 1, 10**9))
    proxy = make_proxy([make_scripted([short, ANSWER])], upstream__retries=0)
    assert proxy.chat().status_code == 502
    proxy = make_proxy([make_scripted([long, b"x" * 2 * MAX_READ_BYTES])], upstream__retries=0)
    with pytest.raises(httpx.RemoteProtocolError):
        proxy.chat()
    until(proxy.idle)


def test_an_event_without_an_end_passes_and_is_not_kept(make_scripted: MakeScripted, make_proxy: MakeProxy) -> None:
    stream = b"data: " + b"x" * (5 * MAX_READ_BYTES)
    proxy = make_proxy([make_scripted([HEAD + b"content-type: text/event-stream\r\n\r\n", stream])])
    assert proxy.chat(stream=True).content == stream
    assert proxy.idle()
