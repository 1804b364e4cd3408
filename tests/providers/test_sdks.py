"""The runtime with the real `anthropic` and `openai` packages, over real HTTP, against a server that caches as documented."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest
from anthropic import AsyncAnthropic
from anthropic.types import Message
from examples.providers.fake_api import FakeAPI, serving
from openai import AsyncOpenAI

from prefixroute import PreWarmer, fan_out
from prefixroute.providers import Account, Usage, find_model

MODEL = "claude-sonnet-5-5"
DOCUMENT = "All the facts about it. " * 600  # 3,600 tokens
BLOCK = {"type": "text", "text": DOCUMENT, "cache_control": {"type": "ephemeral"}}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[FakeAPI, Clock, str]]:
    clock = Clock()
    api = FakeAPI(clock, ttft_s=0.02)
    with serving(api) as url:
        yield api, clock, url


@pytest.fixture
def api(served: tuple[FakeAPI, Clock, str]) -> tuple[FakeAPI, Clock, str]:
    served[0].claude.entries.clear()
    served[0].openai.machines.clear()
    served[0].openai.recent.clear()
    served[0].breakpoints.entries.clear()
    served[0].failing = 0
    return served


def claude(url: str, workspace: str = "w") -> AsyncAnthropic:
    return AsyncAnthropic(api_key=workspace, base_url=url, max_retries=0)


async def ask(client: AsyncAnthropic, question: str, begun: asyncio.Event | None = None, **given: object) -> Message:
    shared = {"model": MODEL, "system": [BLOCK], "max_tokens": 50} | given
    async with client.messages.stream(messages=[{"role": "user", "content": question}], **shared) as stream:
        async for _ in stream:
            if begun is not None:
                begun.set()
        return await stream.get_final_message()


def read_written(messages: list[Message]) -> list[tuple[bool, bool]]:
    return [(usage.read_tokens > 0, usage.written > 0) for usage in map(Usage.of, messages)]


async def test_all_at_once_all_write_and_one_then_nine_read_nine(api: tuple[FakeAPI, Clock, str]) -> None:
    async with claude(api[2]) as client:
        at_once = await asyncio.gather(*(ask(client, str(number)) for number in range(10)))
        assert read_written(at_once) == [(False, True)] * 10
        api[0].claude.entries.clear()
        begun = asyncio.Event()
        calls = [partial(ask, client, str(number), begun) for number in range(10)]
        answers = await fan_out(calls[0], calls[1:], started=begun)
        assert read_written(answers) == [(False, True)] + [(True, False)] * 9
        dollars = [sum(Usage.of(one).usd(find_model(MODEL)) for one in many) for many in (at_once, answers)]
        assert dollars[0] > 5 * dollars[1]


async def test_when_the_first_is_refused_the_next_writes(api: tuple[FakeAPI, Clock, str]) -> None:
    api[0].failing, before = 2, api[0].requests
    begun = asyncio.Event()
    async with claude(api[2]) as client:
        calls = [partial(ask, client, str(number), begun) for number in range(6)]
        answers = await fan_out(calls[0], calls[1:], started=begun)
    assert [type(answer).__name__ for answer in answers[:2]] == ["OverloadedError"] * 2
    assert read_written(answers[2:]) == [(False, True)] + [(True, False)] * 3
    assert api[0].requests - before == 6


async def test_cancelling_over_http_leaves_nothing_behind(api: tuple[FakeAPI, Clock, str]) -> None:
    begun, before = asyncio.Event(), api[0].requests
    async with claude(api[2]) as client:
        calls = [partial(ask, client, str(number), begun) for number in range(20)]
        task = asyncio.create_task(fan_out(calls[0], calls[1:], started=begun, limit=2))
        await begun.wait()
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        sent = api[0].requests - before
        await asyncio.sleep(0.05)
        assert api[0].requests - before == sent <= 3


async def test_an_entry_lives_five_minutes_from_its_last_use(api: tuple[FakeAPI, Clock, str]) -> None:
    async with claude(api[2]) as client:
        found = []
        for gap in (0, 299, 299, 301):
            api[1].now += gap
            found.append(await ask(client, "Why?"))
        assert read_written(found) == [(False, True), (True, False), (True, False), (False, True)]


async def test_a_workspace_a_model_and_a_thinking_setting_have_entries_of_their_own(
    api: tuple[FakeAPI, Clock, str],
) -> None:
    async with claude(api[2]) as client, claude(api[2], "other") as other:
        await ask(client, "Why?")
        found = [
            await ask(client, "How?"),
            await ask(other, "How?"),
            await ask(client, "How?", model="claude-opus-5-5"),
            await ask(client, "How?", thinking={"type": "adaptive"}),
        ]
    assert [usage.read_tokens > 0 for usage in map(Usage.of, found)] == [True, False, False, False]


async def test_a_prefix_under_the_models_minimum_is_not_cached(api: tuple[FakeAPI, Clock, str]) -> None:
    short = {**BLOCK, "text": "word " * 1_600}  # about 2,000 tokens
    async with claude(api[2]) as client:
        for model, cached in (("claude-opus-4-6", False), ("claude-sonnet-5-5", True)):
            found = [await ask(client, question, model=model, system=[short]) for question in ("Why?", "How?")]
            assert [Usage.of(one).written > 0 for one in found] == [cached, False]
            assert (Usage.of(found[1]).read_tokens > 0) is cached
            assert find_model(model).is_cacheable(2_010) is cached


async def test_prewarming_and_keeping_alive(api: tuple[FakeAPI, Clock, str]) -> None:
    async with claude(api[2]) as client:

        async def ping() -> None:
            messages = [{"role": "user", "content": "-"}]
            await client.messages.create(model=MODEL, system=[BLOCK], messages=messages, max_tokens=0)

        done = asyncio.Event()

        async def sleep(seconds: float) -> None:
            api[1].now += seconds
            await asyncio.sleep(0.001)
            if kept.pings >= 5:
                done.set()

        await ping()
        kept = PreWarmer(ping, find_model(MODEL), 3_600, clock=api[1], sleep=sleep)
        async with kept:
            kept.used()
            await done.wait()
        assert read_written([await ask(client, "Why?")]) == [(True, False)]


async def test_the_account_names_why_calls_missed(api: tuple[FakeAPI, Clock, str]) -> None:
    account = Account(find_model(MODEL))
    async with claude(api[2]) as client, claude(api[2], "other") as other:

        async def one(by: AsyncAnthropic, scope: str, system: list[dict[str, object]]) -> str:
            body = {"model": MODEL, "system": system, "messages": [{"role": "user", "content": "Why?"}]}
            started = api[1].now
            message = await by.messages.create(**body, max_tokens=5)
            return account.add(message, prompt=body, started_s=started, session=scope, scope=scope).reason

        changed = [{**BLOCK, "text": DOCUMENT[:4_000] + "Another thing. " + DOCUMENT[4_000:]}]
        assert await one(client, "w", [BLOCK]) == ""
        assert await one(client, "w", [BLOCK]) == ""
        assert await one(other, "other", [BLOCK]) == "another workspace"
        api[1].now += 400
        assert await one(client, "w", [BLOCK]) == "expired"
        assert await one(client, "w", changed) == "prefix changed"
    assert 950 < (account.worst[0].position or account.worst[1].position or account.worst[2].position or 0) < 1_050
    assert account.lost_usd > 0


async def test_openai_usage_and_one_key_for_each_machine(api: tuple[FakeAPI, Clock, str]) -> None:
    async with AsyncOpenAI(api_key="k", base_url=f"{api[2]}/v1", max_retries=0) as client:

        async def one(question: str, key: str) -> Usage:
            messages = [{"role": "system", "content": DOCUMENT}, {"role": "user", "content": question}]
            return Usage.of(
                await client.chat.completions.create(model="gpt-5", messages=messages, prompt_cache_key=key)
            )

        found = [await one(str(number), "a") for number in range(17)]
        assert [usage.read_tokens for usage in found] == [0] + [3_584] * 14 + [0] + [3_584]
        assert (await one("x", "b")).read_tokens == 0

        begun = asyncio.Event()

        async def stream(number: int) -> Usage:
            messages = [{"role": "system", "content": DOCUMENT}, {"role": "user", "content": str(number)}]
            last = None
            async for chunk in await client.chat.completions.create(
                model="gpt-5",
                messages=messages,
                prompt_cache_key="c",
                stream=True,
                stream_options={"include_usage": True},
            ):
                begun.set()
                last = chunk
            return Usage.of(last)

        calls = [partial(stream, number) for number in range(5)]
        answers = await fan_out(calls[0], calls[1:], started=begun)
        assert [usage.read_tokens > 0 for usage in answers] == [False] + [True] * 4


async def test_exact_breakpoints_lifetimes_and_prewarming_of_the_responses_api(api: tuple[FakeAPI, Clock, str]) -> None:
    marked = {"type": "input_text", "text": DOCUMENT, "prompt_cache_breakpoint": {"mode": "explicit"}}
    async with AsyncOpenAI(api_key="k", base_url=f"{api[2]}/v1", max_retries=0) as client:

        async def one(question: str, **options: object) -> Usage:
            content = [marked, {"type": "input_text", "text": question}]
            response = await client.responses.create(
                model="gpt-5.6",
                input=[{"role": "user", "content": content}],
                extra_body={"prompt_cache_options": {"mode": "explicit", **options}},
            )
            assert bool(response.output) is not bool(options.get("prewarm"))
            return Usage.of(response)

        warm = await one("-", prewarm=True, ttl="12h")
        assert warm.write_tokens == {"12h": warm.written}
        assert warm.written > 3_500
        assert (await one("Why?")).read_tokens == warm.written
        api[1].now += 40_000
        assert (await one("How?")).read_tokens == warm.written
        api[1].now += 43_201
        late = await one("How?")
        assert (late.read_tokens, late.write_tokens) == (0, {"30m": warm.written})
        assert late.usd(find_model("gpt-5.6")) < warm.usd(find_model("gpt-5.6"))
