"""A second engine beside a slow one: the first to answer wins, and nothing is billed twice."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from loopback import HEALTHY, Engine, Proxy, chat_body, events

from waiting import until

NEVER_S = 3_600.0
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: 15\r\nconnection: close\r\n\r\n" + b'{"choices": []}'


class Gated:
    """An engine that answers when the test opens its gate."""

    def __init__(self, answer: bytes = WHOLE) -> None:
        self.answer, self.gate, self.asked, self.left = answer, threading.Event(), 0, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            if connection.recv(65_536).startswith(b"GET"):
                connection.sendall(HEALTHY)
                return
            self.asked += 1
            connection.setblocking(False)
            while not self.gate.wait(0.005):
                try:
                    if connection.recv(65_536) == b"":
                        self.left += 1
                        return
                except BlockingIOError:
                    pass
            connection.setblocking(True)
            connection.sendall(self.answer)

    def close(self) -> None:
        self.gate.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.fixture
def gated() -> Iterator[Callable[..., Gated]]:
    with ExitStack() as stack:
        yield lambda answer=WHOLE: stack.enter_context(closing(Gated(answer)))


@pytest.mark.parametrize("stream", [True, False])
def test_the_hedge_wins_and_the_slow_one_is_left(
    pair: list[Engine], make_proxy: Callable[..., Proxy], stream: bool
) -> None:
    slow, quick = pair
    slow.control(prefill_s_per_1k=1_000 * NEVER_S)
    proxy = make_proxy([slow.url, quick.url], routing__policy="round-robin", upstream__hedge_after_s=0.05)
    responses = [proxy.chat(stream=stream, max_tokens=3) for _ in range(2)]
    assert {response.headers["x-replica"] for response in responses} == {quick.url}
    assert [len(events(response.content)) for response in responses] == ([4, 4] if stream else [0, 0])
    until(proxy.idle)
    until(lambda: slow.stats()["running"] == 0)
    counts = proxy.router.stats()["counts"]
    assert counts["finished"] == 2
    assert not any(name.endswith("_late") for name in counts)


def test_both_answer_and_one_is_billed(gated: Callable[..., Gated], make_proxy: Callable[..., Proxy]) -> None:
    engines = [gated(), gated()]
    proxy = make_proxy([engine.url for engine in engines], upstream__hedge_after_s=0.02)
    answers: list[int] = []

    def ask(content: str) -> None:
        answers.append(proxy.chat(content).status_code)

    for number in range(20):
        for engine in engines:
            engine.gate.clear()
            engine.asked = 0
        asking = threading.Thread(target=ask, args=(f"number {number}",))
        asking.start()
        until(lambda: all(engine.asked for engine in engines))
        assert sorted(proxy.load().values()) == [1, 1]
        for engine in engines:  # both at once
            engine.gate.set()
        asking.join()
        assert answers.pop() == 200
        until(proxy.idle)
    counts = proxy.router.stats()["counts"]
    assert (counts["committed"], counts["finished"], counts["hedge_lost"]) == (40, 20, 20)
    assert not any(name.endswith("_late") for name in counts)
    assert proxy.router.stats()["in_flight"] == 0


def test_the_first_wins_after_all(gated: Callable[..., Gated], make_proxy: Callable[..., Proxy]) -> None:
    engines = [gated(), gated()]
    proxy = make_proxy([engine.url for engine in engines], routing__policy="round-robin", upstream__hedge_after_s=0.02)
    asking = threading.Thread(target=proxy.chat)
    asking.start()
    until(lambda: all(engine.asked for engine in engines))
    first = next(engine for engine in engines if engine.url == proxy.router.replicas[0])
    first.gate.set()
    asking.join()
    until(proxy.idle)
    other = next(engine for engine in engines if engine is not first)
    until(lambda: other.left == 1)


def test_when_one_refuses_the_other_answers_and_when_both_do_the_client_hears_it(
    gated: Callable[..., Gated], make_proxy: Callable[..., Proxy]
) -> None:
    refusal = WHOLE.replace(b"200 OK", b"503 Busy")
    refusing, sound = gated(refusal), gated()
    proxy = make_proxy(
        [refusing.url, sound.url], upstream__hedge_after_s=0.02, upstream__retries=0, health__failures=100
    )
    statuses: list[int] = []
    for answer, expected in ((WHOLE, 200), (refusal, 503)):
        sound.answer = answer
        for engine in (refusing, sound):
            engine.gate.clear()
            engine.asked = 0
        asking = threading.Thread(target=lambda: statuses.append(proxy.chat().status_code))
        asking.start()
        until(lambda: refusing.asked and sound.asked)
        refusing.gate.set()
        time.sleep(0.02)
        sound.gate.set()
        asking.join()
        assert statuses.pop() == expected
        until(proxy.idle)


def test_a_client_that_leaves_a_race_leaves_nothing(
    gated: Callable[..., Gated], make_proxy: Callable[..., Proxy]
) -> None:
    engines = [gated(), gated()]
    proxy = make_proxy([engine.url for engine in engines], upstream__hedge_after_s=0.02)
    for _ in range(5):
        for engine in engines:
            engine.asked = engine.left = 0
        with proxy.opened(chat_body()):
            until(lambda: all(engine.asked for engine in engines))
        until(proxy.idle)
        until(lambda: all(engine.left for engine in engines))


def test_one_engine_alone_is_not_hedged(pair: list[Engine], make_proxy: Callable[..., Proxy]) -> None:
    pair[0].control(prefill_s_per_1k=0, decode_s=0.05)
    proxy = make_proxy([pair[0].url], upstream__hedge_after_s=0.01)
    assert proxy.chat(max_tokens=3).is_success
    assert proxy.router.stats()["counts"]["committed"] == 1
    assert proxy.idle()
