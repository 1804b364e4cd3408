"""What passes through the proxy, and what it learns from it."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from loopback import HEALTHY, Engine, MakeProxy, MakeScripted, chat_body, events, whole

from prefixroute.router import Ticket
from waiting import until

USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":7}}}\r\n\r\n'
STREAM = (
    b": warming up\n\n"
    + 'event: message\r\ndata: {"choices":[{"index":0,"delta":{"content":"h\u00e9 \U0001f600"}}],"usage":null}\r\n\r\n'.encode()
    + b'data: not json\n\ndata: {"choices":[{"index":0,"delta":{"content":" there"}}]}\n\n'
    + USAGE
    + b"data: [DONE]\n\n: no blank line at the end"
)


def http(body: bytes, kind: str) -> bytes:
    return whole(body, f"content-type: {kind}")


def pieces(message: bytes, size: int) -> list[bytes]:
    return [message[start : start + size] for start in range(0, len(message), size)]


@pytest.fixture
def finished(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return what tickets were finished with."""
    calls: list[dict[str, Any]] = []
    finish = Ticket.finish

    def spy(ticket: Ticket, **report: Any) -> None:
        calls.append(report)
        finish(ticket, **report)

    monkeypatch.setattr(Ticket, "finish", spy)
    return calls


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("asked", [True, False])
def test_a_stream_passes_byte_for_byte(
    make_scripted: MakeScripted, make_proxy: MakeProxy, finished: list[dict[str, Any]], size: int, asked: bool
) -> None:
    engine = make_scripted(pieces(http(STREAM, "text/event-stream"), size))
    proxy = make_proxy([engine])
    fields = {"stream_options": {"include_usage": True}} if asked else {}
    response = proxy.chat(stream=True, seed=7, **fields)
    assert response.headers["content-type"] == "text/event-stream"
    assert response.content == (STREAM if asked else STREAM.replace(USAGE, b""))
    assert finished == [{"output": "h\u00e9 \U0001f600 there", "usage": json.loads(USAGE[5:])["usage"]}]
    assert json.loads(engine.bodies[0]) == chat_body(stream=True, seed=7, stream_options={"include_usage": True})
    assert proxy.idle()


def test_other_stream_options_stay(make_scripted: MakeScripted, make_proxy: MakeProxy) -> None:
    engine = make_scripted([http(b"data: [DONE]\n\n", "text/event-stream")])
    make_proxy([engine]).chat(stream=True, stream_options={"continuous_usage_stats": True})
    options = {"continuous_usage_stats": True, "include_usage": True}
    assert json.loads(engine.bodies[0])["stream_options"] == options


def test_without_streaming_both_bodies_pass_untouched(
    make_scripted: MakeScripted, make_proxy: MakeProxy, finished: list[dict[str, Any]]
) -> None:
    answer = b'{ "choices": [{"index": 0, "text": " w0"}], "usage": {"prompt_tokens": 1},  "more": 1.0 }'
    engine = make_scripted(pieces(http(answer, "application/json"), 20))
    question = b'{ "prompt": "hello",   "temperature": 0.10 }'
    headers = {"authorization": "Bearer key", "accept-encoding": "gzip", "x-name": "caf\u00e9".encode()}
    response = make_proxy([engine]).client.post("/v1/completions", content=question, headers=headers)
    assert response.content == answer
    assert engine.bodies == [question]
    head = engine.heads[0].lower()
    assert b"authorization: bearer key\r\n" in head
    assert b"x-name: caf\xc3\xa9" in head
    assert b"accept-encoding: identity" in head
    assert b"gzip" not in head
    # Not reported is not zero.
    assert finished == [{"output": None, "usage": {"prompt_tokens": 1}}]


@pytest.mark.parametrize("count", [b"-1", b"1.5", b'"7"', b"true", b"NaN", b"[]", b"1e400"])
def test_a_usage_that_is_no_count_is_relayed_and_not_learned_from(
    make_scripted: MakeScripted, make_proxy: MakeProxy, count: bytes
) -> None:
    details = b'"prompt_tokens_details": {"cached_tokens": %b}' % count
    answer = b'{"choices": [{"text": "w"}], "usage": {"prompt_tokens": %b, %b}}' % (count, details)
    engine = make_scripted([http(answer, "application/json")])
    proxy = make_proxy([engine])
    assert proxy.client.post("/v1/completions", content=b'{"prompt": "hello"}').content == answer
    stats = proxy.router.stats()
    assert (stats["reported_requests"], stats["reported_hit_tokens"]) == (0, None)
    assert proxy.idle()


def test_tool_calls_and_several_choices_are_relayed_and_not_taken_for_the_next_prompt(
    make_scripted: MakeScripted, make_proxy: MakeProxy, finished: list[dict[str, Any]]
) -> None:
    for said in (
        [{"index": 0, "message": {"tool_calls": [{"id": "call-1"}]}}],
        [{"index": 0, "text": "a"}, {"index": 1, "text": "b"}],
    ):
        answer = json.dumps({"choices": said}).encode()
        engine = make_scripted([http(answer, "application/json")])
        assert make_proxy([engine]).chat().content == answer
    assert [report["output"] for report in finished] == [None, None]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("stream", [True, False])
def test_the_proxy_says_what_the_engine_says(
    pair: list[Engine], make_proxy: MakeProxy, path: str, stream: bool
) -> None:
    body = {**chat_body(path), "prompt": path, "stream": stream, "max_tokens": 5}
    direct = pair[0].client.post(path, json=body)
    relayed = make_proxy(pair[:1]).client.post(path, json=body)
    assert relayed.headers["x-replica"] == pair[0].url

    def said(response: httpx.Response) -> list[Any]:
        bodies = events(response.content) if stream else [response.json()]
        return [{name: value for name, value in body.items() if name not in {"id", "usage"}} for body in bodies]

    assert said(relayed) == said(direct)
    assert len(said(relayed)) == (6 if stream else 1)


def test_a_conversation_stays_where_its_prefix_is_and_its_answers_count(
    pair: list[Engine], make_proxy: MakeProxy, finished: list[dict[str, Any]]
) -> None:
    proxy = make_proxy(pair, routing__policy="cache-aware")
    messages = [{"role": "system", "content": "You are the one of this test. " * 300}]
    replicas, cached = set(), []
    for turn in range(4):
        messages.append({"role": "user", "content": f"Question {turn}"})
        response = proxy.client.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 400})
        replicas.add(response.headers["x-replica"])
        messages.append(response.json()["choices"][0]["message"])
        cached.append(response.json()["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert len(replicas) == 1
    assert [report["usage"]["prompt_tokens_details"]["cached_tokens"] for report in finished] == cached
    assert cached[0] == 0
    # An answer of 400 words is about 500 tokens: were answers not indexed, hits would stay 500 a turn behind.
    decision = proxy.router.choose(messages)
    assert decision.hit_tokens > decision.prompt_tokens - 2 * 16
    assert cached[3] > cached[2] + 400 > cached[1] + 800


def test_a_session_stays_by_its_header(pair: list[Engine], make_proxy: MakeProxy) -> None:
    proxy = make_proxy(pair, routing__policy="session")
    seen: dict[str, set[str]] = {}
    for turn in range(3):
        for session in map(str, range(12)):
            body = chat_body(f"unrelated {turn} {session}", max_tokens=1)
            response = proxy.client.post("/v1/chat/completions", json=body, headers={"x-session-id": session})
            seen.setdefault(session, set()).add(response.headers["x-replica"])
    assert all(len(replicas) == 1 for replicas in seen.values())
    assert len(set.union(*seen.values())) == 2


def test_two_hundred_at_once_are_spread(pair: list[Engine], make_proxy: MakeProxy) -> None:
    before = [engine.stats()["requests"] for engine in pair]
    for engine in pair:
        engine.control(decode_s=0.1)
    proxy = make_proxy(pair)
    with ExitStack() as stack:
        bodies = [chat_body(f"{number} " * 50, max_tokens=4, stream=number % 2 == 0) for number in range(200)]
        connections = [stack.enter_context(proxy.opened(body)) for body in bodies]
        answers = [connection.makefile("rb").read() for connection in connections]
    assert all(answer.startswith(b"HTTP/1.1 200 ") for answer in answers)
    assert all(answer.endswith(b"\r\n0\r\n\r\n") for answer in answers[::2])
    assert all(json.loads(answer.split(b"\r\n\r\n", 1)[1])["choices"] for answer in answers[1::2])
    served = [engine.stats()["requests"] - count for engine, count in zip(pair, before, strict=True)]
    assert sum(served) == 200
    assert min(served) >= 70
    assert proxy.router.stats()["counts"]["finished"] == 200
    assert proxy.idle()


@pytest.mark.parametrize(
    ("path", "content", "named"),
    [
        ("/v1/chat/completions", b'{"messages": [', "Expecting value"),
        ("/v1/chat/completions", b"\xff", "utf-8"),
        ("/v1/chat/completions", '{"messages": [], "stream": true}'.encode("utf-16"), "utf-8"),
        ("/v1/chat/completions", b"[1]", "list"),
        ("/v1/chat/completions", b"[" * 200_000, "recursion"),
        ("/v1/chat/completions", b'{"model": "m"}', "messages"),
        ("/v1/chat/completions", b'{"messages": ["hello"]}', "message 0"),
        ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": "half a pair \\ud83d"}]}', "Unicode"),
        ("/v1/chat/completions", b'{"messages": [], "stream": true, "stream_options": "all"}', "stream_options"),
        ("/v1/completions", b'{"prompt": 7}', "got 7"),
    ],
)
def test_what_is_no_request_is_a_400(
    pair: list[Engine], make_proxy: MakeProxy, path: str, content: bytes, named: str
) -> None:
    proxy = make_proxy(pair[:1])
    response = proxy.client.post(path, content=content)
    assert response.status_code == 400
    assert named in response.json()["error"]["message"]
    assert proxy.router.stats()["counts"] == {}


def test_nesting_at_the_limit_of_the_interpreter_is_a_400_or_served(
    make_scripted: MakeScripted, make_proxy: MakeProxy
) -> None:
    proxy = make_proxy([make_scripted([http(b"{}", "application/json")])])
    statuses = []
    for depth in range(860, 1_000, 5):
        content = "[" * depth + "]" * depth
        body = f'{{"stream": true, "messages": [{{"role": "user", "content": {content}}}]}}'
        statuses.append(proxy.client.post("/v1/chat/completions", content=body).status_code)
    assert set(statuses) <= {200, 400}  # where the limit lies depends on the interpreter
    assert statuses == sorted(statuses)
    assert proxy.idle()


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}, "text", 7]}]},
        {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "call-1"}]}]},
        {"messages": [{"role": "user", "content": 7}, {"role": "user", "content": {"k": 1}}]},
        {
            "messages": [{"role": "user", "content": [{"type": ["odd"]}]}],
            "tools": {"odd": True},
            "model": 7,
            "cache_salt": ["odd"],
            "prompt_cache_key": {"k": 1},
        },
    ],
)
def test_odd_requests_are_routed_and_left_to_the_engine(
    make_scripted: MakeScripted, make_proxy: MakeProxy, body: dict[str, Any]
) -> None:
    engine = make_scripted([http(b'{"choices": [{"text": "\\ud83d"}]}', "application/json")])
    response = make_proxy([engine]).client.post("/v1/chat/completions", content=json.dumps(body).encode())
    assert response.status_code == 200
    assert json.loads(engine.bodies[0]) == body


def test_a_health_check_that_cannot_be_read_is_a_failure(make_scripted: MakeScripted, make_proxy: MakeProxy) -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    engine = make_scripted([], health=head + b"nope\r\n")
    proxy = make_proxy([engine])
    until(lambda: proxy.state(engine.url) == "suspended")
    engine.health = HEALTHY
    until(lambda: proxy.state(engine.url) == "active")


def test_health_and_metrics(pair: list[Engine], make_proxy: MakeProxy) -> None:
    proxy = make_proxy(pair)
    assert proxy.chat(max_tokens=1).is_success
    health = proxy.client.get("/healthz")
    assert health.status_code == 200
    assert health.json() == {"status": "ok", "replicas": {engine.url: "active" for engine in pair}}
    metrics = proxy.client.get("/metrics").text
    assert all(f'prefixroute_inflight{{replica="{engine.url}"}} 0\n' in metrics for engine in pair)
    assert proxy.client.get("/v1/chat/completions").status_code == 405


def test_metrics_tell_first_sight_from_a_head_that_changes(pair: list[Engine], make_proxy: MakeProxy) -> None:
    rules = " ".join(f"rule {number}: {number * 7_919 % 3_001}" for number in range(200))
    proxy = make_proxy(pair, routing__volatile_sample=1.0)
    for number in range(12):
        assert proxy.chat(f"10:{number:02}: {rules}", max_tokens=1).is_success

    def volatile() -> float:
        losses = re.search(
            r'hit_loss_tokens_total\{policy="cache-aware",reason="volatile"\} (\S+)', proxy.client.get("/metrics").text
        )
        return float(losses[1]) if losses else 0.0

    until(lambda: volatile() > 3_000)  # prompts are compared after their requests have ended


def test_models_are_those_of_all_engines_that_answer(pair: list[Engine], make_proxy: MakeProxy) -> None:
    own = httpx.get(f"{pair[0].url}/v1/models").json()["data"]
    listed = make_proxy(pair).client.get("/v1/models").json()
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == [model["id"] for model in own]
    silent = make_proxy(["http://127.0.0.1:1"]).client.get("/v1/models")
    assert silent.status_code == 503
