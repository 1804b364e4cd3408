"""Engines' metrics become load reports; what does not answer is asked less often and told."""

from __future__ import annotations

import asyncio
import errno
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, ClassVar

import pytest

from prefixroute import ConfigError, EventError, Router
from prefixroute.live import LoadPoller, MetricsSource, PollOptions, read_metrics
from prefixroute.live.metrics import MAX_SERIES
from waiting import until

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1000.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 400.0
vllm:e2e_request_latency_seconds_bucket{engine="0",le="0.3",model_name="m"} 0.0
"""
OLD_VLLM = 'vllm:num_requests_running{model_name="m"} 2\nvllm:gpu_cache_usage_perc{model_name="m"} 0.5\n'
SGLANG = """\
sglang:num_running_reqs{model_name="m"} 5.0
sglang:num_queue_reqs{model_name="m"} 6.0
sglang:token_usage{model_name="m"} 0.28
sglang:cached_tokens_total{cache_source="device"} 10
sglang:cached_tokens_total{cache_source="host"} 20
sglang:prompt_tokens_total{model_name="m"} 100
"""
TRTLLM = "trtllm_num_requests_running 1\ntrtllm_num_requests_waiting 0\ntrtllm_kv_cache_utilization 0.62\n"
TRTLLM += "trtllm_kv_cache_reused_blocks_total 9\n"

SGLANG_RANK = 'model_name="m",engine_type="unified",tp_rank="{tp}",pp_rank="{pp}",moe_ep_rank="{tp}"'
ALL_SCHEDULERS = "".join(
    f"sglang:num_running_reqs{{{SGLANG_RANK.format(tp=tp, pp=pp)}}} {5 - pp}\n"
    f"sglang:num_queue_reqs{{{SGLANG_RANK.format(tp=tp, pp=pp)}}} 6\n"
    f"sglang:token_usage{{{SGLANG_RANK.format(tp=tp, pp=pp)}}} 0.28\n"
    for tp in range(4)
    for pp in range(2)
)
DP_ATTENTION = "".join(
    f'sglang:num_running_reqs{{{SGLANG_RANK.format(tp=tp, pp=0)},dp_rank="{tp // 2}"}} {10 * (1 + tp // 2)}\n'
    for tp in range(4)
)
PRIORITIES = "".join(
    f'sglang:num_queue_reqs{{{SGLANG_RANK.format(tp=0, pp=0)},priority="{priority}"}} {count}\n'
    for priority, count in (("", 7), ("1", 3), ("5", 4))
)
QUICK = PollOptions(interval_s=0.01, timeout_s=1.0, max_interval_s=0.05)


def _read(text: str, **options: Any) -> tuple[Any, ...]:
    one = read_metrics(text, **options)
    return (one.engine, one.running, one.waiting, one.kv_use, one.hit_tokens, one.prompt_tokens)


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        (VLLM, {}, ("vllm", 7, 1, 0.75, 400, 1000)),
        (VLLM, {"rank": 1}, ("vllm", 4, 0, 0.75, None, None)),
        (OLD_VLLM, {"rank": 1}, ("vllm", 2, None, 0.5, None, None)),
        (SGLANG, {}, ("sglang", 5, 6, 0.28, 30, 100)),
        (SGLANG, {"engine": "sglang"}, ("sglang", 5, 6, 0.28, 30, 100)),
        (ALL_SCHEDULERS, {}, ("sglang", 5, 6, 0.28, None, None)),
        (DP_ATTENTION, {}, ("sglang", 30, None, None, None, None)),
        (DP_ATTENTION, {"rank": 1}, ("sglang", 20, None, None, None, None)),
        (PRIORITIES, {}, ("sglang", None, 7, None, None, None)),
        (TRTLLM, {}, ("tensorrt-llm", 1, 0, 0.62, None, None)),
        ("vllm:num_requests_running NaN\nvllm:num_requests_waiting 2\n", {}, ("vllm", None, 2, None, None, None)),
        ("vllm:kv_cache_usage_perc 1.2\n", {}, ("vllm", None, None, 1.0, None, None)),
    ],
)
def test_metrics_are_read(text: str, options: dict[str, Any], expected: tuple[Any, ...]) -> None:
    assert _read(text, **options) == expected


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("", None),
        ("go_gc 1", None),
        (VLLM, "sglang"),
        ("vllm:num_requests_running{ 3", None),
        ('vllm:num_requests_running{model_name=, ="m"} 3', None),
        ("vllm:other 3", "vllm"),
        ("".join(f'vllm:num_requests_running{{r="{n}"}} 1\n' for n in range(MAX_SERIES + 1)), None),
    ],
)
def test_what_is_no_load_is_refused(text: str, engine: str | None) -> None:
    with pytest.raises(EventError):
        read_metrics(text, engine)


def test_wrong_settings_are_refused() -> None:
    for wrong in (
        lambda: MetricsSource("http://h", engine="x"),
        lambda: MetricsSource("http://h", rank=-1),
        lambda: PollOptions(interval_s=0),
        lambda: read_metrics(VLLM, "x"),
    ):
        with pytest.raises(ConfigError):
            wrong()


@pytest.mark.parametrize(
    ("source", "addresses"),
    [
        (MetricsSource("http://h:1"), ["http://h:1/metrics", "http://h:1/prometheus/metrics"]),
        (MetricsSource("http://h:1", "vllm"), ["http://h:1/metrics"]),
        (MetricsSource("http://h:1/", "tensorrt-llm"), ["http://h:1/prometheus/metrics"]),
        (MetricsSource("http://h:1/own/metrics"), ["http://h:1/own/metrics"]),
    ],
)
def test_addresses(source: MetricsSource, addresses: list[str]) -> None:
    assert list(source.addresses) == addresses


@pytest.mark.parametrize("first", [None, "[]"], ids=["no page", "a page of another form"])
def test_a_plain_url_finds_where_the_engine_serves_its_metrics(first: str | None) -> None:
    asked: list[str] = []

    async def fetch(address: str) -> str:
        asked.append(address)
        await asyncio.sleep(0)
        if address == "http://a/prometheus/metrics":
            return TRTLLM
        if first is None:
            raise EventError("404")
        return first

    async def run() -> None:
        async with LoadPoller(Router(["a"]), {"a": "http://a"}, options=QUICK, fetch=fetch) as poller:
            async with asyncio.timeout(20):
                while poller.stats()["a"]["polls"] < 4:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
        told = poller.stats()["a"]
        assert (told["engine"], told["failures"], told["note"]) == ("tensorrt-llm", 0, "")

    asyncio.run(run())
    assert asked[0] == "http://a/metrics"
    assert set(asked[1:]) == {"http://a/prometheus/metrics"}


class _Handler(BaseHTTPRequestHandler):
    texts: ClassVar[dict[str, str]] = {}

    def do_GET(self) -> None:
        text = self.texts.get(self.path)
        self.send_response(200 if text is not None else 500)
        self.end_headers()
        self.wfile.write((text or "").encode())

    def log_message(self, *_: object) -> None:
        pass


def test_loads_reach_the_router_over_http() -> None:
    _Handler.texts = {"/a/metrics": VLLM, "/b/metrics": SGLANG}
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    base = f"http://127.0.0.1:{server.server_port}"
    router = Router(["a", "b"], load="reported_requests")
    for name in ("c", "d"):
        router.add_replica(name)
    kept: dict[str, dict[str, float | None]] = {}

    class Sink:
        """A router that shows what it was told."""

        def update_load(self, name: str, **loads: float | None) -> bool:
            kept[name] = loads
            return router.update_load(name, **loads)

    sources = {"a": f"{base}/a", "b": f"{base}/b", "c": f"{base}/c", "d": "http://127.0.0.1:1"}
    try:
        with LoadPoller(Sink(), sources, options=QUICK) as poller:
            until(lambda: all(one["polls"] > 2 for one in poller.stats().values()))
            stats = poller.stats()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert kept["a"] == {"running": 7, "waiting": 1, "kv_use": 0.75}
    assert kept["b"] == {"running": 5, "waiting": 6, "kv_use": 0.28}
    assert set(kept) == {"a", "b"}
    assert stats["a"]["hit_tokens"] == 400
    assert stats["a"]["age_s"] is not None
    assert stats["a"]["failures"] == 0
    assert stats["c"]["failures"] > 1
    assert "500" in stats["c"]["note"]
    assert (stats["d"]["engine"], stats["d"]["age_s"]) == (None, None)


def test_what_ends_the_thread_is_raised_in_the_caller_s(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left() -> Any:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(asyncio.events, "new_event_loop", none_left)
    poller = LoadPoller(Router(["a"]), {"a": "http://a"}, options=QUICK)
    with pytest.raises(OSError, match=rf"\[Errno {errno.EMFILE}\]"):
        poller.start()
    poller.close()


def test_what_stops_the_start_leaves_a_poller_that_can_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: Thread) -> None:
        raise KeyboardInterrupt

    poller = LoadPoller(Router(["a"]), {"a": "http://a"}, options=QUICK)
    monkeypatch.setattr(Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        poller.start()
    poller.close()


@pytest.mark.parametrize("error", [OSError("refused"), ValueError("of a fetch of one's own")], ids=["network", "any"])
def test_it_runs_as_a_task_and_backs_off(error: Exception) -> None:
    asked: list[str] = []

    async def fetch(address: str) -> str:
        asked.append(address)
        if address.startswith("http://bad"):
            raise error
        await asyncio.sleep(0)
        return TRTLLM

    async def run() -> None:
        router = Router(["a", "b", "gone"])
        router.remove_replica("gone")
        sources = {"a": "http://a", "b": "http://bad", "gone": "http://gone"}
        options = PollOptions(interval_s=0.001, max_interval_s=0.5)
        async with LoadPoller(router, sources, options=options, fetch=fetch) as poller:
            async with asyncio.timeout(20):
                while poller.stats()["a"]["polls"] < 60:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
        assert asked.count("http://bad/metrics") < 20
        assert asked.count("http://gone/metrics") == 1
        assert poller.stats()["a"]["kv_use"] == 0.62
        assert poller.stats()["b"]["note"] == str(error)

    asyncio.run(run())
