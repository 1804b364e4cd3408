"""A second engine beside a slow one: the first to answer wins, and nothing is billed twice."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest
from loopback import HEALTHY, Engine, Listening, MakeProxy, chat_body, events, whole

from waiting import until

NEVER_S = 3_600.0
WHOLE = whole(b'{"choices": []}')


class Gated(Listening):
    """An engine that answers when the test opens its gate."""

    def __init__(self) -> None:
        self.said, self.gate, self.asked, self.left = WHOLE, threading.Event(), 0, 0
        super().__init__()

    def answer(self, connection: socket.socket) -> None:
        if connection.recv(65_536).startswith(b"GET"):
            connection.sendall(HEALTHY)
            return
        self.asked += 1
        connection.setblocking(False)
        while not self.gate.wait(0.005):
            with suppress(BlockingIOError):
                if connection.recv(65_536) == b"":
                    self.left += 1
                    return
        connection.setblocking(True)
        connection.sendall(self.said)

    def shut(self) -> None:
        """Let the next request wait, and count from zero."""
        self.gate.clear()
        self.asked = self.left = 0

    def close(self) -> None:
        self.gate.set()
        super().close()


@pytest.fixture
def gated() -> Iterator[list[Gated]]:
    """Yield two engines."""
    with closing(Gated()) as one, closing(Gated()) as other:
        yield [one, other]


@pytest.mark.parametrize("stream", [True, False])
def test_the_hedge_wins_and_the_slow_one_is_left(pair: list[Engine], make_proxy: MakeProxy, stream: bool) -> None:
    slow, quick = pair
    slow.control(prefill_s_per_1k=1_000 * NEVER_S)
    proxy = make_proxy([slow, quick], routing__policy="round-robin", upstream__hedge_after_s=0.05)
    responses = [proxy.chat(stream=stream, max_tokens=3) for _ in range(2)]
    assert {response.headers["x-replica"] for response in responses} == {quick.url}
    assert [len(events(response.content)) for response in responses] == ([4, 4] if stream else [0, 0])
    until(proxy.idle)
    until(lambda: slow.stats()["running"] == 0)
    counts = proxy.router.stats()["counts"]
    assert counts["finished"] == 2
    assert not any(name.endswith("_late") for name in counts)
    assert (proxy.metric("hedges_total", winner="second"), proxy.metric("hedges_total", winner="first")) == (2, 0)


def test_both_answer_and_one_is_billed(gated: list[Gated], make_proxy: MakeProxy) -> None:
    proxy = make_proxy(gated, upstream__hedge_after_s=0.02)
    with ThreadPoolExecutor(1) as pool:
        for number in range(20):
            for engine in gated:
                engine.shut()
            asking = pool.submit(proxy.chat, f"number {number}")
            until(lambda: all(engine.asked for engine in gated))
            assert sorted(proxy.load().values()) == [1, 1]
            for engine in gated:  # both at once
                engine.gate.set()
            assert asking.result().status_code == 200
            until(proxy.idle)
    counts = proxy.router.stats()["counts"]
    assert (counts["committed"], counts["finished"], counts["hedge_lost"]) == (40, 20, 20)
    assert not any(name.endswith("_late") for name in counts)
    assert proxy.router.stats()["in_flight"] == 0


def test_the_first_wins_after_all(gated: list[Gated], make_proxy: MakeProxy) -> None:
    proxy = make_proxy(gated, routing__policy="round-robin", upstream__hedge_after_s=0.02)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(proxy.chat)
        until(lambda: all(engine.asked for engine in gated))
        first, other = sorted(gated, key=lambda engine: engine.url != proxy.router.replicas[0])
        first.gate.set()
    until(proxy.idle)
    until(lambda: other.left == 1)
    assert (proxy.metric("hedges_total", winner="first"), proxy.metric("hedges_total", winner="second")) == (1, 0)


def test_when_one_refuses_the_other_answers_and_when_both_do_the_client_hears_it(
    gated: list[Gated], make_proxy: MakeProxy
) -> None:
    refusing, sound = gated
    refusing.said = WHOLE.replace(b"200 OK", b"503 Busy")
    proxy = make_proxy(gated, upstream__hedge_after_s=0.02, upstream__retries=0, health__failures=100)
    with ThreadPoolExecutor(1) as pool:
        for sound.said, expected in ((WHOLE, 200), (refusing.said, 503)):
            for engine in gated:
                engine.shut()
            asking = pool.submit(proxy.chat)
            until(lambda: refusing.asked and sound.asked)
            refusing.gate.set()
            time.sleep(0.02)
            sound.gate.set()
            assert asking.result().status_code == expected
            until(proxy.idle)


def test_a_client_that_leaves_a_race_leaves_nothing(gated: list[Gated], make_proxy: MakeProxy) -> None:
    proxy = make_proxy(gated, upstream__hedge_after_s=0.02)
    for _ in range(5):
        for engine in gated:
            engine.shut()
        with proxy.opened(chat_body()):
            until(lambda: all(engine.asked for engine in gated))
        until(proxy.idle)
        until(lambda: all(engine.left for engine in gated))


def test_one_engine_alone_is_not_hedged(pair: list[Engine], make_proxy: MakeProxy) -> None:
    pair[0].control(prefill_s_per_1k=0, decode_s=0.05)
    proxy = make_proxy(pair[:1], upstream__hedge_after_s=0.01)
    assert proxy.chat(max_tokens=3).is_success
    assert proxy.router.stats()["counts"]["committed"] == 1
    assert proxy.idle()
