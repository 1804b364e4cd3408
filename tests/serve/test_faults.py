"""Clients that leave and engines that die, at every moment: load comes back, and only what is safe is asked again."""

from __future__ import annotations

import random
from contextlib import ExitStack

import httpx
import pytest
from loopback import Engine, MakeEngines, MakeProxy, MakeScripted, chat_body, events, whole

from waiting import until

NEVER_S = 3_600.0


@pytest.fixture
def stuck(pair: list[Engine]) -> Engine:
    """Return an engine that comes to no answer."""
    pair[0].control(prefill_s_per_1k=1_000 * NEVER_S)
    return pair[0]


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_before_the_first_byte(stuck: Engine, make_proxy: MakeProxy, stream: bool) -> None:
    proxy = make_proxy([stuck])
    with proxy.opened(chat_body(stream=stream)):
        until(lambda: stuck.stats()["running"] == 1)
        assert proxy.load() == {stuck.url: 1}
    until(proxy.idle)
    until(lambda: stuck.stats()["running"] == 0)  # the engine has heard of it too
    assert proxy.router.stats()["counts"]["aborted"] == 1
    assert proxy.state(stuck.url) == "active"  # it is no fault of the engine


def test_a_client_that_leaves_in_the_middle(pair: list[Engine], make_proxy: MakeProxy) -> None:
    engine = pair[0]
    engine.control(decode_s=0.05)
    proxy = make_proxy([engine])
    with proxy.opened(chat_body(stream=True, max_tokens=1_000_000)) as connection:
        received = b""
        while b" w2" not in received:
            received += connection.recv(65_536)
        assert proxy.load() == {engine.url: 1}
    until(proxy.idle)
    until(lambda: engine.stats()["running"] == 0)
    assert proxy.router.stats()["counts"]["aborted"] == 1


def test_four_hundred_phantoms_leave_no_load(pair: list[Engine], make_proxy: MakeProxy) -> None:
    for engine in pair:
        engine.control(prefill_s_per_1k=1_000 * NEVER_S)
    proxy = make_proxy(pair)
    for _ in range(20):
        with ExitStack() as left:
            for number in range(20):
                left.enter_context(proxy.opened(chat_body(f"{number} " * 20, stream=True)))
            until(lambda: sum(proxy.load().values()) == 20)
            assert all(load >= 5 for load in proxy.load().values())
        until(proxy.idle)
    assert proxy.router.stats()["counts"]["aborted"] == 400


def test_a_health_check_does_not_touch_load(stuck: Engine, make_proxy: MakeProxy) -> None:
    proxy = make_proxy([stuck])
    with ExitStack() as opened:
        for _ in range(10):
            opened.enter_context(proxy.opened(chat_body()))
        until(lambda: proxy.load()[stuck.url] == 10)
        for healthy, state in enumerate(("suspended", "active")):
            stuck.control(healthy=healthy)
            until(lambda state=state: proxy.state(stuck.url) == state)
            assert proxy.load()[stuck.url] == 10
    until(proxy.idle)


def test_a_killed_engine_is_passed_over_suspended_and_taken_back_empty(
    make_engines: MakeEngines, make_proxy: MakeProxy
) -> None:
    engines = make_engines(2, prefill_s_per_1k=0, decode_s=0)
    # No health check in time: requests alone find out.
    proxy = make_proxy(engines, health__interval_s=0.5, health__failures=2)
    prompt = "a long prompt " * 1_000
    home = proxy.chat(prompt, max_tokens=1).headers["x-replica"]
    engine, other = sorted(engines, key=lambda engine: engine.url != home)
    assert proxy.decide(prompt).replica == home
    engine.kill()
    for _ in range(4):
        response = proxy.chat(prompt, max_tokens=1)
        assert (response.status_code, response.headers["x-replica"]) == (200, other.url)
    until(lambda: proxy.state(home) == "suspended")
    assert proxy.router.stats()["counts"]["retried"] >= 1
    assert proxy.client.get("/healthz").json()["replicas"] == {home: "suspended", other.url: "active"}
    engine.start()
    until(lambda: proxy.state(home) == "active")
    assert proxy.decide(prompt, candidates=[home]).hit_tokens == 0  # its cache went with its process
    assert proxy.idle()


@pytest.mark.parametrize("stream", [True, False])
def test_an_engine_that_dies_before_the_first_byte_is_replaced(
    make_engines: MakeEngines, make_proxy: MakeProxy, stream: bool
) -> None:
    sick, sound = make_engines(2, prefill_s_per_1k=0, decode_s=0)
    sick.control(die_after=0 if stream else 3)  # a whole body has no first byte before its last
    proxy = make_proxy([sick, sound], routing__policy="round-robin")
    responses = [proxy.chat(stream=stream, max_tokens=5) for _ in range(2)]
    assert {response.headers["x-replica"] for response in responses} == {sound.url}
    for response in responses:
        said = events(response.content) if stream else [response.json()]
        assert len(said) == (6 if stream else 1)
    assert sick.process.wait() == 1
    assert proxy.router.stats()["counts"]["retried"] >= 1
    assert proxy.idle()


def test_an_engine_that_dies_in_the_middle_breaks_the_stream_and_nothing_is_asked_twice(
    make_engines: MakeEngines, make_proxy: MakeProxy
) -> None:
    engines = make_engines(2, prefill_s_per_1k=0, decode_s=0.01)
    proxy = make_proxy(engines)
    for engine in engines:
        engine.control(die_after=3)
    received: list[bytes] = []
    with proxy.client.stream("POST", "/v1/chat/completions", json=chat_body(stream=True)) as response:
        assert response.status_code == 200
        with pytest.raises(httpx.RemoteProtocolError):
            received.extend(response.iter_raw())
    said = events(b"".join(received))
    assert [event["choices"][0]["delta"]["content"] for event in said] == [" w0", " w1", " w2"]
    until(proxy.idle)
    counts = proxy.router.stats()["counts"]
    assert counts["aborted"] == 1
    assert "retried" not in counts
    dead, alive = sorted(engines, key=lambda engine: engine.url != response.headers["x-replica"])
    assert dead.process.wait() == 1
    assert alive.stats()["requests"] == 0


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_an_engine_that_will_not_is_passed_over(pair: list[Engine], make_proxy: MakeProxy, status: int) -> None:
    busy, free = pair
    proxy = make_proxy([busy, free], routing__policy="round-robin", health__failures=100)
    busy.control(status=status)
    for _ in range(4):
        assert proxy.chat(max_tokens=1).headers["x-replica"] == free.url
    free.control(status=status)
    response = proxy.chat(max_tokens=1)
    assert response.status_code == status  # the engine's own answer, with its wait
    assert response.json()["error"]["type"] == "fake_engine"
    assert response.headers.get("retry-after") == ("1" if status in {429, 503} else None)
    assert proxy.idle()


def test_a_500_goes_to_the_client_and_not_round_the_fleet(pair: list[Engine], make_proxy: MakeProxy) -> None:
    proxy = make_proxy(pair, health__reset_s=NEVER_S)
    for engine in pair:
        engine.control(status=500)
    assert proxy.chat().status_code == 500
    counts = proxy.router.stats()["counts"]
    assert "retried" not in counts
    assert counts["aborted"] == 1
    while proxy.client.get("/healthz").status_code == 200:  # but an engine that only fails is suspended
        assert proxy.chat().status_code == 500
    response = proxy.chat()
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert proxy.idle()


def test_a_fault_of_the_client_is_no_fault_of_the_engine(pair: list[Engine], make_proxy: MakeProxy) -> None:
    engine = pair[0]
    proxy, prompt = make_proxy([engine], health__failures=1), "hello " * 100
    for status in (400, 429):
        engine.control(status=status)
        assert [proxy.chat(prompt).status_code for _ in range(3)] == [status] * 3
    assert proxy.state(engine.url) == "active"
    assert proxy.decide(prompt).hit_tokens == 0
    engine.control(status=-1)
    assert proxy.chat(prompt).is_success
    assert proxy.decide(prompt).hit_tokens > 0
    assert proxy.idle()


def test_a_fleet_that_is_gone_is_a_502_then_a_503(make_engines: MakeEngines, make_proxy: MakeProxy) -> None:
    engines = make_engines(2)
    proxy = make_proxy(engines, health__interval_s=0.5, health__failures=4)
    for engine in engines:
        engine.kill()
    assert proxy.chat().status_code == 502
    until(lambda: proxy.client.get("/healthz").status_code == 503)
    response = proxy.chat()
    assert response.status_code == 503
    assert "suspended" in response.json()["error"]["message"]
    assert proxy.idle()


def test_a_full_fleet_is_a_429(stuck: Engine, make_proxy: MakeProxy) -> None:
    proxy = make_proxy([stuck], routing__max_in_flight=1)
    with proxy.opened(chat_body()):
        until(lambda: proxy.load() == {stuck.url: 1})
        response = proxy.chat()
        assert (response.status_code, response.headers["retry-after"]) == (429, "1")
    until(proxy.idle)


def test_a_silent_engine_is_a_504(stuck: Engine, make_proxy: MakeProxy) -> None:
    proxy = make_proxy([stuck], upstream__first_byte_timeout_s=0.2)
    assert [proxy.chat(stream=stream).status_code for stream in (False, True)] == [504] * 2
    assert proxy.idle()


def test_an_engine_that_falls_silent_breaks_off_and_a_long_whole_answer_does_not(
    pair: list[Engine], make_proxy: MakeProxy
) -> None:
    engine = pair[0]
    engine.control(decode_s=0.1)
    proxy = make_proxy([engine], upstream__idle_timeout_s=0.05)
    assert proxy.chat(max_tokens=3).is_success
    engine.control(decode_s=NEVER_S)
    with pytest.raises(httpx.RemoteProtocolError):
        proxy.chat(max_tokens=3, stream=True)
    until(proxy.idle)


def test_whatever_happens_every_ticket_ends_once(make_engines: MakeEngines, make_proxy: MakeProxy) -> None:
    engines = make_engines(2, prefill_s_per_1k=0.05, decode_s=0.002)
    proxy = make_proxy(engines)
    rng = random.Random(7)  # noqa: S311  # a scenario, not a secret
    with ExitStack() as held:
        for number in range(240):
            if number % 80 == 20:
                engines[number % 160 // 80].kill()
            if number % 80 == 60:
                engines[number % 160 // 80].start()
            body = chat_body(f"{rng.randrange(20)} " * 100, stream=rng.random() < 0.7, max_tokens=rng.randrange(1, 30))
            opened = proxy.opened(body)
            connection = opened.__enter__()
            patience = rng.choice(["none", "some", "all"])
            if patience == "some":
                connection.recv(rng.randrange(1, 1_000))
            if patience == "all":
                held.push(opened)
            else:
                opened.__exit__(None, None, None)
        until(proxy.idle)
    counts = proxy.router.stats()["counts"]
    assert counts["committed"] == counts["finished"] + counts["aborted"] + counts["retried"]
    assert min(counts[outcome] for outcome in ("finished", "aborted", "retried")) > 0
    assert not any(name.endswith("_late") for name in counts)
    until(lambda: set(proxy.client.get("/healthz").json()["replicas"].values()) == {"active"})
    until(lambda: not any(engine.stats()["running"] for engine in engines))


def test_an_engine_that_asks_for_rest_gets_it(make_scripted: MakeScripted, make_proxy: MakeProxy) -> None:
    tired = make_scripted([whole(b"", "retry-after: 30", status="503 Busy")])
    sound = make_scripted([whole()])
    proxy = make_proxy([tired, sound], routing__policy="round-robin", health__max_retry_after_s=0.3)
    for _ in range(6):
        assert proxy.chat().status_code == 200
    assert len(tired.bodies) == 1
    until(lambda: proxy.chat().status_code == 200 and len(tired.bodies) == 2)  # no longer than we allow
    assert proxy.state(tired.url) in {"active", "suspended"}
    assert proxy.idle()


def test_a_breaker_is_tried_with_requests_before_it_closes(pair: list[Engine], make_proxy: MakeProxy) -> None:
    sick, sound = pair
    health = {"health__failures": 1, "health__reset_s": 0.05, "health__max_reset_s": 0.05}
    proxy = make_proxy([sick, sound], routing__policy="round-robin", **health)
    sick.control(status=503)  # its checks pass all the same
    breaker = proxy.service.fleet.engines[sick.url].breaker
    assert {proxy.chat(max_tokens=1).status_code for _ in range(4)} == {200}
    for _ in range(3):
        until(lambda: breaker.state.value == "half-open" and proxy.state(sick.url) == "active")
        until(lambda: proxy.chat(max_tokens=1).is_success and breaker.state.value == "open")
        assert proxy.state(sick.url) in {"suspended", "active"}
    sick.control(status=-1)
    until(lambda: proxy.chat(max_tokens=1).is_success and breaker.state.value == "closed")
    assert proxy.state(sick.url) == "active"
    assert proxy.idle()


def test_an_engine_that_is_doubted_is_checked_at_once(make_scripted: MakeScripted, make_proxy: MakeProxy) -> None:
    engine = make_scripted([])  # hangs up on every request
    proxy = make_proxy([engine], health__interval_s=1_000, upstream__retries=0)
    until(lambda: engine.checks == 1)
    assert [proxy.chat().status_code for _ in range(3)] == [502] * 3
    until(lambda: engine.checks == 2)
    assert proxy.state(engine.url) == "suspended"


def test_a_client_that_takes_nothing_is_given_up(make_scripted: MakeScripted, make_proxy: MakeProxy) -> None:
    event = b"data: " + b"x" * 60_000 + b"\n\n"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    engine = make_scripted([head, *[event] * 2_000])
    proxy = make_proxy([engine], limits__write_timeout_s=0.1)
    with proxy.opened(chat_body(stream=True)) as connection:
        connection.recv(10)
        until(proxy.idle)
    assert proxy.router.stats()["counts"]["aborted"] == 1
    assert proxy.state(engine.url) == "active"


def test_a_request_has_its_time_and_no_more(pair: list[Engine], make_proxy: MakeProxy) -> None:
    engine = pair[0]
    engine.control(decode_s=0.05)
    proxy = make_proxy([engine], upstream__request_timeout_s=0.3)
    assert proxy.chat(max_tokens=1_000).status_code == 504
    with pytest.raises(httpx.RemoteProtocolError):
        proxy.chat(max_tokens=1_000, stream=True)
    until(proxy.idle)
    assert proxy.state(engine.url) == "active"


def test_requests_above_the_limit_are_a_429(stuck: Engine, make_proxy: MakeProxy) -> None:
    proxy = make_proxy([stuck], limits__max_requests=3)
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(proxy.opened(chat_body()))
        until(lambda: proxy.load() == {stuck.url: 3})
        response = proxy.chat()
        assert (response.status_code, response.headers["retry-after"]) == (429, "1")
    until(proxy.idle)
    stuck.control(prefill_s_per_1k=0)
    assert proxy.chat(max_tokens=1).is_success
