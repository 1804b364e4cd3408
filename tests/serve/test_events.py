"""The proxy whose Router follows the engines' KV events, as ``prefixroute serve --fake 2`` runs it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from starlette.testclient import TestClient

from prefixroute.router import Router
from prefixroute.serve import Settings, create_app
from prefixroute.testing import Behaviour, EngineSettings, FakeEngine, render, tokenize
from waiting import until

MESSAGES = [{"role": "user", "content": "All of it again. " * 600}]
HIT = 2544
"""Tokens of the prompt's full blocks but the last."""


class Served:
    """A proxy before engines, and what it holds of them."""

    def __init__(self, client: TestClient, router: Router, engines: list[FakeEngine]) -> None:
        self.router, self.engines, self._client = router, engines, client

    def ask(self, **fields: Any) -> tuple[str, int]:
        """Ask for an answer, and wait until its blocks are reported: the engine and the tokens it had cached."""
        answer = self._client.post("/v1/chat/completions", json={"messages": MESSAGES, "max_tokens": 4, **fields})
        assert answer.status_code == 200
        until(self.is_even)
        return answer.headers["x-replica"], answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

    def send(self, body: str) -> Any:
        """Return the answer to a body."""
        return self._client.post("/v1/chat/completions", content=body)

    def is_even(self) -> bool:
        """Whether the router holds what the engines hold, and all of it as reported."""
        if self.router.index.stats().believed:
            return False
        held = {engine.url: engine.core.held_tokens for engine in self.engines}
        return dict(zip(self.router.replicas, self.router.index.held_tokens(), strict=True)) == held

    def models(self) -> set[str]:
        """Return the models that the proxy lists."""
        return {one["id"] for one in self._client.get("/v1/models").json()["data"]}

    def forget_routed(self) -> None:
        """Let the blocks expire that were only routed."""
        self.router.index.expire(1e12)


@contextmanager
def served(settings: list[EngineSettings]) -> Iterator[Served]:
    with ExitStack() as stack:
        engines = [stack.enter_context(FakeEngine(one, behaviour=Behaviour(0, 0))) for one in settings]
        feeds = {engine.url: engine.feed for engine in engines}
        app = create_app(
            Settings.of({"discovery.replicas": tuple(feeds)}), feeds=feeds, render=render, tokenizer=tokenize
        )
        client = stack.enter_context(TestClient(app))
        yield Served(client, app.state.service.router, engines)


@pytest.mark.parametrize(
    ("engine", "models"),
    [
        (EngineSettings(), [None]),
        (EngineSettings(), ["fake"]),
        (EngineSettings(format="sglang"), ["fake"]),
        (EngineSettings(adapters=("en", "de")), ["fake", "en", "de"]),
    ],
)
def test_the_proxy_knows_what_its_engines_hold(engine: EngineSettings, models: list[str | None]) -> None:
    with served([engine] * 2) as proxy:
        for number, model in enumerate(models):
            named = {} if model is None else {"model": model}
            home, cached = proxy.ask(**named)
            assert cached == 0  # another model's blocks are no hit
            proxy.forget_routed()
            before = proxy.router.stats()["hit_tokens"]
            assert proxy.ask(**named) == (home, HIT)
            assert proxy.router.stats()["hit_tokens"] - before == HIT
            assert proxy.router.stats()["reported_hit_tokens"] == (number + 1) * HIT


def test_engines_of_several_base_models_are_told_apart_by_what_they_list() -> None:
    with served([EngineSettings(model="one"), EngineSettings(model="two")]) as proxy:
        until(lambda: proxy.models() == {"one", "two"})
        homes = [proxy.ask(model=model) for model in ("one", "two")]
        assert [cached for _, cached in homes] == [0, 0]
        proxy.forget_routed()
        assert [proxy.ask(model=model) for model in ("one", "two")] == [(home, HIT) for home, _ in homes]


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("messages", ["[5]", '[{"role": "user", "content": "\\ud83d"}]', "[null]"])
def test_a_request_that_the_engines_template_cannot_read_is_told_so(messages: str, large: bool) -> None:
    padding = '"user": "%s", ' % ("x" * 300_000) if large else ""
    with served([EngineSettings()]) as proxy:
        answer = proxy.send(f'{{{padding}"messages": {messages}}}')
        assert answer.status_code == 400
        assert re.search("message|Unicode", answer.json()["error"]["message"])
        assert proxy.router.stats()["in_flight"] == 0
