"""The four APIs through the server, asked by the vendors' own clients where there is one."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx
import openai
import pytest
from loopback import Engine, MakeProxy, MakeScripted, Proxy, whole

from waiting import until

SYSTEM = "You speak four languages of the wire. " * 80
ANSWER = whole(b'{"choices": []}')
QUESTION = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def proxy(pair: list[Engine], make_proxy: MakeProxy) -> Proxy:
    return make_proxy(pair)


@pytest.fixture
def gpt(proxy: Proxy) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="none", max_retries=0)


@pytest.fixture
def claude(proxy: Proxy) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=proxy.url, api_key="none", max_retries=0)


def hit_tokens(proxy: Proxy) -> int | None:
    until(proxy.idle)
    stats = proxy.router.stats()
    assert stats["counts"].get("aborted", 0) == 0
    reported: int | None = stats["reported_hit_tokens"]
    return reported


def test_chat(proxy: Proxy, gpt: openai.OpenAI) -> None:
    asked: Any = [{"role": "system", "content": SYSTEM}, *QUESTION]
    answer = gpt.chat.completions.create(model="fake", messages=asked, max_tokens=3)
    assert answer.choices[0].message.content == " w0 w1 w2"
    stream = gpt.chat.completions.create(model="fake", messages=asked, max_tokens=3, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == " w0 w1 w2"
    assert (hit_tokens(proxy) or 0) > 700


def test_completions(proxy: Proxy, gpt: openai.OpenAI) -> None:
    for prompt in (SYSTEM, list(range(2_000))):
        answers = [gpt.completions.create(model="fake", prompt=prompt, max_tokens=3) for _ in range(2)]
        assert [answer.choices[0].text for answer in answers] == [" w0 w1 w2"] * 2
    assert (hit_tokens(proxy) or 0) > 2_500  # of the text and of the token ids


def test_responses(proxy: Proxy, gpt: openai.OpenAI) -> None:
    answer = gpt.responses.create(model="fake", instructions=SYSTEM, input="Hello", max_output_tokens=3)
    assert answer.output_text == " w0 w1 w2"
    asked: Any = [*QUESTION, *answer.output, {"role": "user", "content": "Again"}]
    with gpt.responses.stream(model="fake", instructions=SYSTEM, input=asked, max_output_tokens=3) as stream:
        said = [event.delta for event in stream if event.type == "response.output_text.delta"]
    assert said == [" w0", " w1", " w2"]
    assert (hit_tokens(proxy) or 0) > 700


def test_messages(proxy: Proxy, claude: anthropic.Anthropic) -> None:
    asked: Any = {"model": "fake", "system": SYSTEM, "messages": QUESTION, "max_tokens": 3}
    answer: Any = claude.messages.create(**asked)
    assert answer.content[0].text == " w0 w1 w2"
    with claude.messages.stream(**asked) as stream:
        assert "".join(stream.text_stream) == " w0 w1 w2"
    assert (hit_tokens(proxy) or 0) > 700


def test_one_conversation_has_one_place_whichever_api_it_comes_by(proxy: Proxy) -> None:
    turn = [{"role": "user", "content": SYSTEM}]
    bodies = {
        "/v1/chat/completions": {"messages": turn},
        "/v1/responses": {"input": turn},
        "/v1/messages": {"messages": turn, "max_tokens": 2},
    }
    replicas = set()
    for path, body in bodies.items():
        replicas.add(proxy.client.post(path, json={"model": "fake", **body}).headers["x-replica"])
    assert len(replicas) == 1
    stats = proxy.router.stats()
    assert stats["hit_tokens"] > 0.6 * stats["prompt_tokens"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_response_is_gone_on_from_where_it_is_stored(pair: list[Engine], make_proxy: MakeProxy, stream: bool) -> None:
    proxy = make_proxy(pair, routing__policy="round-robin", upstream__retries=0)
    body = {"model": "fake", "input": "Hello", "max_output_tokens": 2, "stream": stream}
    for _ in range(4):
        first = proxy.client.post("/v1/responses", json=body)
        home = first.headers["x-replica"]
        data = first.content.rpartition(b"data: ")[2] if stream else first.content
        known = json.loads(data)
        ident = (known["response"] if stream else known)["id"]
        again = proxy.client.post("/v1/responses", json={**body, "previous_response_id": ident})
        assert again.headers["x-replica"] == home
    proxy.service.fleet.hold(home, held=True)
    lost = proxy.client.post("/v1/responses", json={**body, "previous_response_id": ident})
    assert (lost.status_code, lost.headers["retry-after"]) == (503, "1")
    assert proxy.idle()


@pytest.mark.parametrize("at", [0, 1, 2, None])
def test_a_response_that_is_not_known_is_looked_for(
    make_scripted: MakeScripted, make_proxy: MakeProxy, at: int | None
) -> None:
    lost = whole(b'{"error": {"message": "no such response"}}', status="404 Not Found")
    found = whole(b'{"id": "new"}')
    engines = [make_scripted([found if number == at else lost]) for number in range(3)]
    proxy = make_proxy(engines, routing__policy="round-robin")
    body = {"model": "fake", "input": "Hello", "previous_response_id": "old"}
    for _ in range(3):
        answer = proxy.client.post("/v1/responses", json=body)
        assert answer.status_code == (404 if at is None else 200)
        if at is None:
            assert answer.json()["error"]["message"] == "no such response"
        else:
            assert answer.headers["x-replica"] == engines[at].url
    assert proxy.router.is_bound("old") == (at is not None)
    asked = sum(len(engine.heads) for engine in engines)
    assert asked == 9 if at is None else 3 <= asked <= 5
    assert proxy.idle()


@pytest.mark.parametrize(
    ("headers", "fields"),
    [
        ({"X-Session-Id": "chat-1"}, {}),
        ({"x-claude-code-session-id": "chat-1"}, {"user": "somebody"}),
        ({"session-id": "chat-1"}, {"prompt_cache_key": "other"}),
        ({}, {"prompt_cache_key": "chat-1"}),
        ({}, {"metadata": {"user_id": '{"device_id": "d", "session_id": "chat-1-00"}'}}),
        ({}, {"conversation": {"id": "chat-1"}}),
    ],
)
def test_clients_name_their_conversations_as_they_do(
    proxy: Proxy, headers: dict[str, str], fields: dict[str, Any]
) -> None:
    body = {"model": "fake", "messages": QUESTION, **fields}
    assert proxy.client.post("/v1/chat/completions", json=body, headers=headers).is_success
    assert proxy.router.stats()["sessions"] == 1
    assert proxy.router.forget("chat-1") or proxy.router.forget("chat-1-00")


def test_names_of_ones_own_take_the_place_of_known_ones(pair: list[Engine], make_proxy: MakeProxy) -> None:
    proxy = make_proxy(pair[:1], sessions__headers=["X-Chat"], sessions__fields=["metadata.chat.id"])
    body = {"model": "fake", "messages": QUESTION, "prompt_cache_key": "no"}
    for headers, extra in (({"x-chat": "a"}, {}), ({"x-session-id": "no"}, {"metadata": {"chat": {"id": "b"}}})):
        proxy.client.post("/v1/chat/completions", json={**body, **extra}, headers=headers)
    assert [proxy.router.forget(name) for name in ("a", "b", "no")] == [True, True, False]


def listing(*models: str) -> bytes:
    return whole(
        json.dumps({"object": "list", "data": [{"id": model, "object": "model"} for model in models]}).encode()
    )


def test_a_model_is_asked_of_engines_that_have_it(make_scripted: MakeScripted, make_proxy: MakeProxy) -> None:
    small, large = (
        make_scripted([ANSWER], models=listing("small")),
        make_scripted([ANSWER], models=listing("large", "both")),
    )
    untold = make_scripted([ANSWER])
    proxy = make_proxy([small, large, untold], routing__policy="round-robin", health__models_interval_s=0.05)
    listed = proxy.client.get("/v1/models").json()
    assert sorted(model["id"] for model in listed["data"]) == ["both", "large", "small"]

    def asked(model: str) -> set[str]:
        return {proxy.chat(model=model).headers["x-replica"] for _ in range(6)}

    assert asked("small") == {small.url, untold.url}
    assert asked("large") == {large.url, untold.url}
    assert asked("nobody-lists-it") == {small.url, large.url, untold.url}
    small.models = listing("small", "large")  # an adapter was loaded
    until(lambda: small.url in asked("large"))


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
def test_other_methods_are_a_405_and_reach_no_engine(pair: list[Engine], make_proxy: MakeProxy, method: str) -> None:
    before = pair[0].stats()["requests"]
    response = make_proxy(pair[:1]).client.request(method, "/v1/chat/completions")
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert response.content == b"" if method == "HEAD" else method in response.json()["error"]["message"]
    assert pair[0].stats()["requests"] == before


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/v1/chat",
        "/v1/load_lora_adapter",
        "/control",
        "/v1//chat/completions",
        "/%2e%2e/x",
        "/v1/chat/completions/",
        "/v1/models/",
    ],
)
def test_other_paths_are_a_404_that_says_which_there_are(pair: list[Engine], make_proxy: MakeProxy, path: str) -> None:
    response = make_proxy(pair[:1]).client.post(path, json={})
    assert response.status_code == 404
    assert "/v1/messages" in response.json()["error"]["message"]


def test_errors_have_the_form_of_the_api(pair: list[Engine], make_proxy: MakeProxy) -> None:
    proxy = make_proxy(pair[:1], limits__max_body_bytes=100)
    for path in ("/v1/chat/completions", "/v1/responses"):
        error = proxy.client.post(path, content=b"{").json()["error"]
        assert (error["type"], error["code"]) == ("proxy_error", 400)
    for content, kind in ((b"{", "invalid_request_error"), (b" " * 101, "request_too_large")):
        said = proxy.client.post("/v1/messages", content=content).json()
        assert (said["type"], said["error"]["type"]) == ("error", kind)
    with pytest.raises(anthropic.BadRequestError):
        anthropic.Anthropic(base_url=proxy.url, api_key="none", max_retries=0).messages.create(
            model="", messages=[{"role": "user", "content": ""}], max_tokens=1, extra_body={"messages": 7}
        )


def test_request_ids_go_through_and_are_made_up_where_they_cannot_be_used(
    make_scripted: MakeScripted, make_proxy: MakeProxy
) -> None:
    engine = make_scripted([ANSWER])
    proxy = make_proxy([engine])

    def ident(given: str) -> tuple[str, bytes]:
        response: httpx.Response = proxy.client.post(
            "/v1/chat/completions", json={"messages": QUESTION}, headers={"x-request-id": given}
        )
        sent = [line for line in engine.heads[-1].lower().split(b"\r\n") if line.startswith(b"x-request-id:")]
        assert len(sent) == 1
        return response.headers["x-request-id"], sent[0].partition(b":")[2].strip()

    assert ident("abc-1") == ("abc-1", b"abc-1")
    for given in ("a" * 129, "a b"):
        made, sent = ident(given)
        assert made == sent.decode() != given
