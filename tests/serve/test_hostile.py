"""What engines and clients must not be able to do through the proxy."""

from __future__ import annotations

import json

import pytest
from loopback import Engine, MakeProxy, MakeScripted, chat_body, whole

from prefixroute.serve.reader import LARGE_BYTES

ANSWER = b'{"choices": [{"text": "w"}]}'


def test_an_engine_cannot_name_a_replica_nor_pass_on_what_its_connection_header_names(
    make_scripted: MakeScripted, make_proxy: MakeProxy
) -> None:
    engine = make_scripted([whole(ANSWER, "connection: x-secret", "x-secret: 1", "x-replica: spoof", "x-kept: 2")])
    headers = make_proxy([engine]).chat().headers
    assert headers.get_list("x-replica") == [engine.url]
    assert "x-secret" not in headers
    assert headers["x-kept"] == "2"


@pytest.mark.parametrize(("setting", "told"), [("x-served-by", True), ("", False)])
def test_the_replica_header_is_renamed_or_hidden_and_never_the_engines(
    make_scripted: MakeScripted, make_proxy: MakeProxy, setting: str, told: bool
) -> None:
    engine = make_scripted([whole(ANSWER, "x-served-by: spoof" if told else "x-other: 1", "x-replica: spoof")])
    headers = make_proxy([engine], upstream__replica_header=setting).chat().headers
    assert "x-replica" not in headers
    assert headers.get_list("x-served-by") == ([engine.url] if told else [])


def test_the_path_at_the_engine_does_not_depend_on_the_host_header(
    make_scripted: MakeScripted, make_proxy: MakeProxy
) -> None:
    engine = make_scripted([whole(ANSWER)])
    content = json.dumps(chat_body()).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x/v1/load_lora_adapter?\r\nconnection: close\r\ncontent-length: {len(content)}"
    make_proxy([engine]).said(head.encode() + b"\r\n\r\n" + content)
    assert [head.split(b"\r\n")[0] for head in engine.heads] == [b"POST /v1/chat/completions HTTP/1.1"]


def test_headers_of_the_clients_connection_go_no_further(make_scripted: MakeScripted, make_proxy: MakeProxy) -> None:
    engine = make_scripted([whole(ANSWER)])
    proxy = make_proxy([engine])
    hop = {
        "connection": "x-hop",
        "x-hop": "1",
        "proxy-connection": "keep-alive",
        "te": "trailers",
        "x-kept": "2",
        "x-data-parallel-rank": "3",
    }
    proxy.client.post("/v1/chat/completions", json=chat_body(), headers=hop)
    sent = {line.split(b":")[0].lower() for line in engine.heads[0].split(b"\r\n")[1:]}
    assert b"x-kept" in sent
    assert not sent & {b"x-hop", b"proxy-connection", b"te", b"x-data-parallel-rank"}


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_over_the_limit_is_refused_before_it_is_kept(
    pair: list[Engine], make_proxy: MakeProxy, declared: bool
) -> None:
    proxy = make_proxy(pair[:1], limits__max_body_bytes=1_000)
    length = (
        b"content-length: 200000000\r\n\r\n"
        if declared
        else b"transfer-encoding: chunked\r\n\r\n7d0\r\n" + b" " * 2_000
    )
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: p\r\nconnection: close\r\n"
    assert proxy.said(head + length).startswith(b"HTTP/1.1 413 ")
    assert proxy.router.stats()["counts"] == {}


def test_headers_over_the_limit_are_refused(pair: list[Engine], make_proxy: MakeProxy) -> None:
    proxy = make_proxy(pair[:1], limits__max_header_bytes=2_000)
    response = proxy.client.post("/v1/chat/completions", json=chat_body(), headers={"x-long": "a" * 2_000})
    assert response.status_code == 431


def test_a_body_that_does_not_come_is_given_up(pair: list[Engine], make_proxy: MakeProxy) -> None:
    proxy = make_proxy(pair[:1], limits__body_timeout_s=0.05)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: p\r\nconnection: close\r\ncontent-length: 10\r\n\r\n{"
    assert proxy.said(head).startswith(b"HTTP/1.1 408 ")


def test_a_large_body_is_routed_by_the_same_blocks_as_a_small_one(
    make_scripted: MakeScripted, make_proxy: MakeProxy
) -> None:
    proxy = make_proxy([make_scripted([whole(ANSWER)])])
    content = "word " * (LARGE_BYTES // 4)
    assert proxy.chat(content).is_success
    decision = proxy.decide(content)
    assert decision.hit_tokens > decision.prompt_tokens - 2 * 16
    assert proxy.idle()


CLOSED = b"connection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", 502),
        (b"HTTP/1.1 999 X\r\ncontent-length: 0\r\n" + CLOSED, 502),
        (b"HTTP/1.1 20", 502),
        (b"\x00\xff" * 10_000, 502),
        (b"HTTP/1.1 200 OK\r\nx: a\rset-cookie: b\r\ncontent-length: 2\r\n" + CLOSED + b"{}", 502),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n" + CLOSED + b"{}", 502),
        (b"HTTP/1.1 200 OK\r\n" + b"x-a: b\r\n" * 100_000, 502),
        (b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n" + CLOSED, 302),
        (b"HTTP/1.1 200 OK\r\n" + CLOSED + b'{"choices": [{"message": {"content": [{"text": "a"}, 1]}}]}', 200),
        (b"HTTP/1.1 200 OK\r\n" + CLOSED + b'{"choices": ' + b"[" * 200_000, 200),
        (b"HTTP/1.1 200 OK\r\n" + CLOSED + b'{"choices": [], "usage": {"prompt_tokens": -1}}', 200),
    ],
)
def test_whatever_an_engine_says_is_relayed_or_a_502(
    make_scripted: MakeScripted, make_proxy: MakeProxy, said: bytes, status: int
) -> None:
    proxy = make_proxy([make_scripted([said])], upstream__retries=0)
    response = proxy.chat()
    assert response.status_code == status
    assert status == 200 or len(response.content) < 1_000
    assert proxy.idle()
    assert not proxy.metric("requests_total", path="/v1/chat/completions", status=str(status), outcome="fault")


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"GET /v1/chat/completions HTTP/1.1\r\nupgrade: websocket\r\nconnection: upgrade", 405),
        (b"HEAD /v1/chat/completions HTTP/1.1", 405),
        (b"OPTIONS /v1/chat/completions HTTP/1.1", 405),
        (b"OPTIONS * HTTP/1.1", 404),
        (b"TRACE /v1/chat/completions HTTP/1.1", 405),
        (b"CONNECT engine:8000 HTTP/1.1", 400),
        (b"POST /v1/%2e%2e/v1/chat/completions HTTP/1.1\r\ncontent-length: 0", 404),
        (b"POST /v1/x/../chat/completions HTTP/1.1\r\ncontent-length: 0", 404),
        (b"POST //v1/chat/completions HTTP/1.1\r\ncontent-length: 0", 404),
        (b"POST /v1/chat/completions;x HTTP/1.1\r\ncontent-length: 0", 404),
        (b"POST /v1/chat/completions?" + b"a" * 80_000 + b" HTTP/1.1\r\ncontent-length: 0", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\n" + b"\r\n".join(b"x-%d: 1" % n for n in range(10_000)), 431),
    ],
)
def test_what_is_no_call_of_an_api_reaches_no_engine(
    make_scripted: MakeScripted, make_proxy: MakeProxy, line: bytes, status: int
) -> None:
    engine = make_scripted([whole(ANSWER)])
    said = make_proxy([engine]).said(line + b"\r\nhost: p\r\nconnection: close\r\n\r\n")
    assert int(said.split(b" ", 2)[1]) == status
    assert engine.heads == []


@pytest.mark.parametrize("size", [70_000, 100_000, 150_000, 200_000, 2_000_000])
@pytest.mark.parametrize("one", [True, False])
def test_a_head_of_any_size_beyond_the_bound_is_a_431(
    pair: list[Engine], make_proxy: MakeProxy, size: int, one: bool
) -> None:
    proxy = make_proxy(pair[:1])
    fields = b"x: %s\r\n" % (b"a" * size) if one else b"".join(b"x-%d: a\r\n" % number for number in range(size // 10))
    said = proxy.said(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n" + fields + b"content-length: 0\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 431 ")
    assert b"at most" in said
