"""Servers on several hosts, which tell each other by Redis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import Engine, MakeProxy, chat_body
from redis_server import RedisServer

from prefixroute import ConfigError
from prefixroute.serve import Settings
from waiting import until

KEY = 1_234_567_890_123_456_789


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    yield server
    server.close()


def test_servers_route_as_one_and_go_on_without_the_server_between_them(
    pair: list[Engine], make_proxy: MakeProxy, redis: RedisServer
) -> None:
    urls = [engine.url for engine in pair]
    one, other = (make_proxy(urls, routing__peers=redis.url, routing__hash_key=KEY) for _ in range(2))
    content = "all of it again " * 500
    home = one.chat(content, max_tokens=1).headers["x-replica"]
    until(lambda: other.decide(content).hit_tokens > 1_000)
    assert other.decide(content).replica == home
    pair[0].control(prefill_s_per_1k=3_600_000)
    pair[1].control(prefill_s_per_1k=3_600_000)
    with one.opened(chat_body("held")):
        until(lambda: sum(other.load().values()) == 1)
    until(lambda: one.idle() and other.idle())
    for engine in pair:
        engine.control(prefill_s_per_1k=0)
    redis.kill()
    assert one.chat("alone", max_tokens=1).is_success
    assert other.chat("alone", max_tokens=1).is_success
    assert one.client.get("/metrics").text.count("\nprefixroute_peers ") == 1


def test_peers_need_a_key() -> None:
    with pytest.raises(ConfigError, match=r"routing\.peers.*routing\.hash_key"):
        Settings.of({"routing.peers": "redis://a"})
