"""The command as a process: its end, its workers, its logs and its operators' port."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
import pytest
from loopback import DEADLINE_S, PLAIN, Engine, chat_body, events, free_port

from prefixroute.serve.metrics import Metrics, merged
from prefixroute.serve.reader import LARGE_BYTES
from waiting import until

T = TypeVar("T")
CUT_OFF = "cut off at the server's end"  # a value of the label `outcome`


class Served:
    """``prefixroute serve`` in a process; what it says is kept."""

    def __init__(self, *arguments: str, admin: bool = True) -> None:
        self.port, self.admin_port = free_port(), free_port()
        flags = ["--port", str(self.port), "--log-format", "json"]
        flags += ["--admin-port", str(self.admin_port)] if admin else []
        command = [sys.executable, "-m", "prefixroute", "serve", *flags, *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.said: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", verify=PLAIN, timeout=DEADLINE_S)
        self.admin = httpx.Client(base_url=f"http://127.0.0.1:{self.admin_port}", verify=PLAIN, timeout=DEADLINE_S)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if line.startswith("{"):
                self.said.append(json.loads(line))

    def ready(self, workers: int = 1) -> Self:
        until(lambda: self.healthy(self.client))
        if workers > 1:
            until(lambda: len(self.admin.get("/healthz").json()["workers"]) == workers)
        return self

    def healthy(self, client: httpx.Client) -> bool:
        try:
            return client.get("/healthz").is_success
        except httpx.TransportError:
            assert self.process.poll() is None, self.said
            return False

    def ended(self) -> int:
        code = self.process.wait(DEADLINE_S)
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.ended() == 0

    def records(self, logger: str) -> list[dict[str, Any]]:
        return [record for record in self.said if record["logger"] == logger]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.ended()
        self.client.close()
        self.admin.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    with ExitStack() as stack:
        yield lambda *arguments, **options: stack.enter_context(closing(Served(*arguments, **options)))


def at_once(count: int, call: Callable[[int], T]) -> list[Future[T]]:
    """Make so many calls beside each other."""
    pool = ThreadPoolExecutor(count)
    calls = [pool.submit(call, number) for number in range(count)]
    pool.shutdown(wait=False)
    return calls


def streams(served: Served, count: int, tokens: int) -> list[Future[bytes]]:
    """Open streams; return what each will have received, to its end or to where it was broken off."""

    def read(number: int) -> bytes:
        said = b""
        body = chat_body(f"{number} " * 10, stream=True, max_tokens=tokens)
        with suppress(httpx.TransportError), httpx.Client(verify=PLAIN, timeout=DEADLINE_S) as client:
            url = f"http://127.0.0.1:{served.port}/v1/chat/completions"
            with client.stream("POST", url, json=body) as response:
                for data in response.iter_raw():
                    said += data
        return said

    return at_once(count, read)


def in_flight(served: Served) -> int:
    workers = served.admin.get("/replicas").json()["workers"].values()
    return sum(one["in_flight"] for worker in workers for one in worker["replicas"].values())


def test_sigterm_ends_it_without_breaking_one_of_a_hundred_streams(
    pair: list[Engine], serve: Callable[..., Served]
) -> None:
    for engine in pair:
        engine.control(decode_s=1)
    served = serve(*(engine.url for engine in pair), "--set", "listen.lame_duck_s=1").ready()
    asked = streams(served, 100, 30)
    until(lambda: in_flight(served) == 100)
    served.process.send_signal(signal.SIGTERM)
    until(lambda: served.admin.get("/healthz").json()["status"] == "draining")
    assert served.client.get("/healthz").status_code == 503
    for engine in pair:
        engine.control(decode_s=0.01)
    assert served.client.post("/v1/chat/completions", json=chat_body(max_tokens=1)).is_success  # still accepted
    assert served.ended() == 0
    received = [one.result() for one in asked]
    assert all(said.endswith(b"data: [DONE]\n\n") and len(events(said)) == 31 for said in received)
    outcomes = {record["outcome"] for record in served.records("prefixroute.serve.access")}
    assert outcomes == {"served"}
    until(lambda: not any(engine.stats()["running"] for engine in pair))


def test_after_the_time_to_drain_what_is_left_is_broken_off(pair: list[Engine], serve: Callable[..., Served]) -> None:
    pair[0].control(decode_s=0.05)
    served = serve(pair[0].url, "--set", "listen.drain_s=0.3").ready()
    asked = streams(served, 5, 10_000)
    until(lambda: in_flight(served) == 5)
    served.process.send_signal(signal.SIGINT)
    assert served.ended() == 0
    assert not any(one.result().endswith(b"[DONE]\n\n") for one in asked)
    until(lambda: pair[0].stats()["running"] == 0)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_who_has_no_answer_when_the_time_to_drain_ends_is_told_so(
    pair: list[Engine], serve: Callable[..., Served], path: str
) -> None:
    """One waits for an engine, one still sends its body: a 503, so that a client or a balancer asks elsewhere."""
    pair[0].control(decode_s=1)
    served = serve(pair[0].url, "--set", "listen.drain_s=0.3").ready()
    content = json.dumps(chat_body(max_tokens=1_000)).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: p\r\ncontent-length: {len(content)}\r\n\r\n".encode()
    with ExitStack() as stack:
        address = "127.0.0.1", served.port
        waiting, sending = (stack.enter_context(socket.create_connection(address, DEADLINE_S)) for _ in range(2))
        waiting.sendall(head + content)
        sending.sendall(head + content[:-1])
        until(lambda: in_flight(served) == 1)
        served.process.send_signal(signal.SIGTERM)
        answers = [connection.makefile("rb").read() for connection in (waiting, sending)]
    assert served.ended() == 0
    for answer in answers:
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert {b"retry-after: 1", b"connection: close"} <= set(head.lower().split(b"\r\n"))
        assert "ending" in json.loads(body)["error"]["message"]
    assert {record["outcome"] for record in served.records("prefixroute.serve.access")} == {CUT_OFF}
    until(lambda: pair[0].stats()["running"] == 0)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks at processes in /proc")
def test_it_ends_in_time_though_large_bodies_are_being_read(pair: list[Engine], serve: Callable[..., Served]) -> None:
    served = serve(pair[0].url, "--set", "listen.drain_s=0.3").ready()
    large = chat_body("word " * (LARGE_BYTES // 4), max_tokens=1)
    assert served.client.post("/v1/chat/completions", json=large).is_success
    (reader,) = children(served.process.pid)
    os.kill(reader, signal.SIGSTOP)
    url = f"{served.client.base_url}/v1/chat/completions"
    asked = at_once(3, lambda _: httpx.post(url, json=large, verify=PLAIN).status_code)
    open_requests = "prefixroute_serve_open_requests 3.0"
    until(lambda: open_requests in served.admin.get("/metrics").text)
    served.stop()
    assert [one.result() for one in asked] == [503] * 3
    until(lambda: not Path(f"/proc/{reader}").exists())


def test_a_second_signal_ends_it_at_once(pair: list[Engine], serve: Callable[..., Served]) -> None:
    pair[0].control(decode_s=0.05)
    served = serve(pair[0].url, "--set", "listen.drain_s=3600").ready()
    asked = streams(served, 2, 10_000)
    until(lambda: in_flight(served) == 2)
    served.process.send_signal(signal.SIGTERM)
    until(lambda: any("told to end" in record["message"] for record in served.said))
    served.process.send_signal(signal.SIGTERM)
    served.ended()
    wait(asked)


def test_each_request_is_a_line_that_says_nothing_of_its_words(
    pair: list[Engine], serve: Callable[..., Served]
) -> None:
    served = serve(pair[0].url).ready()
    body = chat_body("a secret", max_tokens=2)
    assert served.client.post("/v1/chat/completions", json=body, headers={"x-request-id": "r-1"}).is_success
    served.client.post("/v1/messages", content=b"{")
    served.stop()
    good, bad = served.records("prefixroute.serve.access")
    assert (good["request_id"], good["path"], good["status"], good["outcome"]) == (
        "r-1",
        "/v1/chat/completions",
        200,
        "served",
    )
    assert good["replica"] == pair[0].url
    assert (good["tried"], good["hedged"]) == (1, False)
    assert good["duration_ms"] >= good["first_byte_ms"] > 0
    assert (bad["status"], bad["outcome"], bad["replica"]) == (400, "no request", "")
    assert "secret" not in json.dumps(served.said)


def test_workers_share_a_socket_and_a_port_for_operators(pair: list[Engine], serve: Callable[..., Served]) -> None:
    served = serve(*(engine.url for engine in pair), "--workers", "2").ready(workers=2)
    asked = 0
    counts: list[float] = []

    def both_have_served() -> bool:
        nonlocal asked, counts
        with httpx.Client(base_url=served.client.base_url, verify=PLAIN) as client:  # a worker takes connections
            assert client.post("/v1/chat/completions", json=chat_body(str(asked), max_tokens=1)).is_success
        asked += 1
        lines = served.admin.get("/metrics").text.splitlines()
        counted = [line for line in lines if line.startswith("prefixroute_serve_requests_total{")]
        counts = [float(line.rpartition(" ")[2]) for line in counted]
        return len(counts) == 2

    until(both_have_served)
    text = served.admin.get("/metrics").text
    assert sum(counts) == asked
    assert text.count(" prefixroute_inflight gauge") == 1
    assert served.client.get("/metrics").status_code == 404
    held = served.admin.post("/replicas/drain", params={"replica": pair[0].url})
    states = [worker["replicas"][pair[0].url]["state"] for worker in held.json()["workers"].values()]
    assert (held.status_code, states) == (200, ["draining", "draining"])
    assert served.admin.post("/replicas/drain", params={"replica": "http://x:1"}).status_code == 404
    served.stop()


def test_workers_route_as_one(pair: list[Engine], serve: Callable[..., Served]) -> None:
    served = serve(*(engine.url for engine in pair), "--workers", "2").ready()

    def metric(name: str) -> list[float]:
        lines = served.admin.get("/metrics").text.splitlines()
        return [float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"prefixroute_{name}{{")]

    until(lambda: metric("peers") == [1, 1])
    prompts = [f"{number} and all of it again. " * 300 for number in range(6)]
    homes: dict[str, set[str]] = {prompt: set() for prompt in prompts}

    def both_have_served_all() -> bool:
        for prompt in prompts:
            with httpx.Client(base_url=served.client.base_url, verify=PLAIN) as client:  # a worker takes connections
                response = client.post("/v1/chat/completions", json=chat_body(prompt, max_tokens=1))
            homes[prompt].add(response.headers["x-replica"])
        return len([count for count in metric("serve_requests_total") if count >= len(prompts)]) == 2

    until(both_have_served_all)
    assert all(len(replicas) == 1 for replicas in homes.values())
    assert len(set.union(*homes.values())) == 2
    until(lambda: metric("inflight") == [0] * 4)


def children(pid: int) -> list[int]:
    """Return the children that any thread of a process has started."""
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for thread in threads for child in thread.read_text().split()]


def workers_of(served: Served) -> list[int]:
    """Return the workers; beside them multiprocessing has a process of its own."""
    return [pid for pid in children(served.process.pid) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks at processes in /proc")
def test_a_worker_that_dies_is_started_again_and_none_outlives_its_supervisor(
    pair: list[Engine], serve: Callable[..., Served]
) -> None:
    served = serve(pair[0].url, "--workers", "2").ready(workers=2)
    before = workers_of(served)
    assert len(before) == 2
    os.kill(before[0], signal.SIGKILL)
    until(lambda: len(set(workers_of(served)) - {before[0]}) == 2)
    until(lambda: len(served.admin.get("/healthz").json()["workers"]) == 2)
    assert served.client.post("/v1/chat/completions", json=chat_body(max_tokens=1)).is_success
    large = chat_body("word " * (LARGE_BYTES // 4), max_tokens=1)
    assert served.client.post("/v1/chat/completions", json=large).is_success
    left = workers_of(served)
    left += [child for worker in left for child in children(worker)]
    assert len(left) == 3  # one of them has a process that reads large bodies
    served.process.kill()
    served.ended()
    until(lambda: not any(Path(f"/proc/{pid}").exists() and _runs(pid) for pid in left))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks at processes in /proc")
def test_what_a_killed_worker_had_in_flight_is_given_back(pair: list[Engine], serve: Callable[..., Served]) -> None:
    for engine in pair:
        engine.control(decode_s=1)  # until all of them are there
    served = serve(*(engine.url for engine in pair), "--workers", "2").ready(workers=2)
    before = workers_of(served)
    asked = streams(served, 30, 30)

    def booked() -> set[int]:
        """Return what each worker believes to be in flight at all engines."""
        workers = served.admin.get("/replicas").json()["workers"].values()
        return {sum(one["in_flight"] for one in worker["replicas"].values()) for worker in workers}

    until(lambda: booked() == {30})
    os.kill(before[0], signal.SIGKILL)
    for engine in pair:
        engine.control(decode_s=0)
    whole = [one for one in asked if one.result().endswith(b"data: [DONE]\n\n")]
    assert 0 < len(whole) < 30
    until(lambda: booked() == {0})


def _runs(pid: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_engines_without_a_gpu_come_with_one_command(serve: Callable[..., Served]) -> None:
    served = serve("--fake", "2").ready()
    body = chat_body("All of it again. " * 500, max_tokens=2)

    def is_hit() -> bool:
        answers = [served.client.post("/v1/chat/completions", json=body) for _ in range(2)]
        cached = answers[1].json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        return answers[0].headers["x-replica"] == answers[1].headers["x-replica"] and cached > 2_000

    until(is_hit)  # feeds that join after the first request forget it
    answer = served.client.post("/v1/responses", json={"model": "fake", "input": "hello", "max_output_tokens": 2})
    assert answer.status_code == 200
    assert "prefixroute_feed_" in served.admin.get("/metrics").text  # their KV events are followed
    served.stop()


def test_an_address_in_use_is_the_users_mistake(pair: list[Engine]) -> None:
    port = pair[0].port
    command = [sys.executable, "-m", "prefixroute", "serve", pair[0].url, "--port", str(port)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert re.fullmatch(rf"error: .*127\.0\.0\.1:{port}: .*", ended.stderr.splitlines()[-1])


def test_metrics_of_workers_become_one_text() -> None:
    one, other = Metrics(), Metrics()
    one.retries.labels('a "b"').inc(2)
    other.retries.labels("c").inc()
    other.overhead.observe(0.003)
    text = merged({"0": one.text(), "1": other.text()})
    lines = text.splitlines()
    assert 'prefixroute_serve_retries_total{why="a \\"b\\"",worker="0"} 2.0' in lines
    assert 'prefixroute_serve_retries_total{why="c",worker="1"} 1.0' in lines
    assert 'prefixroute_serve_overhead_seconds_bucket{le="0.005",worker="1"} 1.0' in lines
    assert text.count(" prefixroute_serve_overhead_seconds histogram") == 1
    assert merged({}) == ""
