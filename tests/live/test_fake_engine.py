"""The fake engine: OpenAI's API over the simulator's engine, with KV events, metrics and faults."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import msgpack
import pytest

from prefixroute import ConfigError, hash_blocks
from prefixroute.live import KvFeed, read_metrics
from prefixroute.sim.engine import EngineModel
from prefixroute.testing import (
    Behaviour,
    EngineCore,
    EngineRequest,
    EngineSettings,
    EventEncoder,
    FakeEngine,
    PlainCost,
    render,
    tokenize,
)
from waiting import until

FAST = Behaviour(prefill_s_per_1k=0, decode_s=0)


@pytest.fixture(scope="module")
def engine() -> Iterator[FakeEngine]:
    with FakeEngine(EngineSettings(format="sglang", load="tcp://127.0.0.1:*", adapters=("sql",)), FAST) as one:
        yield one


@pytest.fixture
def client(engine: FakeEngine) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=engine.url, timeout=30, trust_env=False) as one:
        one.post("/control", json={"status": -1, "healthy": 1, "decode_s": 0, "prefill_s_per_1k": 0})
        one.post("/reset_prefix_cache").raise_for_status()
        yield one


def cached(body: dict[str, Any]) -> int:
    return body["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_a_repeated_prompt_is_cached_up_to_its_last_token(client: httpx.Client) -> None:
    body = {"prompt": list(range(1, 65)), "max_tokens": 3}
    first, second = (client.post("/v1/completions", json=body).json() for _ in range(2))
    assert (cached(first), cached(second)) == (0, 48)
    assert second["usage"]["completion_tokens"] == 3
    assert second["choices"][0]["text"] == " w0 w1 w2"


@pytest.mark.parametrize("limit", ["1e400", '"many"', "[1]"])
def test_a_length_that_is_none_is_a_bad_request(client: httpx.Client, limit: str) -> None:
    body = f'{{"prompt": [1, 2, 3], "max_tokens": {limit}}}'
    assert client.post("/v1/completions", content=body).status_code == 400


def test_the_next_turn_of_a_chat_finds_the_answer(client: httpx.Client) -> None:
    messages = [{"role": "user", "content": "tell me " * 100}]
    said = client.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 200}).json()
    answer = said["choices"][0]["message"]
    again = [*messages, answer, {"role": "user", "content": "more"}]
    after = client.post("/v1/chat/completions", json={"messages": again}).json()
    shared = len(tokenize(render(messages) + answer["content"]))
    assert cached(after) >= (shared - 1) // 16 * 16 - 16


def test_a_stream_has_an_event_for_each_token_and_usage_if_asked(client: httpx.Client) -> None:
    body = {"prompt": "hello", "max_tokens": 4, "stream": True, "stream_options": {"include_usage": True}}
    text = client.post("/v1/completions", json=body).text
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert [chunk["choices"][0]["text"] for chunk in chunks[:4]] == [" w0", " w1", " w2", " w3"]
    assert chunks[-1]["usage"]["completion_tokens"] == 4
    assert len(chunks) == 6


def test_an_answer_can_be_dictated_and_told_as_token_ids(client: httpx.Client) -> None:
    body = {"prompt": list(range(40)), "output_token_ids": list(range(100, 140)), "return_token_ids": True}
    said = client.post("/v1/completions", json=body).json()
    assert said["choices"][0]["token_ids"] == list(range(100, 140))
    longer = {"prompt": [*range(40), *range(100, 140), 7], "max_tokens": 1}
    assert cached(client.post("/v1/completions", json=longer).json()) == 64


def test_adapters_and_salts_share_no_blocks(client: httpx.Client) -> None:
    body = {"prompt": list(range(64)), "max_tokens": 1}
    for extra in ({}, {"model": "sql"}, {"cache_salt": "t"}, {"model": "sql", "cache_salt": "t"}):
        assert cached(client.post("/v1/completions", json=body | extra).json()) == 0
    assert cached(client.post("/v1/completions", json=body | {"cache_salt": "t"}).json()) == 48


@pytest.mark.parametrize("body", [{}, {"prompt": []}, {"prompt": ""}, {"prompt": ["a"]}, [], {"prompt": 3}])
def test_what_is_no_request_is_refused(client: httpx.Client, body: Any) -> None:
    assert client.post("/v1/completions", json=body).status_code == 400


def test_faults_on_demand(client: httpx.Client) -> None:
    assert client.post("/control", json={"status": 503, "healthy": 0}).json()["status"] == 503
    answer = client.post("/v1/completions", json={"prompt": "x"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert client.get("/health").status_code == 503
    assert client.post("/control", json={"other": 1}).status_code == 400


def test_metrics_and_server_information_are_those_of_the_engine(engine: FakeEngine, client: httpx.Client) -> None:
    for _ in range(2):
        client.post("/v1/completions", json={"prompt": list(range(64)), "max_tokens": 1})
    reading = read_metrics(client.get("/metrics").text)
    assert (reading.engine, reading.running, reading.waiting) == ("sglang", 0, 0)
    assert reading.hit_tokens is not None
    assert KvFeed.from_server_info(engine.url).addresses == engine.feed.addresses
    assert KvFeed.from_server_info(engine.url).block_size == 16
    assert {model["id"] for model in client.get("/v1/models").json()["data"]} == {"fake", "sql"}


def test_a_client_that_leaves_ends_its_request(client: httpx.Client, engine: FakeEngine) -> None:
    client.post("/control", json={"prefill_s_per_1k": 1e9})
    with pytest.raises(httpx.ReadTimeout):
        client.post("/v1/completions", json={"prompt": list(range(64))}, timeout=0.05)
    until(lambda: client.get("/stats").json()["running"] == 0)
    client.post("/control", json={"prefill_s_per_1k": 0})
    assert client.post("/v1/completions", json={"prompt": list(range(64)), "max_tokens": 1}).status_code == 200


def test_a_killed_engine_comes_back_empty_at_its_ports() -> None:
    with FakeEngine(behaviour=FAST) as one:
        body = {"prompt": list(range(64)), "max_tokens": 1}
        url, feed = one.url, one.feed
        httpx.post(f"{url}/v1/completions", json=body, trust_env=False)
        one.restart()
        assert (one.url, one.feed) == (url, feed)
        assert cached(httpx.post(f"{url}/v1/completions", json=body, trust_env=False).json()) == 0


def test_an_engine_dies_in_the_middle_of_a_stream() -> None:
    with FakeEngine(behaviour=Behaviour(prefill_s_per_1k=0, decode_s=0.001, die_after=3)) as one:
        body = {"prompt": "x", "max_tokens": 50, "stream": True}
        with pytest.raises(httpx.HTTPError):
            httpx.post(f"{one.url}/v1/completions", json=body, trust_env=False)


# -- the core, in virtual time -----------------------------------------------------------------------------------


def _core(**options: Any) -> tuple[EngineCore, list[list[Any]]]:
    batches: list[list[Any]] = []
    core = EngineCore(
        EngineModel(PlainCost(1.0, 0.1)),
        capacity_tokens=options.pop("capacity_tokens", 160),
        block_size=16,
        publish=lambda batch: batches.append(msgpack.unpackb(batch)),
        encoder=EventEncoder(16, clock=lambda: 1.5, **options),
    )
    return core, batches


def _request(tokens: list[int], output: int = 1, **calls: Any) -> EngineRequest:
    return EngineRequest(tokens, [*tokens, *range(5000, 5000 + output)], output, **calls)


def test_time_passes_as_it_is_told_and_tokens_come_when_due() -> None:
    core, _ = _core()
    heard: list[str] = []
    calls = {"first_token": lambda: heard.append("first"), "finished": lambda: heard.append("done")}
    core.submit(_request(list(range(64)), 3, **calls))
    core.advance(0.063)
    assert heard == []
    core.advance(0.065)
    assert heard == ["first"]
    core.advance(0.2639)
    assert heard == ["first"]
    core.advance(0.27)
    assert heard == ["first", "done"]
    assert core.next_at is None


def test_events_name_every_block_with_its_tokens_and_its_parent() -> None:
    core, batches = _core(rank=2)
    core.submit(_request(list(range(40)), 20))
    core.advance(100)
    assert [batch[0] for batch in batches] == [1.5] * len(batches)
    assert {batch[2] for batch in batches} == {2}
    stored = [event for batch in batches for event in batch[1]]
    assert [event["type"] for event in stored] == ["BlockStored", "BlockStored"]
    assert stored[0]["token_ids"] == list(range(32))
    assert stored[1]["parent_block_hash"] == stored[0]["block_hashes"][-1]
    assert stored[1]["token_ids"] == [*range(32, 40), *range(5000, 5008)]
    assert stored[0]["extra_keys"] == [None, None]


@pytest.mark.parametrize("form", ["vllm", "sglang"])
def test_events_sum_up_to_what_the_cache_holds(form: str) -> None:
    core, batches = _core(format=form)
    for number in range(30):
        start = number % 7 * 1000
        core.submit(_request(list(range(start, start + 30 + number)), number))
        core.advance(core.now + 0.05)
    core.advance(1_000)
    held: set[int] = set()
    for batch in batches:
        for event in batch[1]:
            (held.update if event["type"] == "BlockStored" else held.difference_update)(event["block_hashes"])
    assert len(held) * 16 == core.held_tokens
    assert all(-(2**63) <= block < 2**63 if form == "sglang" else block >= 0 for block in held)
    assert core.reset()
    assert batches[-1][1] == [{"type": "AllBlocksCleared"}]
    assert core.hit(list(range(100))) == 0


def test_requests_that_share_blocks_in_flight_keep_their_contents() -> None:
    core, batches = _core(capacity_tokens=64)
    prompt = list(range(48))
    core.submit(_request(prompt))
    core.submit(_request(prompt, 20))
    core.submit(_request([*prompt[:32], *range(900, 916)], 3))
    core.advance(100)
    assert not core.waiting
    assert sum(event["type"] == "BlockStored" for batch in batches for event in batch[1]) >= 2


def test_texts_of_any_length_are_told_whole() -> None:
    with FakeEngine(behaviour=Behaviour(0, 0)) as engine, httpx.Client(base_url=engine.url) as client:
        for length in range(56, 72):  # the prompt, and the answer's short words, end in any part of a token and block
            body = {"prompt": "x" * length, "max_tokens": 16}
            assert client.post("/v1/completions", json=body).json()["usage"]["completion_tokens"] == 16
        assert client.get("/health").is_success


def test_a_request_whose_client_leaves_makes_room_for_the_others() -> None:
    core, batches = _core(capacity_tokens=16 * 16)
    heard: list[str] = []
    core.submit(_request(list(range(16)), 200, finished=lambda: heard.append("long")))
    leaves = core.submit(_request(list(range(1_000, 1_064)), 100, finished=lambda: heard.append("left")))
    waits = core.submit(_request(list(range(2_000, 2_200)), 2, finished=lambda: heard.append("waited")))
    core.advance(1.0)
    assert (core.running, core.waiting) == (2, 1)
    core.leave(leaves)
    core.leave(waits)
    assert (core.running, core.waiting) == (1, 0)
    core.submit(_request(list(range(3_000, 3_100)), 2, finished=lambda: heard.append("next")))
    core.advance(3.0)
    assert heard == ["next"]
    assert leaves.ended
    assert core.hit(list(range(1_000, 1_065))) > 0  # what was computed stays cached
    core.advance(100.0)
    assert heard == ["next", "long"]
    assert core.kv_use == 0
    assert core.reset()
    assert batches[-1][1] == [{"type": "AllBlocksCleared"}]


def test_settings_are_checked() -> None:
    for wrong in (
        lambda: EngineSettings(format="other"),
        lambda: EngineSettings(speed=0),
        lambda: EngineSettings(block_size=0),
        lambda: Behaviour(decode_s=-1),
        lambda: Behaviour(status="x"),
        lambda: Behaviour().changed([]),
    ):
        with pytest.raises(ConfigError):
            wrong()


def test_tokens_are_four_bytes_each() -> None:
    assert tokenize("abcdefgh") == tokenize("abcd") + tokenize("efgh")
    assert len(tokenize("abcde")) == 2
    assert len(hash_blocks(tokenize("x" * 128), 16)) == 2
    assert render([{"role": "user", "content": [{"type": "text", "text": "hi"}]}]) == "[user]\nhi\n[assistant]\n"
