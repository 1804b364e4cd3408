"""What comes in at a client's connection before there is a request: slow, large, twisted or old."""

from __future__ import annotations

import json
import random

import pytest
from loopback import Engine, MakeProxy, MakeScripted, Proxy, chat_body, whole

from prefixroute.serve.protocol import MAX_AHEAD
from waiting import until

CONTENT = json.dumps(chat_body(max_tokens=3)).encode()
STREAMED = json.dumps(chat_body(max_tokens=3, stream=True)).encode()
PATH = b"/v1/chat/completions"


def request(content: bytes = CONTENT, *lines: bytes, version: bytes = b"1.1", method: bytes = b"POST") -> bytes:
    head = [method + b" " + PATH + b" HTTP/" + version, b"host: p", b"connection: close", *lines]
    if not any(b"length" in line or b"transfer" in line for line in lines):
        head.append(b"content-length: %d" % len(content))
    return b"\r\n".join([*head, b"", content])


@pytest.fixture
def proxy(pair: list[Engine], make_proxy: MakeProxy) -> Proxy:
    return make_proxy(pair[:1], limits__header_timeout_s=0.2, limits__max_header_bytes=2_000, limits__keep_alive_s=0.2)


@pytest.mark.parametrize(
    "begun", [b"", b"POST", b"POST / HTTP/1.1\r\nhost: p\r\n", b"\r\n", b"GET / HTTP/1.1\r\nx-a: "]
)
def test_a_head_that_does_not_come_is_given_up(proxy: Proxy, begun: bytes) -> None:
    answer = proxy.said(begun)
    assert answer.startswith(b"HTTP/1.1 408 ") if begun else answer == b""


KEPT = request().replace(b"connection: close\r\n", b"")
TOO_LARGE = request(json.dumps(chat_body("w " * 99_000)).encode()).replace(b"connection: close\r\n", b"")


@pytest.mark.parametrize(
    ("pieces", "answers"),
    [
        ([3 * KEPT + request()], 4),
        ([KEPT, KEPT, KEPT, request()], 4),
        ([20 * KEPT], 1 + MAX_AHEAD),
        ([KEPT + TOO_LARGE + KEPT], 1),
        ([KEPT, KEPT, TOO_LARGE, KEPT], 2),
        ([KEPT[:-9], KEPT[-9:] + KEPT[:50], KEPT[50:] + request()], 3),
    ],
)
def test_some_requests_may_be_ahead_of_their_answers(
    pair: list[Engine], proxy: Proxy, pieces: list[bytes], answers: int
) -> None:
    pair[0].control(decode_s=0.05)
    answer = proxy.said(*pieces)
    assert answer.count(b"HTTP/1.1 200 ") == answer.count(b"HTTP/1.1 ") == answers
    assert proxy.idle()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("ahead", [b"", KEPT, 20 * KEPT, TOO_LARGE], ids=["none", "one", "many", "large"])
def test_a_client_that_sends_ahead_and_leaves_is_noticed(
    pair: list[Engine], proxy: Proxy, stream: bool, ahead: bytes
) -> None:
    pair[0].control(decode_s=1)
    content = json.dumps(chat_body(max_tokens=10_000, stream=stream)).encode()
    with proxy.connected() as connection:
        connection.sendall(request(content).replace(b"connection: close\r\n", b"") + ahead)
        until(lambda: proxy.load() == {pair[0].url: 1})
    until(proxy.idle)
    until(lambda: pair[0].stats()["running"] == 0)


def test_a_byte_now_and_then_keeps_no_connection(proxy: Proxy) -> None:
    with proxy.connected() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\n")
        connection.settimeout(0.02)
        received = b""
        for _ in range(1_000):
            try:
                connection.sendall(b"x")
                if data := connection.recv(65_536):
                    received += data
                else:
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        assert received.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("name", [b"x-long: ", b"", b"x" * 3_000])
def test_a_head_without_an_end_is_cut_off(proxy: Proxy, name: bytes) -> None:
    begun = b"POST / HTTP/1.1\r\n" + name if name else b"POST /"
    assert proxy.said(begun, b"a" * 3_000).startswith(b"HTTP/1.1 431 ")


def test_many_headers_are_too_large_too(proxy: Proxy) -> None:
    assert proxy.said(request(CONTENT, *[b"x-%d: 1" % number for number in range(500)])).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize(
    "lines",
    [
        (b"content-length: 5", b"content-length: 6"),
        (b"content-length: +5",),
        (b"content-length: 5, 5",),
        (b"content-length: -1",),
        (b"content-length: 0x10",),
        (b"content-length: 5", b"transfer-encoding: chunked"),
        (b"transfer-encoding: chunked", b"content-length: 5"),
        (b"transfer-encoding: gzip, x",),
        (b"content-length: 5", b"x-a b: 1"),
        (b"content-length: 5", b"no colon"),
    ],
)
def test_a_request_that_can_be_read_in_two_ways_is_a_400(
    pair: list[Engine], proxy: Proxy, lines: tuple[bytes, ...]
) -> None:
    before = pair[0].stats()["requests"]
    answer = proxy.said(request(CONTENT, *lines))
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 408 "))
    assert pair[0].stats()["requests"] == before
    assert proxy.idle()


@pytest.mark.parametrize(
    "data",
    [b"\x16\x03\x01\x02\x00\x01\x00", b"\x00" * 50, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"],
)
def test_what_is_no_http_is_a_400(proxy: Proxy, data: bytes) -> None:
    assert proxy.said(data).startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 404 "))


@pytest.mark.parametrize("content", [CONTENT, STREAMED])
def test_a_client_of_http_1_0_gets_a_length_and_no_chunks(proxy: Proxy, content: bytes) -> None:
    head, body = proxy.said(request(content, version=b"1.0")).split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"transfer-encoding" not in head.lower()
    assert b"content-length: %d" % len(body) in head
    assert body.endswith(b"data: [DONE]\n\n" if content is STREAMED else b"}")
    assert proxy.idle()


def test_a_broken_stream_to_a_client_of_http_1_0_is_a_502(make_scripted: MakeScripted, make_proxy: MakeProxy) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 100\r\nconnection: close\r\n\r\n"
    proxy = make_proxy([make_scripted([head, b"data: {}\n\n"])])
    assert proxy.said(request(STREAMED, version=b"1.0")).startswith(b"HTTP/1.1 502 ")
    assert proxy.idle()


def test_pieces_of_any_size_are_one_request(proxy: Proxy) -> None:
    whole = request(CONTENT)
    answer = proxy.said(*(whole[at : at + 7] for at in range(0, len(whole), 7)))
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_two_requests_in_a_row_on_one_connection_are_answered_in_their_order(proxy: Proxy) -> None:
    first = request(CONTENT).replace(b"connection: close\r\n", b"")
    answer = proxy.said(first + request(STREAMED))
    assert answer.count(b"HTTP/1.1 200 ") == 2
    assert answer.index(b"application/json") < answer.index(b"text/event-stream")
    assert proxy.idle()


def test_an_expectation_is_met(proxy: Proxy) -> None:
    whole = request(CONTENT, b"expect: 100-continue")
    head, body = whole[: -len(CONTENT)], CONTENT
    with proxy.connected() as connection:
        connection.sendall(head)
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")


def test_after_a_refused_body_the_connection_is_closed(pair: list[Engine], make_proxy: MakeProxy) -> None:
    proxy = make_proxy(pair[:1], limits__max_body_bytes=100)
    head = b"POST " + PATH + b" HTTP/1.1\r\nhost: p\r\ncontent-length: 100000\r\n\r\n"
    answer = proxy.said(head, b" " * 1_000)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer
    until(proxy.idle)


def test_an_idle_connection_is_closed(proxy: Proxy) -> None:
    with proxy.connected() as connection:
        connection.sendall(request(CONTENT).replace(b"connection: close\r\n", b""))
        assert connection.makefile("rb").read().startswith(b"HTTP/1.1 200 ")


def test_three_hundred_twisted_requests_are_no_fault_of_the_server(
    make_scripted: MakeScripted, make_proxy: MakeProxy
) -> None:
    proxy = make_proxy(
        [make_scripted([whole(b"{}")])],
        limits__header_timeout_s=0.05,
        limits__body_timeout_s=0.05,
        limits__keep_alive_s=0.05,
    )
    rng = random.Random(5)  # noqa: S311  # a scenario, not a secret
    statuses: set[bytes] = set()
    for _ in range(300):
        data = bytearray(request(rng.choice([CONTENT, STREAMED]), b"x-a: b").replace(PATH, PATH + b"?a=1&b=%20"))
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(data))
            match rng.randrange(3):
                case 0:
                    data[at] = rng.randrange(256)
                case 1:
                    del data[at : at + rng.randrange(1, 20)]
                case _:
                    data[at:at] = rng.randbytes(rng.randrange(1, 8))
        answer = proxy.said(bytes(data))
        statuses.add(answer[9:12])
    assert b"200" in statuses
    assert statuses <= {b"", b"200", b"400", b"404", b"405", b"408", b"413", b"431"}
    until(proxy.idle)
